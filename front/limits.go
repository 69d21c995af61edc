package front

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
)

// check refuses limits that could not be meant.
func (l Limits) check() error {
	var errs []error
	if l.HandshakeTimeout < 0 {
		errs = append(errs, errors.New("limits: the handshake timeout cannot be switched off"))
	}
	if l.ProxyHeaderTimeout < 0 {
		errs = append(errs, errors.New("limits: the timeout for PROXY headers cannot be switched off"))
	}
	if math.IsNaN(l.HandshakeRate) || math.IsInf(l.HandshakeRate, 0) {
		errs = append(errs, fmt.Errorf("limits: handshake rate %v is not a number", l.HandshakeRate))
	}
	if l.HandshakeBurst < 0 {
		errs = append(errs, fmt.Errorf("limits: handshake burst %d is negative", l.HandshakeBurst))
	}
	return errors.Join(errs...)
}

// withDefaults fills in defaults and turns what is switched off into zero.
func (l Limits) withDefaults() Limits {
	if l.HandshakeTimeout <= 0 {
		l.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if l.ProxyHeaderTimeout <= 0 {
		l.ProxyHeaderTimeout = DefaultProxyHeaderTimeout
	}
	switch {
	case l.WriteTimeout == 0:
		l.WriteTimeout = DefaultWriteTimeout
	case l.WriteTimeout < 0:
		l.WriteTimeout = 0
	}
	if l.MaxHandshakes == 0 {
		l.MaxHandshakes = DefaultMaxHandshakes
	}
	l.MaxConnections = max(l.MaxConnections, 0)
	l.MaxHandshakes = max(l.MaxHandshakes, 0)
	l.MaxPerClient = max(l.MaxPerClient, 0)
	l.HandshakeRate = max(l.HandshakeRate, 0)
	if l.HandshakeBurst == 0 {
		l.HandshakeBurst = max(1, int(min(math.Ceil(l.HandshakeRate), math.MaxInt32)))
	}
	return l
}

// waits counts those who wait at gates.
type waits struct {
	begun atomic.Uint64
	now   atomic.Int64
}

// gate lets a number of holders in and makes the others wait. The zero value
// has no limit.
type gate struct {
	mu      sync.Mutex
	max     int // 0: no limit
	held    int
	changed chan struct{} // closed when there may be room; nil: nobody waits
}

// enter waits for room, counted in w from when it begins. It gives up, without
// entering and with false, when stop is closed.
func (g *gate) enter(stop <-chan struct{}, w *waits) bool {
	changed := g.try()
	if changed == nil {
		return true
	}
	w.begun.Add(1)
	w.now.Add(1)
	defer w.now.Add(-1)
	for changed != nil {
		select {
		case <-changed:
		case <-stop:
			return false
		}
		changed = g.try()
	}
	return true
}

// try enters if there is room; else it returns what is closed when there may be.
func (g *gate) try() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.max <= 0 || g.held < g.max {
		g.held++
		return nil
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

// leave makes room.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held--
	g.wake()
}

// setMax changes the limit; holders above a lower one stay.
func (g *gate) setMax(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.max = n
	g.wake()
}

func (g *gate) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// clientTable counts the open connections of each client address.
type clientTable struct {
	mu   sync.Mutex
	open map[netip.Addr]int
}

func newClientTable() *clientTable { return &clientTable{open: make(map[netip.Addr]int)} }

// enter counts a connection of a client unless it has max already. A max of
// zero means no limit, and it is counted all the same: the limit may come later.
func (t *clientTable) enter(client netip.Addr, max int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if max > 0 && t.open[client] >= max {
		return false
	}
	t.open[client]++
	return true
}

func (t *clientTable) leave(client netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[client]--; t.open[client] <= 0 {
		delete(t.open, client)
	}
}

// clientKey is the address that a client's limits go by: an IPv6 client has at
// least a /64 to itself.
func clientKey(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}
