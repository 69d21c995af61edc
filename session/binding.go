package session

import (
	"net/netip"
	"time"
)

// Binding says what a connection's sessions are bound to. It is made once per
// connection, in GetConfigForClient, and not changed afterwards.
type Binding struct {
	// Scope of the policy that the connection comes in under.
	Scope Scope

	// Site is the policy's name, for [Resumer.Revoke] by site.
	Site string

	// ServerName is the canonical SNI: lower case, no trailing dot, IDNA
	// ASCII; "" when the client sent none.
	ServerName string

	// Keys are the public keys (SHA-256 of RawSubjectPublicKeyInfo) of the
	// certificates that ServerName may be served with now. A session ends
	// with the key it was authenticated with; an empty list resumes nothing.
	Keys [][32]byte

	// Client is the client's address, for the per-client share (IPv6 counts
	// by /64). The zero Addr means unknown and has no share to exceed.
	Client netip.Addr

	// Started is when the connection's handshake began, stamped before it
	// did. It becomes the time of authentication of a full handshake, which
	// resumptions inherit. Zero means now.
	Started time.Time

	// ExtendedMasterSecret tells that the hello offers the extension of
	// RFC 7627. A TLS 1.2 session that was made with it is not resumed by a
	// hello without it, on which crypto/tls would end the handshake.
	ExtendedMasterSecret bool

	// ClientAuth tells that the policy asks for client certificates: the
	// shorter lifetime holds.
	ClientAuth bool
}
