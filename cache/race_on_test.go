//go:build race

package cache

// raceDetector is whether the tests run under it, which slows the model's full scans.
const raceDetector = true
