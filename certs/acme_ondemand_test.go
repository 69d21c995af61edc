package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// asker is an ask URL that allows what contains "good".
func asker(t *testing.T) (url string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch name := r.URL.Query().Get("domain"); {
		case r.URL.Query().Get("token") != "t&k":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(name, "redirected"):
			http.Redirect(w, r, "/elsewhere?domain=good.test&token=t%26k", http.StatusFound)
		case !strings.Contains(name, "good"):
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/check?token=t%26k", asked
}

func TestOnDemand(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	url, asked := asker(t)
	fallback := issue(t, newCA(t), pkiRequest("fallback.test"))
	s := newACMEStore(t, Options{})
	p.add(s)
	source := p.source(func(a *ACME) {
		a.OnDemand = &OnDemand{Ask: url, Allow: []string{"*.a.test", "good.test"}, Rate: 4, Window: time.Hour}
	})
	load(t, s, Source{Files: writePair(t, t.TempDir(), "f", fallback)}, source)
	roots := p.roots()

	// Nothing is obtained while nothing runs.
	if leaf, err := p.dial("good.a.test", nil); err != nil || !leaf.Equal(fallback.Leaf) {
		t.Errorf("before Run: %v, %v", leaf, err)
	}
	stop := run(t, s)
	eventually(t, 5*time.Second, "running", func() bool { return s.acme.runner(s.index.Load().demand[0]) != nil })
	s.index.Load().demand[0].demand.limiter = (&OnDemand{Rate: 4, Window: time.Hour}).limiter()

	// Many clients at once: one order, and all get the certificate.
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.dial("GOOD.a.test", roots); err != nil {
				t.Errorf("on demand: %v", err)
			}
		})
	}
	wg.Wait()
	if p.issued() != 1 {
		t.Errorf("%d certificates for one name", p.issued())
	}
	st := statusOf(s, "good.a.test")
	if st.Name != "on_demand" || !st.ACME.OnDemand {
		t.Errorf("Status = %+v", st)
	}

	// What is not allowed gets the default certificate, and no order.
	orders := strings.Count(p.log.String(), "Added order")
	for _, name := range []string{"good.b.test", "x.good.a.test", "bad.a.test", "redirected.a.test", "localhost"} {
		if leaf, err := p.dial(name, nil); err != nil || !leaf.Equal(fallback.Leaf) {
			t.Errorf("%s: %v, %v", name, leaf, err)
		}
	}
	if n := strings.Count(p.log.String(), "Added order"); n != orders {
		t.Errorf("%d orders for names that are not allowed", n-orders)
	}
	before := asked.Load()
	for range 10 {
		p.dial("bad.a.test", nil)
	}
	if n := asked.Load(); n != before {
		t.Errorf("a refused name was asked about %d more times", n-before)
	}

	// A name that fails is not tried by every client.
	p.breakDNS("good2.a.test")
	for range 5 {
		if leaf, err := p.dial("good2.a.test", nil); err != nil || !leaf.Equal(fallback.Leaf) {
			t.Errorf("a name that fails: %v, %v", leaf, err)
		}
	}
	failures := s.Stats().ObtainFailures
	if failures == 0 || failures > 4 {
		t.Errorf("%d attempts for 5 clients", failures)
	}
	p.mendDNS("good2.a.test")
	eventually(t, 20*time.Second, "obtained later", func() bool {
		_, err := p.dial("good2.a.test", roots)
		return err == nil
	})

	// No more than Rate names.
	refused := s.Stats().OnDemandRefused
	n := 0
	for i := range 10 {
		if _, err := p.dial(fmt.Sprintf("good-%d.a.test", i), roots); err == nil {
			n++
		}
	}
	if n > 4 || s.Stats().OnDemandRefused == refused {
		t.Errorf("%d of 10 names beyond the rate", n)
	}

	// After a restart what was obtained is there at once, whatever the rate.
	stop()
	issued := p.issued()
	s2 := newACMEStore(t, Options{StateDir: s.options.StateDir})
	p.only(s2)
	load(t, s2, source)
	run(t, s2)
	eventually(t, 5*time.Second, "running", func() bool { return s2.acme.runner(s2.index.Load().demand[0]) != nil })
	if _, err := p.dial("good.a.test", roots); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if p.issued() != issued {
		t.Error("obtained again after a restart")
	}
}

