// Package store keeps what the replicas of a fleet share in a Redis or Valkey
// server, version 7 or later: a single one, a Sentinel set or a Cluster.
//
// It is the only package that speaks to the server. Its users each see the
// small interface that they declared themselves:
//
//	s, err := store.New(store.Options{Addresses: []string{"10.0.0.5:6379"}, KeyFile: "/etc/tlsproxy/store.keys"})
//	...
//	go s.Run(ctx)
//	defer s.Close()
//	sessions := s.Sessions()         // session.Store
//	staples := s.Staples()           // ocsp.Store
//	certificates := s.Certificates() // certmagic.Storage
//
// What leaves the process is sealed: values with AES-256-GCM under a key of
// their own, derived from a key in the key file, and bound to their name as
// associated data; names of sessions are HMACs. The server's operator can drop
// values, or bring an old one back under its own name while it lives, but
// learns nothing and can move nothing.
//
// Calls have deadlines. A breaker for each server stops asking one that does
// not answer, so that a hanging store costs a handshake one deadline at first
// and nothing afterwards; probes in the background find out when it is back.
// There is one line in the log for each change of state.
//
// What the package does not do: it holds no sessions itself, retries nothing
// that a handshake waits for, and reads from masters only.
package store
