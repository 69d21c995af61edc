package main

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// How long an end waits for a request on a connection that is open but quiet.
// It is counted in looks, not by the clock: a machine that stood still must not
// take its own silence for the client's.
const (
	lookEvery  = 50 * time.Millisecond
	freshLooks = 60 // a new connection: whoever has just connected wants something
	keptLooks  = 10 // a kept one, on which a request may just be on its way
)

// openConns are the connections that an http.Server has, as its ConnState tells.
// The zero value is ready.
type openConns struct {
	mu    sync.RWMutex
	conns map[net.Conn]*openConn
	empty chan struct{} // not nil while somebody waits; closed when there is none
}

// note has the form of http.Server.ConnState. It is called twice for each
// request, for which watched connections share nothing.
func (o *openConns) note(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		o.add(c)
	case http.StateClosed, http.StateHijacked:
		o.remove(c)
	default:
		o.of(c).change(state)
	}
}

func (o *openConns) add(c net.Conn) {
	open := new(openConn)
	if w, ok := c.(*watchedConn); ok {
		open = &w.open
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conns == nil {
		o.conns = make(map[net.Conn]*openConn)
	}
	o.conns[c] = open
}

func (o *openConns) remove(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
	if len(o.conns) == 0 && o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
}

func (o *openConns) of(c net.Conn) *openConn {
	if w, ok := c.(*watchedConn); ok {
		return &w.open
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.conns[c]
}

// waiter returns a channel that is closed when the last connection has gone,
// nil if there is none.
func (o *openConns) waiter() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.conns) == 0 {
		return nil
	}
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	return o.empty
}

// closeQuiet closes the HTTP/1 connections that have been quiet for long enough.
func (o *openConns) closeQuiet() {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for c, open := range o.conns {
		if open.endedByQuiet() {
			go c.Close() // tells a TLS client, who may not listen
		}
	}
}

// expectFirst reports whether a first request may still be on its way on an
// HTTP/2 connection.
func (o *openConns) expectFirst() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	expected := false
	for _, open := range o.conns {
		expected = open.expectsFirst() || expected
	}
	return expected
}

// openConn is one connection.
type openConn struct {
	arriving atomic.Bool // something has come since the state changed

	mu     sync.Mutex
	state  http.ConnState
	active int  // how often it became so
	quiet  int  // looks since the state changed
	closed bool // by us
}

func (c *openConn) change(state http.ConnState) {
	c.arriving.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.quiet = state, 0
	if state == http.StateActive {
		c.active++
	}
}

// endedByQuiet takes a look at an HTTP/1 connection and reports, once, that
// nothing more is to be expected of it.
func (c *openConn) endedByQuiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	bound := keptLooks
	switch {
	case c.closed, c.state == http.StateActive: // its response tells the client that the connection ends
		return false
	case c.arriving.Load(): // the time for a header bounds it
		return false
	case c.state == http.StateNew:
		bound = freshLooks
	}
	c.quiet++
	c.closed = c.quiet > bound
	return c.closed
}

// expectsFirst takes a look at an HTTP/2 connection. It becomes active when its
// preface has come, and then with requests.
func (c *openConn) expectsFirst() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet++
	return c.active < 2 && c.quiet <= keptLooks
}

// watchedConn is a connection that notes when something comes: one on which
// net/http has read a part of a request is new or idle in its eyes.
type watchedConn struct {
	net.Conn
	open openConn
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.open.arriving.Load() {
		c.open.arriving.Store(true)
	}
	return n, err
}

// CloseWrite ends what is sent, where the connection can do so.
func (c *watchedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// watchedListener hands out watched connections.
type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c}, nil
}
