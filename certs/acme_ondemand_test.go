package certs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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
