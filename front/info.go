package front

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"github.com/tlsproxy/tlsproxy/session"
)

// Info is what is known of one finished connection. It does not change after
// the connection was handed over.
type Info struct {
	// Listener is the address of the listener, as configured.
	Listener string
	// Site and PolicyID are those of the policy that the connection was made
	// under; see [Policy.ID].
	Site, PolicyID string
	// ServerName is the canonical server name that the client sent, "" for none.
	ServerName string
	// Version, CipherSuite and Curve were negotiated, in the terms of crypto/tls.
	Version, CipherSuite uint16
	Curve                tls.CurveID
	// ALPN is "h2", "http/1.1", or "" when the client offered none.
	ALPN string
	// Resumed reports whether a session was resumed; Session says how the lookup
	// for one went.
	Resumed bool
	Session session.Result
	// Started is when the handshake began, Handshake how long it took.
	Started   time.Time
	Handshake time.Duration
	// Client is the address of the client: from the PROXY header where one was
	// accepted. Proxy is then the address of the proxy that sent it, otherwise
	// zero.
	Client, Proxy netip.AddrPort
	// Local is the address the client connected to, by the PROXY header too.
	Local netip.AddrPort
	// PeerCertificates is what the client sent, verified or not.
	PeerCertificates []*x509.Certificate
	// VerifiedChains are the chains of the client's certificate that were
	// verified, for a resumed session those of its original handshake, which the
	// policy checked again. Empty when the client sent no certificate or nobody
	// verified it. Only these may be vouched for to a backend.
	VerifiedChains [][]*x509.Certificate
}

// ConnOf returns the facts of a connection that came from [Front.Listener], nil
// for any other.
func ConnOf(c net.Conn) *Info {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if own, ok := c.(*conn); ok {
		return &own.info
	}
	return nil
}

// contextKey is the key of *Info in a context.
type contextKey struct{}

// ConnContext puts the facts of a connection into the context of its requests.
// It has the form of http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if info := ConnOf(c); info != nil {
		return context.WithValue(ctx, contextKey{}, info)
	}
	return ctx
}

// FromContext returns the facts of the connection that a request came on, nil
// if it did not come through a [Front].
func FromContext(ctx context.Context) *Info {
	info, _ := ctx.Value(contextKey{}).(*Info)
	return info
}

// fill takes over what the handshake negotiated.
func (i *Info) fill(state tls.ConnectionState) {
	i.Version = state.Version
	i.CipherSuite = state.CipherSuite
	i.Curve = state.CurveID
	i.ALPN = state.NegotiatedProtocol
	i.Resumed = state.DidResume
	i.PeerCertificates = state.PeerCertificates
	i.VerifiedChains = state.VerifiedChains
}

// event is the end of the connection's handshake, for an observer.
func (i *Info) event(reason Reason, err error) Handshake {
	h := Handshake{
		Listener: i.Listener,
		Site:     i.Site,
		Reason:   reason,
		Err:      err,
		Version:  versionLabel(i.Version),
		Resumed:  i.Resumed,
		Session:  i.Session,
		Duration: i.Handshake,
		Client:   i.Client.Addr(),
	}
	if i.Curve != 0 {
		h.Curve = i.Curve.String()
	}
	return h
}

// versionLabel is a protocol version as metrics name it.
func versionLabel(v uint16) string {
	switch v {
	case tls.VersionTLS12:
		return "1.2"
	case tls.VersionTLS13:
		return "1.3"
	}
	return ""
}
