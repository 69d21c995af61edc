package proxy

import (
	"bufio"
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Upgrades tracks upgraded connections (WebSocket and the like), which
// [http.Server.Shutdown] does not know of. The zero value is ready; it is safe for
// concurrent use and is shared by all generations of handlers.
type Upgrades struct {
	mu    sync.Mutex
	conns map[*upgradedConn]struct{}
	shut  bool          // new ones are closed at once
	empty chan struct{} // not nil while somebody waits; closed when conns is empty
}

// Len is the number of upgraded connections.
func (u *Upgrades) Len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns)
}

// Drain waits until there is no upgraded connection. When ctx is done first, it
// closes those that are left, and those that come later, and returns the context's
// error.
func (u *Upgrades) Drain(ctx context.Context) error {
	for {
		empty := u.waiter()
		if empty == nil {
			return nil
		}
		select {
		case <-empty:
		case <-ctx.Done():
			for _, c := range u.shutDown() {
				c.Close()
			}
			return ctx.Err()
		}
	}
}

// waiter returns a channel that is closed when the last connection has gone, nil if
// there is none.
func (u *Upgrades) waiter() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.conns) == 0 {
		return nil
	}
	if u.empty == nil {
		u.empty = make(chan struct{})
	}
	return u.empty
}

func (u *Upgrades) shutDown() []*upgradedConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shut = true
	left := make([]*upgradedConn, 0, len(u.conns))
	for c := range u.conns {
		left = append(left, c)
	}
	return left
}

func (u *Upgrades) add(c *upgradedConn) (ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shut {
		return false
	}
	if u.conns == nil {
		u.conns = map[*upgradedConn]struct{}{}
	}
	u.conns[c] = struct{}{}
	return true
}

func (u *Upgrades) remove(c *upgradedConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, c)
	if len(u.conns) == 0 && u.empty != nil {
		close(u.empty)
		u.empty = nil
	}
}

// upgradedConn is the client's side of an upgraded connection. It ends when no byte
// has moved in either direction for the idle time.
type upgradedConn struct {
	net.Conn
	early    *bufio.Reader // bytes that the client sent before the switch; nil when read
	upgrades *Upgrades
	idle     time.Duration // zero or less: no bound
	release  func()

	moved   atomic.Int64 // when a byte last moved, Unix nanoseconds
	in, out atomic.Int64 // bytes
	timer   *time.Timer
	close   sync.Once
	err     error // of Close
}

// newUpgradedConn tracks conn. It fails with net.ErrClosed during a shutdown, and
// conn is closed. Closing it calls release for the backend's side, which may be the
// only one left open.
func newUpgradedConn(conn net.Conn, early *bufio.Reader, o Options, release func()) (*upgradedConn, error) {
	c := &upgradedConn{Conn: conn, upgrades: o.Upgrades, idle: o.UpgradeIdleTimeout, release: release}
	if early.Buffered() > 0 {
		c.early = early
	}
	if !c.upgrades.add(c) {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.moved.Store(time.Now().UnixNano())
	if c.idle > 0 {
		c.timer = time.AfterFunc(math.MaxInt64, c.checkIdle)
		c.timer.Reset(c.idle) // only now may checkIdle read c.timer
	}
	return c, nil
}

// checkIdle closes the connection, or comes back when it may have become idle.
func (c *upgradedConn) checkIdle() {
	quiet := time.Since(time.Unix(0, c.moved.Load()))
	if quiet >= c.idle {
		c.Close()
		return
	}
	c.timer.Reset(c.idle - quiet)
}

func (c *upgradedConn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if n > 0 {
		c.in.Add(int64(n))
		c.moved.Store(time.Now().UnixNano())
	}
	return n, err
}

func (c *upgradedConn) read(p []byte) (int, error) {
	if c.early == nil {
		return c.Conn.Read(p)
	}
	n, err := c.early.Read(p[:min(len(p), c.early.Buffered())])
	if c.early.Buffered() == 0 {
		c.early = nil
	}
	return n, err
}

func (c *upgradedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.out.Add(int64(n))
		c.moved.Store(time.Now().UnixNano())
	}
	return n, err
}

// CloseWrite ends the stream towards the client and leaves the other one open.
func (c *upgradedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Close()
}

func (c *upgradedConn) Close() error {
	c.close.Do(func() {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.err = c.Conn.Close()
		c.release()
		c.upgrades.remove(c)
	})
	return c.err
}
