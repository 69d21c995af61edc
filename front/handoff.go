package front

import (
	"crypto/tls"
	"net"
	"sync"
)

// handoff is the listener on which finished connections come out.
type handoff struct {
	front *Front
	conns chan *tls.Conn
	done  chan struct{}
	once  sync.Once
}

var _ net.Listener = (*handoff)(nil)

func newHandoff(f *Front) *handoff {
	return &handoff{front: f, conns: make(chan *tls.Conn), done: make(chan struct{})}
}

// put waits until somebody accepts the connection. It reports false if nobody
// will.
func (h *handoff) put(c *tls.Conn) bool {
	h.front.counters.ready.Add(1)
	defer h.front.counters.ready.Add(-1)
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept returns the next finished connection, a *tls.Conn. It waits also after
// Run has returned, until Close.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case <-h.done:
		return nil, errClosedListener
	default:
	}
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, errClosedListener
	}
}

// Close makes Accept return and refuses what was not accepted.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr is the address of the first listener by name; there may be many.
func (h *handoff) Addr() net.Addr { return h.front.firstAddr() }
