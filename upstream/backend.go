package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// backend is one server of a pool.
type backend struct {
	*record
	pool *Pool
	url  string // as configured
	addr address

	rt      http.RoundTripper // most requests
	grpc    http.RoundTripper // without a bound on the wait for headers
	upgrade http.RoundTripper // HTTP/1.1 only
	checker http.RoundTripper // nil: is not checked
}

func newBackend(p *Pool, cfg Backend) (*backend, error) {
	b := &backend{record: p.opts.Ledger.record(p.opts.Name, cfg.URL), pool: p, url: cfg.URL}
	if cfg.Transport != nil {
		if cfg.URL == "" {
			return nil, errors.New("a backend with a transport of its own needs a name as URL")
		}
		b.rt, b.grpc, b.upgrade = cfg.Transport, cfg.Transport, cfg.Transport
		return b, nil
	}
	addr, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	b.addr = addr
	b.setTransports(p.opts)
	return b, nil
}

// send makes one try and keeps the books. The backend has been acquired; it is
// released when the response has ended.
func (b *backend) send(req *http.Request, shared *sharedBody) (*http.Response, error) {
	b.requests.Add(1)
	out := new(*req)
	if b.addr.scheme != "" {
		u := *req.URL
		u.Scheme, u.Host = b.addr.scheme, b.addr.host
		out.URL = &u
	}
	try := shared.try()
	if try != nil {
		out.Body = try
	}
	res, err := b.transportFor(req).RoundTrip(out)
	if err != nil {
		b.release()
		try.Close()
		return nil, b.failed(req, err)
	}
	try.settle()
	res.Body = newResponseBody(b, res)
	return res, nil
}

func (b *backend) failed(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return err
	}
	b.failures.Add(1)
	b.noteError(err)
	return withTimeout(req.Context(), err)
}

// transportFor chooses among the transports of the backend.
func (b *backend) transportFor(req *http.Request) http.RoundTripper {
	if _, ok := req.Header["Upgrade"]; ok {
		return b.upgrade
	}
	if ct := req.Header["Content-Type"]; len(ct) == 1 && strings.HasPrefix(ct[0], "application/grpc") {
		return b.grpc
	}
	return b.rt
}

// tryAcquire counts one more request in flight unless the backend is full.
func (b *backend) tryAcquire() bool {
	n := b.inFlight.Add(1)
	b.pool.inFlight.Add(1)
	if limit := b.pool.opts.MaxRequests; limit > 0 && n > int64(limit) {
		b.release()
		return false
	}
	return true
}

func (b *backend) release() {
	b.inFlight.Add(-1)
	if b.pool.inFlight.Add(-1) == 0 && b.pool.retiring.Load() {
		select {
		case b.pool.drained <- struct{}{}:
		default:
		}
	}
}

// dialed learns from one connection attempt.
func (b *backend) dialed(err error) {
	if err == nil {
		if b.dialFails.Load() != 0 {
			b.dialFails.Store(0)
		}
		if b.ejectedUntil.Load() != 0 && b.ejectedUntil.Swap(0) != 0 {
			b.pool.opts.Logger.Info("backend accepts connections again", "upstream", b.pool.opts.Name, "backend", b.url)
		}
		return
	}
	if errors.Is(err, context.Canceled) {
		return // the transport no longer needs the connection
	}
	after := b.pool.opts.EjectAfter
	if n := b.dialFails.Add(1); after < 0 || int(n) < after {
		return
	}
	if b.ejectedUntil.Swap(time.Now().Add(b.pool.opts.EjectFor).UnixNano()) == 0 {
		b.pool.opts.Logger.Warn("backend ejected", "upstream", b.pool.opts.Name, "backend", b.url,
			"for", b.pool.opts.EjectFor, "err", err)
	}
}

func (b *backend) noteError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastErr = err.Error()
}

func (b *backend) status() BackendStatus {
	s := BackendStatus{
		Backend:  b.url,
		State:    StateUp,
		InFlight: b.inFlight.Load(),
		Requests: b.requests.Load(),
		Failures: b.failures.Load(),
	}
	switch {
	case b.down.Load():
		s.State = StateDown
	case b.ejected():
		s.State = StateEjected
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.LastError, s.LastCheck, s.Since = b.lastErr, b.lastCheck, b.since
	return s
}

func (b *backend) closeIdle() {
	for _, rt := range []http.RoundTripper{b.rt, b.grpc, b.upgrade, b.checker} {
		if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// String names the backend in errors.
func (b *backend) String() string { return fmt.Sprintf("backend %q", b.url) }
