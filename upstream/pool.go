package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pool is an [http.RoundTripper] over several backends. Make it with [New]; it is
// safe for concurrent use.
type Pool struct {
	opts     Options
	backends []*backend
	next     atomic.Uint64 // turn of round robin

	inFlight atomic.Int64 // of this pool alone, where records count those of its predecessors too
	retiring atomic.Bool
	drained  chan struct{} // gets a value when a retiring pool falls idle
}

var _ http.RoundTripper = (*Pool)(nil)

// New returns a pool. It validates the options and neither resolves nor dials.
func New(opts Options) (*Pool, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("upstream %q: %w", opts.Name, err)
	}
	opts.setDefaults()
	p := &Pool{opts: opts, drained: make(chan struct{}, 1)}
	var errs []error
	for i, cfg := range opts.Backends {
		b, err := newBackend(p, cfg)
		if err != nil {
			errs = append(errs, fmt.Errorf("upstream %q: backends[%d]: %w", opts.Name, i, err))
			continue
		}
		if slices.ContainsFunc(p.backends, func(o *backend) bool { return o.url == b.url }) {
			errs = append(errs, fmt.Errorf("upstream %q: backends[%d]: %q is listed twice", opts.Name, i, b.url))
		}
		p.backends = append(p.backends, b)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, nil
}

func (o *Options) validate() error {
	switch {
	case len(o.Backends) == 0:
		return errors.New("no backends")
	case o.Balance < RoundRobin || o.Balance > RandomTwo:
		return fmt.Errorf("unknown balance %d", o.Balance)
	case o.MaxRequests < 0:
		return fmt.Errorf("max requests %d is negative", o.MaxRequests)
	case o.DialTimeout < 0 || o.IdleTimeout < 0 || o.EjectFor < 0:
		return errors.New("a dial timeout, idle timeout or ejection time is negative")
	}
	return o.Health.validate()
}

func (o *Options) setDefaults() {
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.ResponseHeaderTimeout = cmp.Or(o.ResponseHeaderTimeout, time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.MaxIdle = cmp.Or(o.MaxIdle, 256)
	o.Retries = max(cmp.Or(o.Retries, 2), 0)
	o.EjectAfter = cmp.Or(o.EjectAfter, 3)
	o.EjectFor = cmp.Or(o.EjectFor, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.TLS == nil {
		plain := new(tls.Config)
		o.TLS = func() *tls.Config { return plain }
	}
	if o.dial == nil {
		o.dial = new(net.Dialer).DialContext
	}
	o.Health.setDefaults()
}

// Run makes health checks until ctx is done, and returns nil. A pool with neither
// health checks nor a predecessor works without it. The Run of a predecessor ends
// first: from here on what the ledger has is judged by the settings of this pool.
func (p *Pool) Run(ctx context.Context) error {
	for _, b := range p.backends {
		b.takeOver(termsOf(&p.opts))
	}
	var wg sync.WaitGroup
	if p.opts.Health.Path != "" {
		for _, b := range p.backends {
			if b.checker != nil {
				wg.Go(func() { b.checkLoop(ctx) })
			}
		}
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// RoundTrip sends req to a backend that is up, and to another one if the
// connection could not be made. Errors wrap [ErrUnavailable], [ErrBusy] or
// [ErrTimeout] where they apply.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	trace, _ := req.Context().Value(TraceKey{}).(*Trace)
	if trace != nil {
		trace.Upstream = p.opts.Name
	}
	shared := newSharedBody(req)
	res, err := p.tryBackends(req, shared, trace)
	if err != nil {
		shared.close()
		return nil, fmt.Errorf("upstream %q: %w", p.opts.Name, err)
	}
	return res, nil
}

// tryBackends tries one backend after the other while that is harmless.
func (p *Pool) tryBackends(req *http.Request, shared *sharedBody, trace *Trace) (*http.Response, error) {
	var tried []*backend
	var last error
	for try := 0; ; try++ {
		b, err := p.acquire(tried)
		if err != nil {
			return nil, cmp.Or(last, err)
		}
		if trace != nil {
			trace.Backend, trace.Tries = b.url, try+1
		}
		res, err := b.send(req, shared)
		if err == nil {
			return res, nil
		}
		last = fmt.Errorf("backend %q: %w", b.url, err)
		if try >= p.opts.Retries || req.Context().Err() != nil || !nothingSent(err, shared) {
			return nil, last
		}
		tried = append(tried, b)
	}
}

// nothingSent reports whether a failed try left no trace at the backend. The
// transport itself repeats requests that met a kept connection just closed, where
// that is safe; what is left are connections that were never made.
func nothingSent(err error, shared *sharedBody) bool {
	_, connecting := errors.AsType[*connectError](err)
	return connecting && !shared.wasRead()
}

// connectError is a failure before any byte of a request was sent: of resolving,
// dialing or the TLS handshake.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// withTimeout makes time-outs of the transport recognizable.
func withTimeout(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err // the client's doing
	}
	ne, ok := errors.AsType[net.Error](err)
	if ok && ne.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

// Status describes the pool now, backends in the order of the options.
func (p *Pool) Status() Status {
	s := Status{Name: p.opts.Name, Backends: make([]BackendStatus, 0, len(p.backends))}
	for _, b := range p.backends {
		s.Backends = append(s.Backends, b.status())
	}
	if !slices.ContainsFunc(s.Backends, BackendStatus.Up) {
		s.admitEjected()
	}
	return s
}

// Retire waits until no request is in flight, or ctx is done, and closes the
// connections that are not in use. Call it once, when no more requests are sent;
// it returns the context's error if requests were left.
func (p *Pool) Retire(ctx context.Context) error {
	defer p.CloseIdleConnections()
	p.retiring.Store(true)
	for p.inFlight.Load() > 0 {
		select {
		case <-p.drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// CloseIdleConnections closes the connections that are not in use.
func (p *Pool) CloseIdleConnections() {
	for _, b := range p.backends {
		b.closeIdle()
	}
}
