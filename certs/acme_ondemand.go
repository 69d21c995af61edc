package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

const (
	defaultRate   = 10
	defaultWindow = time.Minute
	defaultWait   = 30 * time.Second
	askTimeout    = 5 * time.Second
	// maxAsking bounds how many names the ask URL is asked about at the same
	// time, and maxLooking how many are looked up in the storage.
	maxAsking  = 32
	maxLooking = 32
	// answerTime is what is left of a handshake's time for its rest when the
	// wait for a certificate ends, a tenth of that time at most.
	answerTime = time.Second
	// maxRefused bounds for how many names a refusal is remembered, and
	// refusedFor how long.
	maxRefused = 1024
	refusedFor = 30 * time.Second
)

// onDemand decides about names that have no certificate yet.
type onDemand struct {
	limiter *rate.Limiter // of names tried
	client  *http.Client

	looking chan struct{}        // places for those who look into the storage
	asking  chan struct{}        // places for those who ask
	flights map[string]*flight   // guarded by Store.mu: decisions under way
	refused map[string]time.Time // guarded by Store.mu: until when
}

// flight is one decision that several handshakes wait for.
type flight struct {
	done chan struct{}
	host *acmeHost // nil: not admitted
	cut  bool      // whoever decided gave up before there was a decision
}

var (
	errNotAllowed = errors.New("the name is not allowed")
	errTooMany    = errors.New("too many new names")
)

// allows reports whether the allow list has a name; without list every name is
// left to the ask URL.
func (o *OnDemand) allows(name string) bool {
	return len(o.Allow) == 0 || slices.ContainsFunc(o.Allow, func(p string) bool { return covers(p, name) })
}

// ask applies the policy of names: the list, then the URL.
func (d *onDemand) ask(ctx context.Context, o *OnDemand, name string) error {
	if !o.allows(name) {
		return errNotAllowed
	}
	if o.Ask == "" {
		return nil
	}
	if !enter(ctx, d.asking) {
		return fmt.Errorf("waiting to ask whether the name is allowed: %w", ctx.Err())
	}
	defer func() { <-d.asking }()
	u, err := url.Parse(o.Ask)
	if err != nil {
		return err
	}
	query := u.Query()
	query.Set("domain", name)
	u.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return fmt.Errorf("asking whether the name is allowed: %w", err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // so that the connection can be used again
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("asking whether the name is allowed: the ask URL answered %s", resp.Status)
	}
	return fmt.Errorf("%w: the ask URL answered %s", errNotAllowed, resp.Status)
}

