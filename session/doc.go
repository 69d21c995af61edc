// Package session resumes TLS 1.2 and 1.3 sessions from a bounded cache,
// bound to who may resume them.
//
// crypto/tls resumes by ticket only and keeps no state of its own. Here the
// ticket is a random handle and the session lies in a cache, so there is no
// ticket key that opens yesterday's sessions, tickets stay small even with
// client certificates, and sessions can be revoked, bounded in life and
// explained one by one.
//
// A [Resumer] serves every listener. Each connection gets an [Attempt], made
// in GetConfigForClient, whose methods are the hooks of that connection's own
// configuration:
//
//	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
//		attempt = resumer.Begin(binding)
//		cfg := site.Clone()
//		cfg.WrapSession, cfg.UnwrapSession = attempt.Wrap, attempt.Unwrap
//		return cfg, nil
//	}
//	...
//	if err := conn.HandshakeContext(ctx); err != nil {
//		attempt.Abandon()
//		return err
//	}
//	return attempt.Commit(conn.ConnectionState())
//
// Nothing is stored before [Attempt.Commit] and nothing is taken away by a
// lookup, so neither an unfinished handshake nor a replayed hello changes
// anything. A session that may not be used is a miss: the client gets a full
// handshake, never an alert.
//
// With a [Store] the sessions are shared by a fleet of replicas; the local
// cache stays in front of it.
//
// What the package does not do: it makes no authorisation decision. Whether a
// client may come in is decided on every connection, resumed or not, by
// tls.Config.VerifyConnection. It never allows 0-RTT data and never resumes by
// the session identifiers of TLS 1.2 (RFC 5246), which crypto/tls does not
// offer.
package session
