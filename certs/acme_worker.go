package certs

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

const (
	// storageInterval is how often the storage is looked at for a certificate
	// that another replica renewed.
	storageInterval = 10 * time.Minute
	// ariInterval is used when a CA does not say when to ask again, and
	// ariRetry after a failure.
	ariInterval = 6 * time.Hour
	ariRetry    = time.Hour
	// rateLimited is the least wait after a CA has said that it was asked too
	// often.
	rateLimited = time.Hour
)

// acmeWorker looks after one host: it loads, obtains and renews its
// certificate. All fields belong to its goroutine.
type acmeWorker struct {
	*acmeRunner
	host *acmeHost

	stored   *stored // what the storage had when last looked at; nil: nothing
	ordering bool    // an attempt is being made
	stuck    bool    // the last attempt succeeded but renewed nothing
	failures int
	retryAt  time.Time // no attempt before; zero: none has failed
	ariAt    time.Time // when to ask for renewal information; zero: at once
	ariSeen  time.Time // the stored time for that
	lookAt   time.Time // when to look at the storage
}

func (w *acmeWorker) run() {
	for {
		if err := w.look(); err != nil && !w.endure(err) {
			return
		}
		w.askARI()
		if w.due(time.Now()) {
			if !w.obtain() {
				return
			}
			continue
		}
		wait := time.NewTimer(time.Until(w.next()))
		select {
		case <-w.ctx.Done():
			wait.Stop()
			return
		case <-w.host.wake:
			wait.Stop()
		case <-wait.C:
		}
	}
}

// look takes over what the storage has. The error is that of a storage that
// cannot be reached.
func (w *acmeWorker) look() error {
	now := time.Now()
	w.lookAt = now.Add(jitter(storageInterval))
	st, err := w.source.load(w.ctx, w.host.name)
	if st == nil && err == nil {
		if err = w.source.importLocal(w.ctx, w.host.name); err == nil {
			st, err = w.source.load(w.ctx, w.host.name)
		}
	}
	if w.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		w.store.log.Warn("stored certificate was not loaded", "name", w.host.name, "err", err)
	}
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	w.stored = st
	if st != nil {
		w.take(st)
		w.noticeRevoked()
		return nil
	}
	w.standIn()
	return nil
}

// standIn serves the certificate of an issuer given up, if there is one, while
// none of the configured ones has issued.
func (w *acmeWorker) standIn() {
	s, sl := w.store, w.host.slot
	s.mu.Lock()
	served := sl.cert != nil
	s.mu.Unlock()
	if served {
		return
	}
	if c := w.source.former(w.ctx, w.host.name, w.source.places(w.ctx)); c != nil {
		held, _ := s.registry.acquire(c)
		s.replace(w.ctx, w.source, sl, held)
	}
}

// noticeRevoked has the certificate replaced whose revocation became known
// before it was in use, and so before [Store.Renew] could find it.
func (w *acmeWorker) noticeRevoked() {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := w.host.slot.cert; c != nil && s.registry.isRevoked(c) {
		w.host.revoked = c
	}
}

// endure goes on without the storage: what was known is all there is, and it is
// worth a look sooner than usual. A name that is wanted on demand is tried again
// when somebody asks for it: endure then reports false.
func (w *acmeWorker) endure(err error) bool {
	now := time.Now()
	w.lookAt = now.Add(jitter(w.store.seams.backoff(1)))
	w.retryAt = w.lookAt
	served := w.report(err, now)
	return served || !w.onDemand()
}

func (w *acmeWorker) onDemand() bool {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.host.slot.acme.OnDemand
}

// take serves a stored certificate if it is another one than before.
func (w *acmeWorker) take(st *stored) {
	s, sl := w.store, w.host.slot
	held, fresh := s.registry.acquire(st.cert)
	st.cert = held
	s.mu.Lock()
	same := sl.cert == held
	sl.acme.Directory = st.directory
	if same && w.failures == 0 {
		// Else the last attempt to replace it failed, which stays in the status.
		sl.acme.State = ACMEValid
		sl.err = nil
	}
	s.mu.Unlock()
	if same {
		s.registry.release(held)
		return
	}
	if !s.replace(w.ctx, w.source, sl, held) {
		return
	}
	w.failures, w.retryAt, w.ariAt = 0, time.Time{}, time.Time{}
	s.mu.Lock()
	sl.acme.State, sl.acme.Failures = ACMEValid, 0
	sl.reminded = time.Time{}
	s.mu.Unlock()
	if fresh && !w.ordering {
		s.log.Info("certificate loaded", "name", w.host.name, "not_after", held.tls.Leaf.NotAfter, "issuer", st.directory)
	}
}

