package ocsp

import (
	"bytes"
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
	revoked  *Response // a hold: while it lasts
	good     time.Time // thisUpdate of the newest good one taken: no older hold counts
	hold     time.Time // thisUpdate of the newest hold taken: nothing older counts
	told     bool      // OnRevoked was called
	given    bool      // the other replicas were told of the revocation
	next     time.Time // of the fetches; zero: none is planned
	planned  time.Time // when next was decided
	failures int
	looks    int       // in a row, at the shared store while another replica fetches
	claimed  time.Time // until then the claim on its fetches is ours

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

// plan sets when the next refresh is; zero: never. e.mu is held.
func (e *entry) plan(now, next time.Time) { e.planned, e.next = now, next }

// due reports when the next refresh is; zero: never. It is at once when the
// clock was set back since that was planned: nobody knows by how much.
func (e *entry) due(now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.next.IsZero() && now.Before(e.planned) {
		return now
	}
	return e.next
}

// current returns what counts until its end, the good response or the hold;
// nil if there is neither.
// e.mu is held.
func (e *entry) current() *Response {
	if e.held == nil && e.revoked.onHold() {
		return e.revoked
	}
	return e.held
}

// beaten reports whether something known keeps r from counting. A revocation is
// beaten by nothing and beats everything; of a good response and a hold, which
// may be taken back, the newer one counts, and the hold if neither is. That the
// newer one has ended makes the older one no truer. e.mu is held.
func (e *entry) beaten(r *Response) bool {
	switch {
	case r.final():
		return false
	case e.revoked.final():
		return true
	case r.onHold():
		return r.ThisUpdate.Before(e.good) || r.ThisUpdate.Before(e.hold)
	}
	return !e.hold.IsZero() && !r.ThisUpdate.After(e.hold)
}

// weigh reports why an answer does not count beside what is known.
func (e *entry) weigh(r *Response) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.current(); c != nil && !r.final() && r.ThisUpdate.Before(c.ThisUpdate) {
		return refuse(ReasonOlder, "thisUpdate %s, held is one of %s", stamp(r.ThisUpdate), stamp(c.ThisUpdate))
	}
	if r.Status != Unknown && e.beaten(r) {
		return refuse(ReasonOlder, "thisUpdate %s: something newer was known", stamp(r.ThisUpdate))
	}
	return nil
}

// end returns when what counts ends, zero if it does not.
func (e *entry) end() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.current(); c != nil {
		return c.End
	}
	return time.Time{}
}

// accept takes over a verified response that was received at the given time,
// by which its end is set, and plans the next fetch. It reports whether the response is in use now.
func (s *Stapler) accept(e *entry, r *Response, received time.Time) bool {
	r = r.since(received)
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.released || e.beaten(r) || !now.Before(r.End) {
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
	e.good = latest(e.good, r.ThisUpdate)
	// One that is received anew may last for longer than it did.
	if e.held == nil || !bytes.Equal(e.held.Raw, r.Raw) || r.End.After(e.held.End) {
		e.held = r
		s.cache.PutFor(e.key, &staple{der: r.Raw, expires: r.End}, r.End.Sub(now))
	}
	e.plan(now, received.Add(afterSuccess(e.held.End.Sub(received), s.random())))
	e.settle()
	return true
}

// acceptRevoked ends stapling at once: for good, or while a hold lasts.
func (s *Stapler) acceptRevoked(e *entry, r *Response) bool {
	now := s.opts.Now()
	e.mu.Lock()
	if e.released || e.beaten(r) || r.onHold() && !now.Before(r.End) {
		e.mu.Unlock()
		return false
	}
	s.cache.Delete(e.key)
	first := e.revoked == nil
	if first || e.revoked.onHold() {
		e.revoked = r
	}
	e.held = nil
	e.plan(now, time.Time{})
	if e.revoked.onHold() {
		e.hold = r.ThisUpdate
		e.plan(now, now.Add(afterSuccess(r.End.Sub(now), s.random())))
	}
	e.settle()
	e.mu.Unlock()

	if first {
		s.log.Error("certificate is revoked: it is no longer stapled and should be replaced",
			"certificate", e.name(), "sha256", e.id(), "revoked_at", r.RevokedAt, "reason", RevocationReasonString(r.RevocationReason))
	}
	return true
}
