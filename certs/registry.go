package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"
)

// registry knows every certificate that some set uses, so that the same file
// contents are the same certificate over all reloads, and tells the stapler of
// each exactly once.
type registry struct {
	prepareHook func(context.Context, *tls.Certificate) error
	releaseHook func(*tls.Certificate)
	log         *slog.Logger

	mu   sync.Mutex
	held map[[32]byte]*held // by certificate.whole
}

type held struct {
	cert     *certificate
	refs     int
	state    prepareState
	prepared chan struct{} // closed when a preparation under way has ended
	revoked  bool          // word came that it is
}

type prepareState uint8

const (
	unprepared prepareState = iota
	preparing
	prepared
)

// acquire returns the certificate that is held for the same chain, or holds c
// as a new one.
func (r *registry) acquire(c *certificate) (_ *certificate, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.held[c.whole]; h != nil {
		h.refs++
		return h.cert, false
	}
	if r.held == nil {
		r.held = make(map[[32]byte]*held)
	}
	r.held[c.whole] = &held{cert: c, refs: 1}
	return c, true
}

// revoke notes that the certificate with that leaf is revoked, which may become
// known while it is prepared, before any slot has it.
func (r *registry) revoke(id [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.held {
		if h.cert.id == id {
			h.revoked = true
		}
	}
}

func (r *registry) isRevoked(c *certificate) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[c.whole]
	return h != nil && h.revoked
}

// release undoes one acquire.
func (r *registry) release(c *certificate) {
	r.mu.Lock()
	h := r.held[c.whole]
	h.refs--
	last := h.refs == 0
	tell := last && h.state == prepared
	if last {
		delete(r.held, c.whole)
	}
	r.mu.Unlock()
	if tell && r.releaseHook != nil {
		r.releaseHook(c.tls)
	}
}

// prepareAll prepares those of the held certificates that are not yet, side by
// side, and returns when all are. What fails is tried again by the next call.
func (r *registry) prepareAll(ctx context.Context, certs []*certificate) {
	if r.prepareHook == nil {
		return
	}
	var g errgroup.Group
	g.SetLimit(64)
	for _, c := range certs {
		h, wait := r.begin(c)
		switch {
		case h != nil:
			g.Go(func() error {
				r.prepare(ctx, h)
				return nil
			})
		case wait != nil:
			g.Go(func() error {
				select {
				case <-wait:
				case <-ctx.Done():
				}
				return nil
			})
		}
	}
	g.Wait()
}

// unprepared returns those certificates that nobody has prepared or is
// preparing.
func (r *registry) unprepared(certs []*certificate) []*certificate {
	if r.prepareHook == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []*certificate
	for _, c := range certs {
		if h := r.held[c.whole]; h != nil && h.state == unprepared {
			left = append(left, c)
		}
	}
	return left
}

// begin marks a certificate as being prepared. It returns nil, and what to
// wait for, when somebody else is at it.
func (r *registry) begin(c *certificate) (*held, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[c.whole]
	switch {
	case h == nil || h.state == prepared:
		return nil, nil
	case h.state == preparing:
		return nil, h.prepared
	}
	h.state = preparing
	h.prepared = make(chan struct{})
	return h, nil
}

func (r *registry) prepare(ctx context.Context, h *held) {
	err := r.prepareHook(ctx, h.cert.tls)
	if err != nil {
		r.log.Warn("certificate is served without having been prepared", "names", h.cert.names, "err", err)
	}
	r.mu.Lock()
	h.state = prepared
	if err != nil {
		h.state = unprepared
	}
	// It may have been released meanwhile, and nobody else will tell.
	gone := h.refs == 0 && err == nil
	close(h.prepared)
	r.mu.Unlock()
	if gone && r.releaseHook != nil {
		r.releaseHook(h.cert.tls)
	}
}