// askARI asks the CA when it wants the certificate renewed (RFC 9773).
func (w *acmeWorker) askARI() {
	now := time.Now()
	st := w.stored
	if w.source.config.DisableARI || st == nil || now.Before(w.ariAt) {
		return
	}
	if again := st.ari.RetryAfter; again != nil && !again.Equal(w.ariSeen) {
		// Asked already, with the order or by another replica.
		w.ariSeen = *again
		if w.ariAt = clampTime(*again, now, now.Add(w.store.seams.ariMax)); now.Before(w.ariAt) {
			return
		}
	}
	issuer := w.issuer(st)
	if issuer == nil {
		w.ariAt = now.Add(ariInterval)
		return
	}
	info, err := issuer.GetRenewalInfo(w.ctx, certmagic.Certificate{Certificate: tls.Certificate{Leaf: st.cert.tls.Leaf}})
	switch {
	case errors.Is(err, acme.ErrUnsupported):
		w.ariAt = now.Add(jitter(24 * time.Hour))
		return
	case err != nil:
		w.ariAt = now.Add(jitter(ariRetry))
		w.store.log.Debug("renewal information was not obtained", "name", w.host.name, "err", err)
		return
	}
	if info.SameWindow(st.ari) && !st.ari.SelectedTime.IsZero() {
		info.SelectedTime = st.ari.SelectedTime // chosen once, by whichever replica
	} else if st.ari.HasWindow() {
		w.store.log.Info("the CA moved the renewal of a certificate", "name", w.host.name,
			"window_start", info.SuggestedWindow.Start, "window_end", info.SuggestedWindow.End, "explanation", info.ExplanationURL)
	}
	// The CA's wish is followed within bounds (RFC 9773, section 4.3.2).
	if info.RetryAfter == nil {
		at := now.Add(ariInterval)
		info.RetryAfter = &at
	}
	at := clampTime(*info.RetryAfter, now.Add(w.store.seams.ariMin), now.Add(w.store.seams.ariMax))
	info.RetryAfter, w.ariAt, w.ariSeen = &at, at, at
	st.ari = info
	if err := w.source.saveARI(w.ctx, w.host.name, st); err != nil && w.ctx.Err() == nil {
		w.store.log.Warn("renewal information was not stored", "name", w.host.name, "err", err)
	}
}

// issuer returns the library's issuer that issued a stored certificate.
func (w *acmeWorker) issuer(st *stored) *certmagic.ACMEIssuer {
	for _, is := range w.magic.config.Issuers {
		if acmeIssuer, ok := is.(*certmagic.ACMEIssuer); ok && acmeIssuer.CA == st.directory {
			return acmeIssuer
		}
	}
	return nil
}

// renewAt is when a stored certificate is renewed: when a third of its
// lifetime is left, or earlier if the CA wants it so.
func (st *stored) renewAt() time.Time {
	leaf := st.cert.tls.Leaf
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	// A second later than the library, which must agree when it holds the
	// lock.
	at := leaf.NotAfter.Add(-time.Duration(float64(lifetime)*certmagic.DefaultRenewalWindowRatio) + time.Second)
	if ari := st.ari.SelectedTime; !ari.IsZero() && ari.Before(at) {
		return ari
	}
	return at
}

// dueAt is when the next attempt is to be made.
func (w *acmeWorker) dueAt() time.Time {
	var at time.Time // a name without certificate, or with a revoked one: at once
	w.store.mu.Lock()
	revoked := w.host.revoked
	w.store.mu.Unlock()
	if w.stored != nil && (revoked == nil || w.stored.cert.id != revoked.id) {
		at = w.stored.renewAt()
	}
	if w.retryAt.After(at) {
		at = w.retryAt
	}
	return at
}

func (w *acmeWorker) due(now time.Time) bool { return !now.Before(w.dueAt()) }

// next says in the status what happens next, and returns when to wake up.
func (w *acmeWorker) next() time.Time {
	at := w.dueAt()
	s, sl := w.store, w.host.slot
	s.mu.Lock()
	sl.next, sl.nextAt = "renewal", at
	if w.stored == nil || w.failures > 0 {
		sl.next = "next attempt"
	}
	if w.stored != nil {
		ari := w.stored.ari
		sl.acme.WindowStart, sl.acme.WindowEnd = ari.SuggestedWindow.Start, ari.SuggestedWindow.End
		sl.acme.RenewAt, sl.acme.Explanation = ari.SelectedTime, ari.ExplanationURL
	}
	s.mu.Unlock()
	if w.lookAt.Before(at) {
		at = w.lookAt
	}
	if !w.source.config.DisableARI && w.stored != nil && w.ariAt.Before(at) {
		at = w.ariAt
	}
	return at
}

