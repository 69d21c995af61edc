//go:build !race

package session

// How long the long tests are.
const (
	flooding    = 100_000
	soaking     = 10_000
	soakClients = 1_000
)
