package ocsp

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	awaitedRetry = 2 * time.Second  // while Prepare waits for a must-staple certificate's first staple
	claimRetry   = 5 * time.Second  // while another replica fetches, doubling
	claimRetries = time.Minute      // at most
	storePoll    = time.Minute      // how often the shared store is asked for a revocation or a newer response
	storeJitter  = 30 * time.Second // at most, beyond that
)

// Run fetches and refreshes responses until ctx is done, then returns nil. It
// may be called once at a time.
func (s *Stapler) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return errors.New("ocsp: the stapler is running already")
	}
	s.running = true
	s.mu.Unlock()
	defer s.stopped()

	var workers sync.WaitGroup
	defer workers.Wait()
	prune := time.NewTicker(pruneInterval)
	defer prune.Stop()
	s.prune()
	for {
		for _, start := range s.unstarted(ctx) {
			workers.Go(start)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-prune.C:
			s.prune()
		}
	}
}

func (s *Stapler) stopped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	for _, e := range s.entries {
		e.stop = nil
	}
}

func (s *Stapler) prune() {
	inUse := make(map[string]bool)
	for _, e := range s.list() {
		inUse[e.id()] = true
	}
	s.disk.prune(inUse, s.opts.Now())
}

// unstarted returns a worker for every entry that has none yet. The first
// fetches are spread over a time that grows with their number.
func (s *Stapler) unstarted(ctx context.Context) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var workers []func()
	now := s.opts.Now()
	for _, e := range s.entries {
		if e.stop != nil || e.problem != "" {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		e.stop = cancel
		e.spread(now, s.asked, s.random())
		workers = append(workers, func() {
			defer cancel()
			s.keepFresh(ctx, e)
		})
	}
	return workers
}

// spread plans the first fetch of an entry that has nothing yet, or that is
// overdue since it was stored.
func (e *entry) spread(now time.Time, n int, r float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	revoked := e.revoked != nil && e.next.IsZero()
	if revoked || e.next.After(now) {
		return
	}
	next := now
	if !e.mustStaple {
		next = now.Add(firstDelay(n, r))
	}
	e.plan(now, next)
}

// keepFresh is the worker of one entry.
func (s *Stapler) keepFresh(ctx context.Context, e *entry) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sleep := s.step(ctx, e)
		if ctx.Err() != nil {
			return
		}
		timer.Reset(sleep)
	}
}

// step does what is due for an entry and returns how long it may sleep.
func (s *Stapler) step(ctx context.Context, e *entry) time.Duration {
	s.dropExpired(e)
	s.disk.again(e)
	if s.shared.look(ctx, s, e) {
		s.disk.save(e)
	}
	s.shared.warn(ctx, e)
	now := s.opts.Now()
	if next := e.due(now); !next.IsZero() && !now.Before(next) {
		s.refresh(ctx, e)
	}
	s.tell(e)
	sleep := longestSleep
	if s.shared.store != nil {
		sleep = storePoll + time.Duration(s.random()*float64(storeJitter))
	}
	now = s.opts.Now()
	if next := e.due(now); !next.IsZero() {
		sleep = min(sleep, next.Sub(now))
	}
	if end := e.end(); !end.IsZero() {
		sleep = min(sleep, end.Sub(now))
	}
	return max(sleep, 0)
}

// tell calls OnRevoked, once for a revoked certificate. Only workers do: their
// caller holds no lock, and is nobody who waits in Prepare.
func (s *Stapler) tell(e *entry) {
	e.mu.Lock()
	due := e.revoked != nil && !e.told
	e.told = e.told || due
	e.mu.Unlock()
	if due && s.opts.OnRevoked != nil {
		s.opts.OnRevoked(e.target.leaf)
	}
}

