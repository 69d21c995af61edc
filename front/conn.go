package front

import (
	"net"
	"sync/atomic"
	"time"
)

// conn is an accepted connection below TLS. It carries what is known of it,
// gives back its places when it is closed, and bounds each write.
//
// It lies under the *tls.Conn because http.Server must see the *tls.Conn itself
// to speak HTTP/2.
type conn struct {
	net.Conn
	port *port
	info Info

	prefix []byte   // read together with the PROXY header, not yet by TLS
	remote net.Addr // the client, if not the peer

	writes writeDeadline

	handshake handshakeState

	closed  atomic.Bool
	release func() // gives back the places
}

// Read gives what came with the PROXY header first.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(p, c.prefix)
		if c.prefix = c.prefix[n:]; len(c.prefix) == 0 {
			c.prefix = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// Write writes within the deadline of one write.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.writes.begin(c.Conn); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// RemoteAddr is the client's address, from the PROXY header where one counted.
func (c *conn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetWriteDeadline sets a deadline of all writes to come, beside that of each.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.writes.set(c.Conn, t)
}

// Close closes the connection and gives back its places, once.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) && c.release != nil {
		c.release()
	}
	return err
}