// enter takes one of a number of places, once one is free. It reports false
// when ctx was done before.
func enter(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// newOnDemand makes the state for a source. Redirects are not followed: the
// answer of the URL that was configured counts.
func newOnDemand(o *OnDemand) onDemand {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 2
	transport.IdleConnTimeout = 30 * time.Second
	return onDemand{
		limiter: o.limiter(),
		looking: make(chan struct{}, maxLooking),
		asking:  make(chan struct{}, maxAsking),
		flights: make(map[string]*flight),
		refused: make(map[string]time.Time),
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// obtainOnDemand returns a certificate for a name that no installed one
// carries, if a source obtains it on demand; nil if not, or not in time.
func (s *Store) obtainOnDemand(hello *tls.ClientHelloInfo) *tls.Certificate {
	name, ok := canonicalName(hello.ServerName)
	if !ok || !validHostname(name) || !strings.Contains(name, ".") || isIP(name) {
		return nil
	}
	for _, a := range s.index.Load().demand {
		if !a.config.OnDemand.allows(name) {
			continue
		}
		ctx, cancel := context.WithTimeout(helloContext(hello), waitFor(hello, a.config.OnDemand))
		obtained := s.demand(ctx, a, name)
		cancel()
		if obtained {
			if e := s.index.Load().find(name); e != nil {
				return e.pick(hello)
			}
		}
	}
	return nil
}

// waitFor is how long a handshake waits: a little less than it has left, for
// then the default certificate can still be served.
func waitFor(hello *tls.ClientHelloInfo, o *OnDemand) time.Duration {
	wait := cmp.Or(o.Wait, defaultWait)
	if end, ok := helloContext(hello).Deadline(); ok {
		left := time.Until(end)
		wait = min(wait, left-min(answerTime, left/10))
	}
	return wait
}

// demand has a name obtained and waits until it is, has failed, or ctx is
// done.
func (s *Store) demand(ctx context.Context, a *acmeSource, name string) bool {
	host := s.admit(ctx, a, name)
	if host == nil {
		return false
	}
	// The slot is polled: a handshake that waits seconds for a CA does not
	// mind, and workers need not know who waits.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		done := host.slot.cert != nil
		failed := host.slot.acme.State == ACMEFailed
		s.mu.Unlock()
		if done || failed {
			return done
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// admit returns the host for a name after the policy allowed it, nil if it did
// not. Handshakes for the same name wait for one decision, and decide anew if
// it was cut short by the end of the handshake that made it.
func (s *Store) admit(ctx context.Context, a *acmeSource, name string) *acmeHost {
	d := &a.demand
	for ctx.Err() == nil {
		s.mu.Lock()
		now := time.Now()
		a.sweep(now)
		if h := a.host(name); h != nil {
			s.mu.Unlock()
			return h
		}
		if until, ok := d.refused[name]; ok && now.Before(until) {
			s.mu.Unlock()
			return nil
		}
		f := d.flights[name]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			d.flights[name] = f
			s.mu.Unlock()
			return s.decide(ctx, a, name, f)
		}
		s.mu.Unlock()
		select {
		case <-f.done:
			if !f.cut {
				return f.host
			}
		case <-ctx.Done():
		}
	}
	return nil
}

// decide ends a flight. Only a refusal by the policy is remembered: what else
// keeps a name out may be over when the next client asks.
func (s *Store) decide(ctx context.Context, a *acmeSource, name string, f *flight) *acmeHost {
	stored, err := s.mayObtain(ctx, a, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(a.demand.flights, name)
	defer close(f.done)
	if err == nil {
		f.host = newACMEHost(a, name, true)
		f.host.asked = !stored
		a.hosts = append(a.hosts, f.host)
		if r := s.acme.runner(a); r == nil || !r.start(f.host) {
			a.remove(f.host)
			f.host = nil
		}
		return f.host
	}
	f.cut = ctx.Err() != nil
	s.stats.onDemandRefused.Add(1)
	s.log.Debug("name was not obtained on demand", "name", name, "err", err)
	if errors.Is(err, errNotAllowed) {
		a.demand.refuse(name, time.Now())
	}
	return nil
}

// mayObtain applies the policy to a name that the allow list has. A certificate
// in the storage was allowed when it was obtained: it is served without asking
// again until its renewal, so that a restart needs neither the URL nor the rate.
func (s *Store) mayObtain(ctx context.Context, a *acmeSource, name string) (stored bool, err error) {
	if a.hasCurrent(ctx, name) {
		return true, nil
	}
	if err := a.demand.ask(ctx, a.config.OnDemand, name); err != nil {
		return false, err
	}
	if !a.demand.limiter.Allow() {
		return false, errTooMany
	}
	return false, nil
}

// hasCurrent reports whether the storage has a certificate for a name that can
// be served now.
func (a *acmeSource) hasCurrent(ctx context.Context, name string) bool {
	if !enter(ctx, a.demand.looking) {
		return false
	}
	defer func() { <-a.demand.looking }()
	st, err := a.load(ctx, name)
	return err == nil && st != nil && st.cert.current(time.Now()) && st.cert.carries(name)
}

// refuse remembers a refusal. When there are too many the older ones go.
func (d *onDemand) refuse(name string, now time.Time) {
	if len(d.refused) >= maxRefused {
		for n, until := range d.refused {
			if now.After(until) || len(d.refused) >= maxRefused {
				delete(d.refused, n)
			}
		}
	}
	d.refused[name] = now.Add(refusedFor)
}

// sweep forgets the names that were not obtained on demand once the time for
// another attempt has come. The caller holds Store.mu.
func (a *acmeSource) sweep(now time.Time) {
	a.hosts = slices.DeleteFunc(a.hosts, func(h *acmeHost) bool {
		sl := h.slot
		return sl.acme.OnDemand && sl.cert == nil && sl.acme.State == ACMEFailed && !now.Before(sl.nextAt)
	})
}

// remove forgets a host without certificate. The caller holds Store.mu.
func (a *acmeSource) remove(h *acmeHost) {
	a.hosts = slices.DeleteFunc(a.hosts, func(x *acmeHost) bool { return x == h })
}
