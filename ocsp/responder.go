package ocsp

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds on what one responder is asked.
const (
	stapleSlots      = 4                // exchanges at a time, for staples: nobody waits for them
	checkSlots       = 64               // the same for client certificates: a connection waits
	breakerThreshold = 5                // failures in a row that open the breaker
	breakerMin       = 30 * time.Second // how long it stays open, doubling
	breakerMax       = 10 * time.Minute
)

// responder is what is remembered about one responder (scheme and host): how
// many exchanges run, whether it is down, and whether it wants POST.
type responder struct {
	slots chan struct{}
	post  atomic.Bool // GET failed where POST worked

	mu        sync.Mutex
	failures  int
	openUntil time.Time
	probing   bool // the one exchange allowed after openUntil is under way
}

// responders holds every responder met. Their number is bounded by the URLs
// in certificates that a CA of ours signed.
type responders struct {
	slots int // exchanges at a time with each

	mu   sync.Mutex
	byID map[string]*responder
}

func (r *responders) get(rawURL string) *responder {
	id := rawURL
	if u, err := url.Parse(rawURL); err == nil {
		id = u.Scheme + "://" + u.Host
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string]*responder)
	}
	if r.byID[id] == nil {
		r.byID[id] = &responder{slots: make(chan struct{}, r.slots)}
	}
	return r.byID[id]
}

// acquire waits for a slot. It fails when ctx is done or the breaker is open;
// in the latter case retry says when to come back. A successful acquire is
// followed by one release.
func (r *responder) acquire(ctx context.Context, now func() time.Time) (retry time.Time, err error) {
	if retry, open := r.open(now()); open {
		return retry, refuse(ReasonBreakerOpen, "until %s", stamp(retry))
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, &Error{Reason: ReasonTimeout, Detail: "waiting for others to be answered", Err: ctx.Err()}
	}
	if retry, open := r.enter(now()); open { // it may have opened while we waited
		<-r.slots
		return retry, refuse(ReasonBreakerOpen, "until %s", stamp(retry))
	}
	return time.Time{}, nil
}

// open reports whether nothing may be asked now.
func (r *responder) open(now time.Time) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.openUntil, r.isOpen(now)
}

// isOpen compares with openUntil, from which a clock that was set back may be
// years away. r.mu is held.
func (r *responder) isOpen(now time.Time) bool {
	return now.Before(r.openUntil) && r.openUntil.Sub(now) <= breakerMax
}

// enter admits an exchange: any while the breaker is closed, one probe after
// it was open.
func (r *responder) enter(now time.Time) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failures < breakerThreshold:
		return time.Time{}, false
	case r.isOpen(now):
		return r.openUntil, true
	case r.probing:
		return now.Add(breakerMin), true
	}
	r.probing = true
	return time.Time{}, false
}

// release gives the slot back and counts the outcome. down means that the
// responder as such did not work. It reports whether the breaker just opened,
// and until when.
func (r *responder) release(down bool, now time.Time) (until time.Time, opened bool) {
	<-r.slots
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probing = false
	if !down {
		r.failures, r.openUntil = 0, time.Time{}
		return time.Time{}, false
	}
	r.failures++
	if r.failures < breakerThreshold {
		return time.Time{}, false
	}
	if r.isOpen(now) { // a straggler that was let in before it opened
		return r.openUntil, false
	}
	r.openUntil = now.Add(doubling(breakerMin, breakerMax, r.failures-breakerThreshold))
	return r.openUntil, true
}

// abandon gives the slot back without an outcome: the exchange was given up
// by us.
func (r *responder) abandon() {
	<-r.slots
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probing = false
}

// doubling returns first, doubled n times, at most limit.
func doubling(first, limit time.Duration, n int) time.Duration {
	d := first
	for range n {
		if d >= limit {
			break
		}
		d *= 2
	}
	return min(d, limit)
}
