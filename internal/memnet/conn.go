package memnet

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is one end of a connection in memory. It implements [net.Conn] with the
// semantics of a TCP connection: writes are buffered up to 64 KiB, Close lets
// the peer read what was written before it sees io.EOF, and a write to a peer
// that has closed fails with syscall.EPIPE.
//
// Methods are safe for concurrent use.
type Conn struct {
	in, out       *stream
	local, remote net.Addr
	closed        atomic.Bool
}

var _ net.Conn = (*Conn)(nil)

// Pipe returns the two ends of a connection between the addresses a and b: the
// local address of the first end is a, of the second b.
func Pipe(a, b net.Addr) (*Conn, *Conn) {
	ab, ba := newStream(), newStream()
	return &Conn{in: ba, out: ab, local: a, remote: b}, &Conn{in: ab, out: ba, local: b, remote: a}
}

// Read reads what the peer wrote. It returns io.EOF after the peer closed its
// side and an error that is os.ErrDeadlineExceeded at the read deadline.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write hands p to the peer, blocking while the peer's 64 KiB are full. At the
// write deadline the error is os.ErrDeadlineExceeded.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

// Close closes both directions. Reads and writes of this end that are blocked
// return an error that is net.ErrClosed.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return c.wrap("close", net.ErrClosed)
	}
	c.in.closeReader()
	c.out.closeWriter(io.EOF)
	return nil
}

// CloseWrite closes the writing side only: the peer reads io.EOF.
func (c *Conn) CloseWrite() error {
	if c.closed.Load() {
		return c.wrap("close", net.ErrClosed)
	}
	c.out.closeWriter(io.EOF)
	return nil
}

// Reset closes the connection as a TCP RST does: the peer loses what it has
// not read and its calls fail with syscall.ECONNRESET.
func (c *Conn) Reset() {
	c.closed.Store(true)
	c.in.closeReader()
	c.out.reset()
}

// LocalAddr is the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines. The zero time means none.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of present and future reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if c.closed.Load() {
		return c.wrap("set", net.ErrClosed)
	}
	c.in.readDeadline.set(t)
	return nil
}

// SetWriteDeadline sets the deadline of present and future writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if c.closed.Load() {
		return c.wrap("set", net.ErrClosed)
	}
	c.out.writeDeadline.set(t)
	return nil
}

func (c *Conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

var (
	errClosed   = net.ErrClosed
	errDeadline = os.ErrDeadlineExceeded
	errBroken   = error(syscall.EPIPE)
	errReset    = error(syscall.ECONNRESET)
)
