package session

import (
	"crypto/tls"
	"errors"
)

// ErrRevoked is returned by [Attempt.Commit] when the session that the
// connection resumed was revoked while the handshake ran. The caller closes
// the connection; the client's next one does a full handshake.
var ErrRevoked = errors.New("session: resumed session was revoked during the handshake")

// Errors of [Resumer.Revoke]: the revocation is in force on this replica, but …
var (
	ErrNotShared = errors.New("session: revocation not yet shared with other replicas") // … the store did not take it
	ErrNotKept   = errors.New("session: revocation not kept on disk")                   // … a restart forgets it
)

// Attempt follows one connection's handshake. Its methods are called by one
// goroutine at a time: the hooks during the handshake, then Commit or Abandon
// once.
type Attempt struct{}

// Wrap is the connection's tls.Config.WrapSession: it stages the session and
// returns its handle. It never returns an error.
func (a *Attempt) Wrap(cs tls.ConnectionState, ss *tls.SessionState) ([]byte, error) { return nil, nil }

// Unwrap is the connection's tls.Config.UnwrapSession: it returns the session
// of handle if the connection may resume it, nil otherwise. It never returns
// an error and changes nothing.
func (a *Attempt) Unwrap(handle []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
	return nil, nil
}

// Served tells which certificate key (SHA-256 of RawSubjectPublicKeyInfo) the
// connection is served with, from GetCertificate. A full handshake without it
// stores nothing. On a resumed one it changes nothing: the key of the original
// authentication is inherited.
func (a *Attempt) Served(key [32]byte) { _ = key }

// Commit stores the staged session, after HandshakeContext returned nil and
// authorisation passed. Its only error is [ErrRevoked].
func (a *Attempt) Commit(cs tls.ConnectionState) error { return nil }

// Abandon drops what was staged: the handshake or the authorisation failed.
// It does nothing after Commit.
func (a *Attempt) Abandon() {}

// Result says how the connection's lookup ended; when several handles were
// offered, how the last one did. It is final after Commit or Abandon.
func (a *Attempt) Result() Result { return None }
