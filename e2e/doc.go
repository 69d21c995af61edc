// Package e2e tests the tlsproxy binary from outside, with programs that this
// project did not write: OpenSSL, curl, GnuTLS, Java, Node, Chromium, h2load,
// nginx, Redis, Prometheus and others.
//
// The tests build the binary once, give each test a configuration, ports and a
// state directory of its own, and read what operators read: exit status, log,
// /api/status and /metrics. Traffic stays on loopback or in network namespaces
// that a test makes for itself. A tool that is missing fails the test and is
// named with its Debian package; scripts/test-deps installs them all.
package e2e
