package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tlsproxy/tlsproxy/session"
)

// Defaults of [Limits].
const (
	DefaultHandshakeTimeout   = 10 * time.Second
	DefaultProxyHeaderTimeout = 5 * time.Second
	DefaultWriteTimeout       = time.Minute
	DefaultMaxHandshakes      = 8192
)

// Options are what a [Front] keeps for its life.
type Options struct {
	// Sessions resumes sessions. Nil resumes none, whatever the policies say.
	Sessions *session.Resumer
	// Observer is told of each handshake. Nil tells nobody.
	Observer Observer
	// Logger takes the log. Nil means slog.Default().
	Logger *slog.Logger
	// Listen opens a listener at an address. Nil means the kernel's TCP.
	Listen func(network, address string) (net.Listener, error)
}

// ListenerOptions describe one listener.
type ListenerOptions struct {
	// Address is "host:port", "systemd:NAME" for the sockets that systemd passes
	// under that name, or "fd:N" for one that was inherited. It also identifies
	// the listener over reloads.
	Address string
	// Table picks the policy of each connection. Required.
	Table *Table
	// ProxyProtocol says whether connections begin with a PROXY header.
	ProxyProtocol ProxyMode
	// TrustedProxies are the sources whose PROXY headers count. Needed unless
	// ProxyProtocol is off.
	TrustedProxies []netip.Prefix
}

// Limits bound what connections may take. In every field zero means the
// default; a negative value switches the limit off.
type Limits struct {
	// HandshakeTimeout bounds the TLS handshake. Default 10 s; it cannot be
	// switched off.
	HandshakeTimeout time.Duration
	// ProxyHeaderTimeout bounds the wait for a PROXY header. Default 5 s; it
	// cannot be switched off.
	ProxyHeaderTimeout time.Duration
	// WriteTimeout bounds each single write to a client, never a whole response.
	// Default 1 min.
	WriteTimeout time.Duration
	// MaxConnections bounds the open connections of all listeners. At the limit
	// new ones wait in the kernel. Default: no limit.
	MaxConnections int
	// MaxHandshakes bounds the handshakes that run at one time; more wait.
	// Default 8192.
	MaxHandshakes int
	// MaxPerClient bounds the open connections of one client address (IPv6: one
	// /64). More are closed. Default: no limit.
	MaxPerClient int
	// HandshakeRate is how many handshakes a second one client address (IPv6:
	// one /64) may make. More are closed before any cryptography. Default: no
	// limit.
	HandshakeRate float64
	// HandshakeBurst is how many it may make at once. Default: HandshakeRate
	// rounded up, at least 1.
	HandshakeBurst int
}

// Config is what a reload may change.
type Config struct {
	Listeners []ListenerOptions
	Limits    Limits
}

// Front accepts connections and finishes their handshakes. Make one with [New],
// give it listeners with [Front.Prepare], and let [Front.Run] work. Its methods
// are safe for concurrent use.
type Front struct {
	sessions *session.Resumer
	observer Observer
	log      *slog.Logger
	sockets  *sockets
	outer    *tls.Config // of every connection, until its hello is read

	limits   atomic.Pointer[Limits] // with their defaults
	clients  *clientTable
	rate     *rateLimiter
	gate     gate // all open connections
	shakes   gate // handshakes
	counters *counters
	ready    *handoff

	shaking context.Context // of every handshake; ends with cut
	cut     context.CancelFunc

	prepare sync.Mutex // held from Prepare to Install or Discard
	mu      sync.Mutex
	ports   map[string]*port
	started chan struct{} // tells Run of new ports
	stopped bool
}

// New makes a Front without listeners.
func New(o Options) (*Front, error) {
	rate, err := newRateLimiter()
	if err != nil {
		return nil, err
	}
	f := &Front{
		sessions: o.Sessions,
		observer: o.Observer,
		log:      o.Logger,
		sockets:  newSockets(o.Listen),
		clients:  newClientTable(),
		rate:     rate,
		counters: newCounters(),
		ports:    make(map[string]*port),
		started:  make(chan struct{}, 1),
	}
	if f.log == nil {
		f.log = slog.Default()
	}
	f.ready = newHandoff(f)
	f.shaking, f.cut = context.WithCancel(context.Background())
	f.outer = &tls.Config{
		// Every connection gets the config of its policy. Should one be missing
		// its hooks, there are no ticket keys that it could fall back to.
		GetConfigForClient:     f.configFor,
		SessionTicketsDisabled: true,
		MinVersion:             tls.VersionTLS12,
	}
	limits := Limits{}.withDefaults()
	f.limits.Store(&limits)
	return f, nil
}

// Listener gives the connections whose handshake is done, as *tls.Conn, to one
// http.Server. Closing it refuses what is not yet accepted; the listening
// sockets are Run's.
func (f *Front) Listener() net.Listener { return f.ready }

