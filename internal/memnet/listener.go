package memnet

import (
	"net"
	"net/netip"
	"sync"
)

// Listener is one listening address of a [Network]. It implements
// [net.Listener]; its methods are safe for concurrent use.
type Listener struct {
	network *Network
	addr    netip.AddrPort
	queue   chan *Conn
	done    chan struct{}
	once    sync.Once

	mu   sync.Mutex
	fail []error
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for the next connection. After Close it returns an error that
// is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	if err := l.nextFailure(); err != nil {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: err}
	}
	select {
	case <-l.done:
		return nil, l.closed()
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, l.closed()
	}
}

// Close stops listening and resets the connections that nobody accepted.
func (l *Listener) Close() error {
	err := l.closed()
	l.once.Do(func() {
		err = nil
		l.network.remove(l)
		close(l.done)
		l.drain()
	})
	return err
}

// Addr is the listening address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

// FailAccept makes the next calls of Accept return these errors, in order,
// before it accepts again.
func (l *Listener) FailAccept(errs ...error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = append(l.fail, errs...)
}

func (l *Listener) nextFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fail) == 0 {
		return nil
	}
	err := l.fail[0]
	l.fail = l.fail[1:]
	return err
}

func (l *Listener) drain() {
	for {
		select {
		case c := <-l.queue:
			c.Reset()
		default:
			return
		}
	}
}

func (l *Listener) closed() error {
	return &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
}