// TestOnDemandWaitIsBounded: a slow CA does not hold handshakes for long.
func TestOnDemandWaitIsBounded(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{env: []string{"PEBBLE_VA_NOSLEEP=", "PEBBLE_VA_SLEEPTIME=4"}})
	s := newACMEStore(t, Options{})
	p.add(s)
	load(t, s, p.source(func(a *ACME) { a.OnDemand = &OnDemand{Allow: []string{"*.slow.test"}, Wait: 50 * time.Millisecond} }))
	run(t, s)
	eventually(t, 5*time.Second, "running", func() bool { return s.acme.runner(s.index.Load().demand[0]) != nil })
	started := time.Now()
	if _, err := p.dial("x.slow.test", nil); err == nil {
		t.Error("a certificate out of nothing")
	}
	if took := time.Since(started); took > time.Second {
		t.Errorf("the handshake waited %v", took)
	}
	obtained(t, s, 30*time.Second, "x.slow.test")
}

// TestRefusedIsBounded: names that clients make up use bounded memory.
func TestRefusedIsBounded(t *testing.T) {
	d := newOnDemand(&OnDemand{})
	now := time.Now()
	for i := range 10 * maxRefused {
		d.refuse(fmt.Sprintf("%d.test", i), now)
	}
	if len(d.refused) > maxRefused {
		t.Errorf("%d refused names are remembered", len(d.refused))
	}
}

// closedURL is an ask URL that nobody listens at.
const closedURL = "http://127.0.0.1:1/ask"

// running waits until the ACME sources of a store run.
func running(t *testing.T, s *Store) {
	t.Helper()
	eventually(t, 20*time.Second, "running", func() bool {
		for _, a := range s.acmeSources() {
			if s.acme.runner(a) == nil {
				return false
			}
		}
		return true
	})
}

func onDemandSource(o *OnDemand, hosts ...string) Source {
	return Source{ACME: &ACME{Hosts: hosts, Issuers: []Issuer{{Directory: awayCA}}, OnDemand: o, DisableARI: true}}
}

// TestStoredNeedsNoAsking: what was obtained on demand before a restart is
// served to all at once, without the ask URL and whatever the rate; what has
// expired, or is not on the list, is not.
func TestStoredNeedsNoAsking(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	want := make(map[string]*tls.Certificate)
	for i := range 3 * maxAsking {
		name := fmt.Sprintf("%d.stored.test", i)
		want[name] = issue(t, ca, pkiRequest(name))
		putStored(t, dir, awayCA, name, want[name])
	}
	putStored(t, dir, awayCA, "expired.stored.test", issue(t, ca, pki.Request{
		Names: []string{"expired.stored.test"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour)}))
	putStored(t, dir, awayCA, "other.test", issue(t, ca, pkiRequest("other.test")))
	putStored(t, dir, awayCA, "wrong.stored.test", issue(t, ca, pkiRequest("right.stored.test")))
	s := newACMEStore(t, Options{StateDir: dir})
	load(t, s, onDemandSource(&OnDemand{Ask: closedURL, Allow: []string{"*.stored.test"}, Rate: 1, Window: time.Hour}))
	run(t, s)
	running(t, s)
	var wg sync.WaitGroup
	for name, cert := range want {
		wg.Go(func() {
			if !serves(s, name, cert) {
				t.Errorf("%s is not served", name)
			}
		})
	}
	wg.Wait()
	for _, name := range []string{"expired.stored.test", "other.test", "wrong.stored.test"} {
		if leaf := served(s, name); leaf != nil {
			t.Errorf("%s: served with %v", name, leaf.DNSNames)
		}
	}
}

