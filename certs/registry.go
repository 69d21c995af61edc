package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
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
	tried    bool          // one has ended, with whatever result
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

// certificates returns all that are held, be their set installed or not yet.
func (r *registry) certificates() []*certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	certs := make([]*certificate, 0, len(r.held))
	for _, h := range r.held {
		certs = append(certs, h.cert)
	}
	return certs
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
	var all []preparation
	for _, c := range certs {
		all = append(all, r.start(ctx, c))
	}
	for _, p := range all {
		p.wait(ctx)
	}
}

// preparation is one under way.
type preparation struct {
	ended <-chan struct{} // closed with it; nil: there is nothing to wait for
	own   bool            // it was begun for whoever has this
}

// wait returns when it has ended, which it does soon after its own ctx is done.
// Somebody else's is waited for until ctx is done.
func (p preparation) wait(ctx context.Context) {
	switch {
	case p.ended == nil:
	case p.own:
		<-p.ended
	default:
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
	}
}

// start begins to prepare a held certificate that is not prepared yet. How many
// are at it is not bounded here: most of them wait for somebody's answer, and
// would only wait one after the other.
func (r *registry) start(ctx context.Context, c *certificate) preparation {
	if r.prepareHook == nil {
		return preparation{}
	}
	h, ended := r.begin(c)
	if h != nil {
		go r.prepare(ctx, h)
	}
	return preparation{ended, h != nil}
}

// tried reports whether a held certificate need not be waited for.
func (r *registry) tried(c *certificate) bool {
	if r.prepareHook == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[c.whole]
	return h == nil || h.tried
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

// begin marks a certificate as being prepared, and returns what is closed when
// it is. It returns no certificate when somebody else is at it.
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
	return h, h.prepared
}

func (r *registry) prepare(ctx context.Context, h *held) {
	err := r.prepareHook(ctx, h.cert.tls)
	// Who calls it off, as at a stop, does not serve the certificate.
	if err != nil && ctx.Err() != context.Canceled {
		r.log.Warn("certificate is served without having been prepared", "names", h.cert.names, "err", err)
	}
	r.mu.Lock()
	h.state, h.tried = prepared, true
	if err != nil {
		h.state = unprepared
	}
	// It may have been released meanwhile, and nobody else will tell.
	gone := h.refs == 0 && err == nil
	ended := h.prepared
	r.mu.Unlock()
	if gone && r.releaseHook != nil {
		r.releaseHook(h.cert.tls)
	}
	close(ended)
}
