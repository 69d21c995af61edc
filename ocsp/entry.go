package ocsp

import (
	"context"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// entry is one registered certificate.
type entry struct {
	key        [32]byte // SHA-256 of the leaf
	target     *target
	names      []string
	mustStaple bool
	added      time.Time
	problem    State // StateNoResponder or StateNoIssuer; "" when it can be asked about

	refs int                // guarded by Stapler.mu
	stop context.CancelFunc // ends its worker; nil: none was started; guarded by Stapler.mu

	waiters atomic.Int32  // Prepare calls that wait for settled, or are about to
	settled chan struct{} // closed when it is first stapled, or known to be revoked
	fetch   sync.Mutex    // held during a refresh: one at a time

	mu       sync.Mutex // guards what follows
	released bool
	held     *Response // the good one, while it lasts
	revoked  *Response
	told     bool // OnRevoked was called
	given    bool // the other replicas were told of the revocation
	next     time.Time
	failures int
	looks    int // in a row, at the shared store while another replica fetches

	lastFetch time.Time
	lastError error
	last      Reason
}

func (e *entry) id() string { return hex.EncodeToString(e.key[:]) }

// name is the certificate's name in the log.
func (e *entry) name() string {
	if len(e.names) > 0 {
		return e.names[0]
	}
	return e.id()
}

// settle ends the waiting in Prepare. e.mu is held.
func (e *entry) settle() {
	select {
	case <-e.settled:
	default:
		close(e.settled)
	}
}

// due reports when the next refresh is; zero: never.
func (e *entry) due() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.next
}

// newest returns the good response held, nil if there is none.
func (e *entry) newest() *Response {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held
}

// beaten reports whether a good response must not be used because a
// revocation is known. Only a certificateHold can be lifted, by a good answer
// that is newer. e.mu is held.
func (e *entry) beaten(good *Response) bool {
	r := e.revoked
	return r != nil && (!r.onHold() || !good.ThisUpdate.After(r.ThisUpdate))
}

// accept takes over a verified response that was received at the given time
// and plans the next fetch. It reports whether the response is in use now.
func (s *Stapler) accept(e *entry, r *Response, received time.Time) bool {
	switch r.Status {
	case Good:
		return s.acceptGood(e, r, received)
	case Revoked:
		return s.acceptRevoked(e, r)
	}
	return false
}

func (s *Stapler) acceptGood(e *entry, r *Response, received time.Time) bool {
	now := s.opts.Now()
	end := r.End
	if r.NextUpdate.IsZero() {
		end = earliest(end, received.Add(unlimitedLife))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.released || e.beaten(r) || !now.Before(end) {
		return false
	}
	if e.held != nil && r.ThisUpdate.Before(e.held.ThisUpdate) {
		return false
	}
	if e.revoked != nil {
		e.revoked, e.told, e.given = nil, false, false
		s.disk.remove(e, revokedSuffix)
		s.log.Warn("the hold on a certificate was lifted", "certificate", e.name())
	}
	unchanged := e.held != nil && string(e.held.Raw) == string(r.Raw) && !r.NextUpdate.IsZero()
	if !unchanged {
		r = withEnd(r, end)
		e.held = r
		s.cache.PutFor(e.key, &staple{der: r.Raw, expires: end}, end.Sub(now))
	}
	e.next = received.Add(afterSuccess(end.Sub(received), s.random()))
	if unchanged {
		e.next = now.Add(afterSuccess(end.Sub(now), s.random()))
	}
	e.settle()
	return true
}

// withEnd returns r, or a copy of it, that ends at the given time.
func withEnd(r *Response, end time.Time) *Response {
	if r.End.Equal(end) {
		return r
	}
	c := *r
	c.End = end
	return &c
}

// acceptRevoked ends stapling at once. For good, unless it is a hold.
func (s *Stapler) acceptRevoked(e *entry, r *Response) bool {
	now := s.opts.Now()
	e.mu.Lock()
	if e.released {
		e.mu.Unlock()
		return false
	}
	s.cache.Delete(e.key)
	first := e.revoked == nil
	if e.revoked == nil || e.revoked.onHold() {
		e.revoked = r
	}
	e.held = nil
	e.next = time.Time{}
	if e.revoked.onHold() {
		e.next = now.Add(afterSuccess(e.revoked.End.Sub(now), s.random()))
	}
	e.settle()
	e.mu.Unlock()

	if first {
		s.log.Error("certificate is revoked: it is no longer stapled and should be replaced",
			"certificate", e.name(), "sha256", e.id(), "revoked_at", r.RevokedAt, "reason", RevocationReasonString(r.RevocationReason))
	}
	return true
}
