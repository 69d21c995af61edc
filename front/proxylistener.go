package front

import (
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/pires/go-proxyproto"
)

// ProxyListener reads PROXY headers in front of a protocol without TLS, say
// plain HTTP, by the same rules as a [Front]: the addresses of the connections
// it accepts are those of the clients. A connection that breaks the rules fails
// at its first Read. Make one with [NewProxyListener]; its methods are safe for
// concurrent use.
type ProxyListener struct {
	inner proxyproto.Listener
	state atomic.Pointer[proxyState]
}

// proxyState is what a reload may change.
type proxyState struct {
	mode    ProxyMode
	trusted prefixes
}

var _ net.Listener = (*ProxyListener)(nil)

// NewProxyListener wraps a listener. Until Configure it expects no header.
func NewProxyListener(ln net.Listener) *ProxyListener {
	l := &ProxyListener{}
	l.state.Store(&proxyState{})
	l.inner = proxyproto.Listener{
		Listener: ln, ConnPolicy: l.policy, ReadHeaderTimeout: DefaultProxyHeaderTimeout, ReadBufferSize: headerBuffer,
	}
	return l
}

// Configure sets the mode and the networks whose headers count, for connections
// accepted from now on.
func (l *ProxyListener) Configure(mode ProxyMode, trusted []netip.Prefix) {
	l.state.Store(&proxyState{mode: mode, trusted: newPrefixes(trusted)})
}

// policy decides about one connection before anything of it is read.
func (l *ProxyListener) policy(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
	s := l.state.Load()
	peer, _ := addrPort(o.Upstream)
	switch trusted := s.trusted.contains(peer.Addr()); {
	case s.mode == ProxyOff:
		return proxyproto.SKIP, nil
	case trusted && s.mode == ProxyRequired:
		return proxyproto.REQUIRE, nil
	case trusted:
		return proxyproto.USE, nil
	case s.mode == ProxyRequired:
		return proxyproto.REJECT, proxyproto.ErrInvalidUpstream // closed; the listener goes on
	}
	return proxyproto.SKIP, nil
}

// Accept waits for the next connection that may begin.
func (l *ProxyListener) Accept() (net.Conn, error) { return l.inner.Accept() }

// Close closes the listener below.
func (l *ProxyListener) Close() error { return l.inner.Close() }

// Addr is the address of the listener below.
func (l *ProxyListener) Addr() net.Addr { return l.inner.Addr() }