// dropExpired forgets a response whose end has come. It did not count any more;
// now it takes up no room either.
func (s *Stapler) dropExpired(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := s.opts.Now()
	if r := e.revoked; r.onHold() && !now.Before(r.End) {
		e.revoked = nil
		s.disk.remove(e, revokedSuffix)
		s.log.Warn("the hold on a certificate has ended without a newer response", "certificate", e.name(), "err", e.lastError)
	}
	if e.held == nil || now.Before(e.held.End) {
		return
	}
	e.held = nil
	s.cache.Delete(e.key)
	if e.mustStaple {
		s.log.Error("staple of a must-staple certificate has expired", "certificate", e.name(), "err", e.lastError)
	} else {
		s.log.Warn("staple has expired", "certificate", e.name(), "err", e.lastError)
	}
}

// refresh fetches a response for e, if it is due, and plans the next fetch.
func (s *Stapler) refresh(ctx context.Context, e *entry) {
	e.fetch.Lock()
	defer e.fetch.Unlock()
	if now := s.opts.Now(); now.Before(e.due(now)) {
		return // another caller was faster
	}
	if !s.shared.claim(ctx, e) && s.leaveToOther(e) {
		return
	}
	r, err := s.fetcher.fetch(ctx, e.target, e.weigh)
	if err != nil && stopped(ctx) {
		return
	}
	now := s.opts.Now()
	s.record(e, r, err, now)
	if err == nil && s.accept(e, r, now) {
		s.disk.save(e)
		s.shared.give(ctx, e, r, now)
		return
	}
	s.planRetry(e, err, now)
}

// leaveToOther plans the next look at what the replica that fetches has found.
// It reports false when that has had time enough for those who wait in Prepare.
func (s *Stapler) leaveToOther(e *entry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	awaited := e.waiters.Load() > 0
	if awaited && e.looks > 0 {
		return false
	}
	wait := doubling(claimRetry, claimRetries, e.looks)
	if awaited {
		wait = awaitedRetry
	}
	e.looks++
	now := s.opts.Now()
	e.plan(now, now.Add(wait))
	return true
}

// record notes the outcome of a fetch.
func (s *Stapler) record(e *entry, r *Response, err error, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastFetch = now
	before := e.last
	e.lastError = err
	if err != nil {
		e.last = ReasonOf(err)
	} else {
		e.last = Reason(r.Status.String())
		if r.Status == Unknown {
			e.lastError = refuse(ResultUnknown, "")
		}
	}
	if e.lastError == nil {
		e.failures = 0
		s.log.Debug("ocsp response fetched", "certificate", e.name(), "status", string(e.last))
		return
	}
	s.logFailure(e, before)
}

// logFailure says once that a certificate's fetches fail, and again when the
// reason changes; the rest is detail. e.mu is held.
func (s *Stapler) logFailure(e *entry, before Reason) {
	log := s.log.Warn
	young := e.last == ReasonUnauthorized && s.opts.Now().Sub(e.added) < firstHour
	if e.last == before || e.last == ReasonBreakerOpen || young {
		log = s.log.Debug
	}
	log("ocsp response not fetched", "certificate", e.name(), "reason", string(e.last), "err", e.lastError)
}

// planRetry plans the next fetch after one that brought nothing to staple: a
// failure, or the answer unknown. However long a pause the responder or the
// back-off wants, half of the time that a staple has left is not let pass.
func (s *Stapler) planRetry(e *entry, err error, now time.Time) {
	hint := retryHint(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	var wait time.Duration
	switch {
	case ReasonOf(err) == ReasonBreakerOpen:
		wait = max(0, hint.Sub(now)) + time.Duration(s.random()*float64(breakerMin))
		hint = time.Time{}
	case ReasonOf(err) == ReasonUnauthorized:
		e.failures++
		wait = afterUnauthorized(now.Sub(e.added), now.Sub(e.target.leaf.NotBefore), s.random())
	default:
		e.failures++
		wait = afterFailure(e.failures, s.random())
	}
	if e.waiters.Load() > 0 {
		wait = min(wait, awaitedRetry)
	}
	next := latest(now.Add(wait), hint)
	if e.held != nil {
		next = earliest(next, now.Add(afterSuccess(e.held.End.Sub(now), s.random())))
	}
	e.plan(now, next)
}
