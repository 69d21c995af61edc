package front

import (
	"net"
	"sync"
	"time"
)

// writeDeadline moves a connection's write deadline ahead as it writes, so that
// a client that stops reading is noticed, however long the response.
//
// Setting a deadline costs about as much as a small write's own overhead, so it
// is moved only when a quarter of the timeout has passed since the last time: a
// write is given at least three quarters of the timeout, and at most all of it.
type writeDeadline struct {
	mu      sync.Mutex
	timeout time.Duration // of each write; 0: none
	armed   time.Time     // when the deadline was last moved; zero: never
	fixed   time.Time     // a deadline that somebody set; zero: none
}

// begin is called before each write.
func (d *writeDeadline) begin(c net.Conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timeout <= 0 {
		return nil
	}
	now := time.Now()
	if !d.armed.IsZero() && now.Sub(d.armed) < d.timeout/4 {
		return nil
	}
	d.armed = now
	return c.SetWriteDeadline(earlier(now.Add(d.timeout), d.fixed))
}

// set fixes a deadline, or with the zero time removes it.
func (d *writeDeadline) set(c net.Conn, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fixed = t
	if d.timeout <= 0 || d.armed.IsZero() {
		return c.SetWriteDeadline(t)
	}
	return c.SetWriteDeadline(earlier(d.armed.Add(d.timeout), t))
}

// earlier is the earlier of two times, of which b may be zero for never.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}
