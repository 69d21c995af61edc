// Package memnet is a network in memory, for tests that run on a fake clock.
//
// A [Network] has listeners at addresses of the form "host:port" and dials
// them. Both ends of a connection are ordinary [net.Conn] values: buffered,
// with deadlines, half-close, and addresses that the test chooses.
//
//	var network memnet.Network
//	ln, err := network.Listen("tcp", "192.0.2.1:443")
//	...
//	c, err := network.DialFrom(ctx, "203.0.113.7:5000", "192.0.2.1:443")
//
// Nothing in it touches the kernel, so a blocked Read, Write or Accept counts as
// durably blocked inside a testing/synctest bubble, where deadlines follow the
// bubble's clock.
//
// It models neither loss nor latency nor congestion, and it has no names: an
// address must be an IP address and a port.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// backlog is how many connections wait for Accept before a dial blocks.
const backlog = 128

// firstEphemeral is the first port that Dial and ":0" addresses use.
const firstEphemeral = 32768

// Network connects dialers to listeners. The zero value is an empty network
// ready for use; all methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[netip.AddrPort]*Listener
	nextPort  uint16
}

// Listen opens a listener at address, for example "192.0.2.1:443". Port 0
// takes a free one. The network argument is only checked to be "tcp", "tcp4"
// or "tcp6". An address in use gives an error that is syscall.EADDRINUSE.
func (n *Network) Listen(network, address string) (*Listener, error) {
	if err := checkNetwork(network); err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("memnet: listen %q: %w", address, err)
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if addr.Port() == 0 {
		addr = netip.AddrPortFrom(addr.Addr(), n.port())
	}
	if _, taken := n.listeners[addr]; taken {
		return nil, fmt.Errorf("memnet: listen %s: %w", addr, syscall.EADDRINUSE)
	}
	l := &Listener{
		network: n,
		addr:    addr,
		queue:   make(chan *Conn, backlog),
		done:    make(chan struct{}),
	}
	if n.listeners == nil {
		n.listeners = make(map[netip.AddrPort]*Listener)
	}
	n.listeners[addr] = l
	return l, nil
}

// Dial connects to the listener at address from an ephemeral port of
// 192.0.2.254. Without a listener the error is syscall.ECONNREFUSED.
func (n *Network) Dial(network, address string) (net.Conn, error) {
	return n.DialContext(context.Background(), network, address)
}

// DialContext is Dial with a context, in the form that http.Transport and
// tls.Dialer take.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := checkNetwork(network); err != nil {
		return nil, err
	}
	n.mu.Lock()
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 254}), n.port())
	n.mu.Unlock()
	return n.DialFrom(ctx, from.String(), address)
}

// DialFrom connects to the listener at address, with the address from as the
// local one: the peer sees it as the remote address.
func (n *Network) DialFrom(ctx context.Context, from, address string) (net.Conn, error) {
	local, err := netip.ParseAddrPort(from)
	if err != nil {
		return nil, fmt.Errorf("memnet: dial from %q: %w", from, err)
	}
	remote, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("memnet: dial %q: %w", address, err)
	}
	n.mu.Lock()
	l := n.listeners[remote]
	n.mu.Unlock()
	if l == nil {
		return nil, refused(remote)
	}

	client, server := Pipe(net.TCPAddrFromAddrPort(local), net.TCPAddrFromAddrPort(remote))
	select {
	case <-l.done:
		return nil, refused(remote)
	default:
	}
	select {
	case l.queue <- server:
		select {
		case <-l.done:
			l.drain() // closed meanwhile: nobody will accept it
		default:
		}
		return client, nil
	case <-l.done:
		return nil, refused(remote)
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: client.RemoteAddr(), Err: ctx.Err()}
	}
}

// port gives the next ephemeral port; the caller holds the lock.
func (n *Network) port() uint16 {
	if n.nextPort < firstEphemeral {
		n.nextPort = firstEphemeral
	}
	p := n.nextPort
	n.nextPort++
	return p
}

func (n *Network) remove(l *Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.addr] == l {
		delete(n.listeners, l.addr)
	}
}

func checkNetwork(network string) error {
	switch network {
	case "tcp", "tcp4", "tcp6":
		return nil
	}
	return fmt.Errorf("memnet: network %q: %w", network, errors.ErrUnsupported)
}

func refused(addr netip.AddrPort) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: syscall.ECONNREFUSED}
}