// TestReloadKeepsOnDemand: a reload that changes a source takes no certificate
// away that it obtained on demand, but for names that are not on the list any
// more.
func TestReloadKeepsOnDemand(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	names := []string{"a.kept.test", "b.kept.test", "c.gone.test"}
	for _, name := range names {
		putStored(t, dir, awayCA, name, issue(t, ca, pkiRequest(name)))
	}
	h := new(hooks)
	s := newACMEStore(t, Options{StateDir: dir, Prepare: h.prepare, Release: h.release})
	load(t, s, onDemandSource(&OnDemand{Ask: closedURL, Allow: []string{"*.kept.test", "*.gone.test"}}))
	run(t, s)
	running(t, s)
	for _, name := range names {
		if served(s, name) == nil {
			t.Fatalf("%s is not served", name)
		}
	}
	load(t, s, onDemandSource(&OnDemand{Ask: closedURL, Allow: []string{"*.kept.test"}}, "b.kept.test", "added.test"),
		onDemandSource(&OnDemand{Allow: []string{"*.kept.test"}}))
	for _, name := range names[:2] {
		if e := s.index.Load().find(name); e == nil {
			t.Errorf("%s is lost", name)
		}
	}
	if e := s.index.Load().find("c.gone.test"); e != nil {
		t.Error("a name that is not on the list any more is served")
	}
	n := 0
	for _, st := range s.Status() {
		if slices.Contains(st.Names, "a.kept.test") {
			n++
			if !st.ACME.OnDemand || st.ACME.State != ACMEValid || st.SourceIndex != 0 {
				t.Errorf("Status = %+v, ACME %+v", st, st.ACME)
			}
		}
	}
	if n != 1 {
		t.Errorf("the name carried over is there %d times", n)
	}
	settled(t, s, "a.kept.test")
	if h.live(t) != 2 {
		t.Errorf("%d certificates are prepared; want 2", h.live(t))
	}
}

// TestAskingAgain: only a refusal is remembered. A URL that is away, or whose
// server is in trouble, is asked again by the next client.
func TestAskingAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Query().Get("domain") {
		case "away.ask.test":
			panic(http.ErrAbortHandler)
		case "trouble.ask.test":
			w.WriteHeader(http.StatusBadGateway)
		case "refused.ask.test":
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	// A request on a connection that was used before may be made twice.
	srv.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(srv.Close)
	s := newACMEStore(t, Options{})
	load(t, s, onDemandSource(&OnDemand{Ask: srv.URL, Allow: []string{"*.ask.test"}}))
	a := s.acmeSources()[0]
	for name, want := range map[string]int64{"away.ask.test": 3, "trouble.ask.test": 3, "refused.ask.test": 1} {
		asked.Store(0)
		for range 3 {
			if s.admit(t.Context(), a, name) != nil {
				t.Errorf("%s is admitted", name)
			}
		}
		if n := asked.Load(); n != want {
			t.Errorf("%s was asked about %d times; want %d", name, n, want)
		}
	}
}

// TestDecisionOutlivesItsClient: the client whose handshake decides about a name
// goes away; another one that waits for the decision makes it anew.
func TestDecisionOutlivesItsClient(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 2)
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			arrived <- struct{}{}
			<-r.Context().Done()
		}
	}))
	t.Cleanup(srv.Close)
	s := newACMEStore(t, Options{})
	load(t, s, onDemandSource(&OnDemand{Ask: srv.URL}))
	run(t, s)
	running(t, s)
	a := s.acmeSources()[0]
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if s.admit(ctx, a, "left.decision.test") != nil {
			t.Error("admitted without an answer")
		}
	})
	<-arrived
	wg.Go(func() {
		if s.admit(t.Context(), a, "left.decision.test") == nil {
			t.Error("the client that stayed is refused")
		}
	})
	leave()
	wg.Wait()
}

// TestAskingWaitsForAPlace: when all places are taken a handshake waits for one
// instead of refusing the name.
func TestAskingWaitsForAPlace(t *testing.T) {
	url, _ := asker(t)
	o := &OnDemand{Ask: url}
	d := newOnDemand(o)
	for range maxAsking {
		d.asking <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.ask(ctx, o, "good.test"); err == nil || errors.Is(err, errNotAllowed) {
		t.Errorf("without a place: %v", err)
	}
	done := make(chan error)
	go func() { done <- d.ask(t.Context(), o, "good.test") }()
	<-d.asking
	if err := <-done; err != nil {
		t.Errorf("with a place: %v", err)
	}
}