// Open opens the listeners of an address as [ListenerOptions] names it, for a
// protocol without TLS beside those that Prepare serves.
func (f *Front) Open(address string) ([]net.Listener, error) { return f.sockets.open(address) }

// Stats returns the counters.
func (f *Front) Stats() Stats { return f.counters.snapshot() }

// Change is a new configuration that was checked and whose listeners are bound,
// but which is not in force yet. Call Install or Discard, once.
type Change struct {
	front  *Front
	config Config
	opened map[string]*port
}

// Prepare does all of a reload that can fail: it checks the configuration and
// binds the listeners that are new. What is in force stays so. It reports every
// error. Only one change can be prepared at a time; a second call waits.
func (f *Front) Prepare(c Config) (*Change, error) {
	f.prepare.Lock()
	change := &Change{front: f, config: c, opened: make(map[string]*port)}
	if err := change.open(); err != nil {
		change.Discard()
		return nil, err
	}
	return change, nil
}

func (c *Change) open() error {
	var errs []error
	if err := c.config.Limits.check(); err != nil {
		errs = append(errs, err)
	}
	seen := make(map[string]bool)
	for _, o := range c.config.Listeners {
		err := o.check()
		if err == nil && seen[o.Address] {
			err = errors.New("is listed twice")
		}
		seen[o.Address] = true
		if err == nil && !c.front.has(o.Address) {
			err = c.bind(o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("listener %q: %w", o.Address, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Change) bind(o ListenerOptions) error {
	listeners, err := c.front.sockets.open(o.Address)
	if err != nil {
		return err
	}
	c.opened[o.Address] = newPort(c.front, o.Address, listeners)
	return nil
}

// Install puts the change in force. Listeners that stay get their new table at
// once, new ones begin to accept as soon as Run runs, and those that are not in
// the change stop accepting; connections live on.
func (c *Change) Install() {
	f := c.front
	defer f.prepare.Unlock()
	limits := c.config.Limits.withDefaults()
	f.limits.Store(&limits)
	f.gate.setMax(limits.MaxConnections)
	f.shakes.setMax(limits.MaxHandshakes)
	f.rate.set(limits.HandshakeRate, limits.HandshakeBurst)

	f.mu.Lock()
	defer f.mu.Unlock()
	kept := make(map[string]*port, len(c.config.Listeners))
	for _, o := range c.config.Listeners {
		p := f.ports[o.Address]
		if p == nil {
			p = c.opened[o.Address]
		}
		p.current.Store(newPortState(o))
		kept[o.Address] = p
		if f.stopped {
			p.close()
		}
	}
	for address, p := range f.ports {
		if kept[address] == nil {
			p.close()
		}
	}
	f.ports = kept
	select {
	case f.started <- struct{}{}:
	default: // Run has been told
	}
}

// Discard closes what Prepare opened.
func (c *Change) Discard() {
	defer c.front.prepare.Unlock()
	for _, p := range c.opened {
		p.close()
	}
}

func (f *Front) has(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ports[address] != nil
}

// Run accepts connections until ctx is done. Then it closes the listening
// sockets, lets the handshakes that run come to their end, which their deadline
// bounds, and returns nil: everything that will ever come out of Listener is in
// it. Call http.Server.Shutdown after that. A Front runs once.
func (f *Front) Run(ctx context.Context) error {
	var work sync.WaitGroup
	for running := true; running; {
		f.startPorts(&work)
		select {
		case <-f.started:
		case <-ctx.Done():
			running = false
		}
	}
	f.stop()
	work.Wait()
	return nil
}

// CutHandshakes closes the connections whose handshake is not done yet, and
// those of later ones: for a Run that was told to end and must not wait for
// clients who say nothing.
func (f *Front) CutHandshakes() { f.cut() }

// startPorts starts the accept loops of the ports that have none.
func (f *Front) startPorts(work *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.ports {
		if p.started {
			continue
		}
		p.started = true
		for _, ln := range p.listeners {
			work.Go(func() { p.accept(ln, work) })
		}
	}
}

func (f *Front) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, p := range f.ports {
		p.close()
	}
}

// Status describes the listeners, in the order of their addresses.
func (f *Front) Status() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return statusOf(f.ports)
}

func (o *ListenerOptions) check() error {
	var errs []error
	if o.Address == "" {
		errs = append(errs, errors.New("no address"))
	}
	if o.Table == nil {
		errs = append(errs, errors.New("no table of sites"))
	}
	switch o.ProxyProtocol {
	case ProxyOff:
	case ProxyOptional, ProxyRequired:
		if len(o.TrustedProxies) == 0 {
			errs = append(errs, fmt.Errorf("proxy_protocol %s needs trusted_proxies: without any no header could count", o.ProxyProtocol))
		}
	default:
		errs = append(errs, fmt.Errorf("proxy_protocol mode %d is unknown", o.ProxyProtocol))
	}
	return errors.Join(errs...)
}

// errClosedListener is what Accept returns after Close.
var errClosedListener = fmt.Errorf("front: %w", net.ErrClosed)
