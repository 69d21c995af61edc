//go:build race

package session

// How long the long tests are: everything takes some ten times as long here.
const (
	flooding    = 10_000
	soaking     = 1_000
	soakClients = 200
)
