package front

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// port is one listener of the configuration. An address may stand for several
// sockets.
type port struct {
	front     *Front
	address   string
	listeners []net.Listener
	current   atomic.Pointer[portState]
	done      chan struct{} // closed when it stops accepting
	once      sync.Once
	started   bool // guarded by Front.mu
}

// portState is what a reload may change of a port.
type portState struct {
	table   *Table
	proxy   ProxyMode
	trusted prefixes
}

func newPort(f *Front, address string, listeners []net.Listener) *port {
	return &port{front: f, address: address, listeners: listeners, done: make(chan struct{})}
}

func newPortState(o ListenerOptions) *portState {
	return &portState{table: o.Table, proxy: o.ProxyProtocol, trusted: newPrefixes(o.TrustedProxies)}
}

// close stops accepting.
func (p *port) close() {
	p.once.Do(func() {
		close(p.done)
		for _, ln := range p.listeners {
			ln.Close()
		}
	})
}

// Bounds of the wait after a failed Accept, those of net/http.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// accept is the loop of one socket. The work group counts the loop itself, so
// that it cannot reach zero between an Accept and the start of its connection.
func (p *port) accept(ln net.Listener, work *sync.WaitGroup) {
	var backoff time.Duration
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			if backoff > 0 {
				p.front.log.Info("accepting connections again", "listener", p.address)
			}
			backoff = 0
			p.front.counters.accepted.Add(1)
			p.admit(c, work)
		case p.isDone() || errors.Is(err, net.ErrClosed):
			return
		default:
			if backoff == 0 {
				p.front.log.Warn("connections are not accepted for now", "listener", p.address, "err", err)
			}
			p.front.counters.acceptErrors.Add(1)
			backoff = min(max(2*backoff, minBackoff), maxBackoff)
			p.wait(backoff)
		}
	}
}

// admit waits for room and starts the connection's handshake. Waiting here, with
// one connection in hand, leaves the others to the kernel's queue.
func (p *port) admit(c net.Conn, work *sync.WaitGroup) {
	f := p.front
	if !p.enter() {
		c.Close()
		return
	}
	f.counters.open.Add(1)
	f.counters.handshaking.Add(1)
	work.Go(func() { p.serve(c) })
}

// enter waits for room among all connections and all handshakes.
func (p *port) enter() bool {
	f := p.front
	if !f.gate.enter(p.done, &f.counters.waits) {
		return false
	}
	if !f.shakes.enter(p.done, &f.counters.waits) {
		f.gate.leave()
		return false
	}
	return true
}

func (p *port) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *port) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.done:
	}
}

// status describes the port.
func (p *port) status() Status {
	state := p.current.Load()
	s := Status{Address: p.address, ProxyProtocol: state.proxy.String(), Sites: state.table.sites()}
	for _, ln := range p.listeners {
		s.Bound = append(s.Bound, ln.Addr().String())
	}
	return s
}

func statusOf(ports map[string]*port) []Status {
	all := make([]Status, 0, len(ports))
	for _, address := range slices.Sorted(maps.Keys(ports)) {
		all = append(all, ports[address].status())
	}
	return all
}

// firstAddr is the bound address of the first port by name.
func (f *Front) firstAddr() net.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(f.ports)) {
		return f.ports[address].listeners[0].Addr()
	}
	return &net.TCPAddr{}
}