// obtain makes one attempt. It reports false when the worker is to end.
func (w *acmeWorker) obtain() bool {
	if err := w.orders.Acquire(w.ctx, 1); err != nil {
		return false
	}
	defer w.orders.Release(1)
	s, sl := w.store, w.host.slot
	s.mu.Lock()
	revoked := w.host.revoked
	sl.acme.State, sl.next, sl.nextAt = ACMEObtaining, "order under way", time.Now()
	onDemand := sl.acme.OnDemand
	s.mu.Unlock()
	started := time.Now()
	err := w.attempt(revoked, onDemand)
	if w.ctx.Err() != nil {
		return false
	}
	if err != nil {
		return w.failed(err, onDemand)
	}
	before := w.stored
	w.ordering = true
	err = w.look()
	w.ordering = false
	switch {
	case err != nil:
		return w.failed(err, onDemand)
	case w.stored == nil:
		return w.failed(errors.New("the storage does not have the certificate that was just stored"), onDemand)
	case before != nil && before.cert.id == w.stored.cert.id:
		// The library sees no need for a renewal, as the storage lacks the
		// renewal information that we have: insist.
		w.stuck = true
		w.retryAt = time.Now().Add(jitter(s.seams.backoff(1)))
		return true
	}
	s.stats.obtained.Add(1)
	w.failures, w.retryAt, w.stuck = 0, time.Time{}, false
	s.mu.Lock()
	sl.err, sl.acme.Failures = nil, 0
	if w.host.revoked != nil && w.stored.cert.id != w.host.revoked.id {
		w.host.revoked = nil
	}
	s.mu.Unlock()
	s.log.Info("certificate obtained", "name", w.host.name, "issuer", w.stored.directory,
		"not_after", w.stored.cert.tls.Leaf.NotAfter, "seconds", time.Since(started).Seconds())
	return true
}

func (w *acmeWorker) attempt(revoked *certificate, onDemand bool) error {
	asked := w.host.asked
	w.host.asked = false
	if onDemand && !asked {
		// What was allowed once need not be for ever.
		if err := w.source.demand.ask(w.ctx, w.source.config.OnDemand, w.host.name); err != nil {
			return err
		}
	}
	if err := w.source.discardDamaged(w.ctx, w.host.name); err != nil {
		return err
	}
	err := w.order(revoked)
	if err != nil && w.ctx.Err() == nil {
		// The library does not say which file of an account it cannot read.
		err = errors.Join(err, w.source.damagedAccounts(w.ctx))
	}
	return err
}

// order has the library obtain or renew, and keep the outcome in the storage.
func (w *acmeWorker) order(revoked *certificate) error {
	if revoked != nil && (w.stored == nil || w.stored.cert.id == revoked.id) {
		return w.replaceRevoked(revoked)
	}
	// It obtains if there is nothing.
	return try(w.ctx, w.magic.config, func(ctx context.Context, c *certmagic.Config) error {
		return c.RenewCertAsync(ctx, w.host.name, w.stuck)
	})
}

// replaceRevoked obtains a certificate with a new key, once for all replicas.
func (w *acmeWorker) replaceRevoked(revoked *certificate) error {
	lock := "revoked_" + hex.EncodeToString(revoked.id[:])
	return try(w.ctx, w.magic.fresh, func(ctx context.Context, c *certmagic.Config) error {
		if err := w.source.storage.Lock(ctx, lock); err != nil {
			return err
		}
		defer w.source.storage.Unlock(context.WithoutCancel(ctx), lock)
		st, err := w.source.load(ctx, w.host.name)
		if err == nil && st != nil && st.cert.id != revoked.id {
			return nil // another replica was faster
		}
		return c.RenewCertAsync(ctx, w.host.name, true)
	})
}

// failed notes a failure and when to try again. A name that was tried on
// demand is tried again when somebody asks for it. It reports false when the
// worker is to end.
func (w *acmeWorker) failed(err error, onDemand bool) bool {
	now := time.Now()
	w.failures++
	wait := jitter(w.store.seams.backoff(w.failures))
	if problem, ok := errors.AsType[acme.Problem](err); ok &&
		(problem.Status == http.StatusTooManyRequests || problem.Type == acme.ProblemTypeRateLimited) {
		wait = max(wait, rateLimited)
	}
	w.retryAt = now.Add(wait)
	w.store.stats.obtainFailures.Add(1)
	served := w.report(err, now)
	w.store.log.Error("certificate was not obtained", "name", w.host.name, "served", served,
		"failures", w.failures, "next_attempt", w.retryAt, "err", err)
	if onDemand && served && w.expired(now) {
		w.store.drop(w.source, w.host)
		return false
	}
	return !onDemand || served
}

// expired reports whether what is served has expired.
func (w *acmeWorker) expired(now time.Time) bool {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	c := w.host.slot.cert
	return c != nil && now.After(c.tls.Leaf.NotAfter)
}

// report shows an error in the status. It reports whether a certificate is
// served meanwhile.
func (w *acmeWorker) report(err error, now time.Time) (served bool) {
	s, sl := w.store, w.host.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.fail(err, now)
	sl.acme.State = ACMEFailed
	sl.acme.Failures = w.failures
	sl.next, sl.nextAt = "next attempt", w.retryAt
	return sl.cert != nil
}

// backoff is how long to wait after a number of failures in a row: a minute
// doubling to six hours.
func backoff(failures int) time.Duration {
	return min(time.Minute<<min(max(failures-1, 0), 9), 6*time.Hour)
}

// jitter spreads a duration by a tenth, so that what began together does not
// stay together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

func clampTime(t, from, to time.Time) time.Time {
	switch {
	case t.Before(from):
		return from
	case t.After(to):
		return to
	}
	return t
}
