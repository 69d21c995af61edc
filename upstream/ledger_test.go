package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

func mustNew(t *testing.T, opts Options) *Pool {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	p, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.CloseIdleConnections)
	return p
}

// run runs a pool's checks; what it returns ends them.
func run(t *testing.T, p *Pool) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		p.CloseIdleConnections()
	}
}

func states(p *Pool) string {
	var all []string
	for _, b := range p.Status().Backends {
		all = append(all, string(b.State))
	}
	return strings.Join(all, " ")
}

// succession is a pool whose first backend is down by its checks, and what is
// needed for the next.
type succession struct {
	a, b *fakeBackend
	opts Options // of the next pool
	pool *Pool
	stop func() // its checks
}

func newSuccession(t *testing.T) *succession {
	network := new(memnet.Network)
	s := &succession{a: newFakeBackend(t, network, "192.0.2.1:80"), b: newFakeBackend(t, network, "192.0.2.2:80")}
	s.opts = Options{
		Name: "test", Ledger: new(Ledger), dial: network.DialContext,
		Backends: []Backend{{URL: "http://192.0.2.1:80"}, {URL: "http://192.0.2.2:80"}},
		Health:   Health{Path: "/healthz", Interval: 10 * time.Second, Timeout: 2 * time.Second, Rise: 3, Fall: 3},
	}
	s.pool = mustNew(t, s.opts)
	s.stop = run(t, s.pool)
	s.a.status.Store(503)
	time.Sleep(time.Minute)
	if got := states(s.pool); got != "down up" {
		t.Fatalf("at first: %s, want down up", got)
	}
	s.opts.Ledger = s.opts.Ledger.Next()
	return s
}

// next lets the next pool take over.
func (s *succession) next(t *testing.T) {
	p := mustNew(t, s.opts)
	s.stop()
	s.pool, s.stop = p, run(t, p)
}

func (s *succession) close() {
	s.stop()
	s.a.stop()
	s.b.stop()
}

var takeovers = []struct {
	name   string
	change func(*Options)
	checks int64 // that must pass to bring up what was down
}{
	{"nothing changed", func(*Options) {}, 3},
	{"another interval", func(o *Options) { o.Health.Interval = 20 * time.Second }, 3},
	{"another rise", func(o *Options) { o.Health.Rise = 2 }, 2},
	{"another balance", func(o *Options) { o.Balance = LeastConn }, 3},
	{"another path", func(o *Options) { o.Health.Path = "/healthz?deep" }, 1},
	{"another host", func(o *Options) { o.Health.Host = "app.test" }, 1},
	{"another status", func(o *Options) { o.Health.StatusMax = 299 }, 1},
}

// A backend that a pool knows to be down gets no requests from the one that takes
// over, not before its first check either.
func TestDownStaysDown(t *testing.T) {
	for _, test := range takeovers {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSuccession(t)
				defer s.close()
				since := s.pool.Status().Backends[0].Since
				test.change(&s.opts)
				s.next(t)
				for range 4 {
					if got := get(t, s.pool); got != "192.0.2.2:80" {
						t.Errorf("answered by %q", got)
					}
				}
				time.Sleep(2 * time.Minute)
				if b := s.pool.Status().Backends[0]; b.State != StateDown || !b.Since.Equal(since) {
					t.Errorf("after checks of its own: %s since %v, want down since %v", b.State, b.Since, since)
				}
			})
		})
	}
}

// A verdict that the new settings could have given is overturned as they say, one
// about something else by the first check.
func TestDownComesUp(t *testing.T) {
	for _, test := range takeovers {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSuccession(t)
				defer s.close()
				test.change(&s.opts)
				s.a.status.Store(200)
				before := s.a.checks.Load()
				s.next(t)
				for s.pool.Status().Backends[0].State == StateDown {
					time.Sleep(time.Second)
				}
				if n := s.a.checks.Load() - before; n != test.checks {
					t.Errorf("up after %d checks, want %d", n, test.checks)
				}
			})
		})
	}
}

// Without checks nothing could bring a backend up, and what another pool found
// out is none of this one's.
func TestDownIsForgotten(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no checks":    func(o *Options) { o.Health = Health{} },
		"another pool": func(o *Options) { o.Name = "other" },
		"no ledger":    func(o *Options) { o.Ledger = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSuccession(t)
				defer s.close()
				change(&s.opts)
				s.a.status.Store(200)
				s.next(t)
				if got := states(s.pool); got != "up up" {
					t.Errorf("%s, want up up", got)
				}
			})
		})
	}
}

// A pool that never comes into force changes nothing for the one that stays.
func TestRefusedPoolLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuccession(t)
		defer s.close()
		refused := s.opts
		refused.Health, refused.Backends = Health{}, []Backend{{URL: "http://192.0.2.3:80"}, {URL: "http://192.0.2.1:80"}}
		mustNew(t, refused)
		if got := states(s.pool); got != "down up" {
			t.Errorf("%s, want down up", got)
		}
	})
}

// An ejection is carried over while it is one under the new settings.
func TestEjectionIsCarriedOver(t *testing.T) {
	for _, test := range []struct {
		change func(*Options)
		want   string
	}{
		{func(*Options) {}, "ejected up"},
		{func(o *Options) { o.EjectFor = time.Hour }, "up up"},
		{func(o *Options) { o.EjectAfter = -1 }, "up up"},
	} {
		synctest.Test(t, func(t *testing.T) {
			network := new(memnet.Network)
			b := newFakeBackend(t, network, "192.0.2.2:80")
			defer b.stop()
			opts := Options{
				Name: "test", Ledger: new(Ledger), dial: network.DialContext,
				Backends: []Backend{{URL: "http://192.0.2.1:80"}, {URL: "http://192.0.2.2:80"}},
			}
			p := mustNew(t, opts)
			defer run(t, p)()
			for range 10 {
				get(t, p)
			}
			opts.Ledger = opts.Ledger.Next()
			test.change(&opts)
			p = mustNew(t, opts)
			defer run(t, p)()
			if got := states(p); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// heldPool is a pool over backends that answer and do not end.
func heldPool(t *testing.T, opts Options, names ...string) Options {
	t.Helper()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	opts.Name, opts.Ledger = "test", new(Ledger)
	for _, name := range names {
		opts.Backends = append(opts.Backends, Backend{URL: "http://" + server(t, hold(name, release))})
	}
	return opts
}

// Requests in flight at a pool are in flight at the backend for the next pool
// too: they count, they keep others out, and they end but once.
func TestLedgerCounts(t *testing.T) {
	opts := heldPool(t, Options{MaxRequests: 1}, "a")
	first := mustNew(t, opts)
	_, body := start(t, first)

	var pool *Pool
	for range 3 { // generations
		opts.Ledger = opts.Ledger.Next()
		pool = mustNew(t, opts)
		if s := pool.Status().Backends[0]; s.InFlight != 1 || s.Requests != 1 {
			t.Fatalf("taken over: %+v, want 1 in flight of 1", s)
		}
		if _, err := pool.RoundTrip(request(t, "GET", nil)); !errors.Is(err, ErrBusy) {
			t.Fatalf("beyond the limit: %v, want ErrBusy", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := pool.Retire(ctx); err != nil {
		t.Errorf("a pool waits for the requests of another: %v", err)
	}
	body.Close()
	if _, body := start(t, pool); body == nil {
		t.Error("no room after the end")
	}
	for _, p := range []*Pool{first, pool} {
		if s := p.Status().Backends[0]; s.InFlight != 1 || s.Requests != 2 {
			t.Errorf("at the end: %+v, want 1 in flight of 2", s)
		}
	}
}

// The balance is by what is in flight at the backend, whoever sent it.
func TestLedgerLeastConn(t *testing.T) {
	opts := heldPool(t, Options{Balance: LeastConn}, "a", "b")
	first := mustNew(t, opts)
	counts := map[string]int{}
	bodies := map[string]io.ReadCloser{}
	for range 4 {
		name, body := start(t, first)
		counts[name]++
		bodies[name] = body
	}
	bodies["a"].Close()
	opts.Ledger = opts.Ledger.Next()
	next := mustNew(t, opts)
	if name, _ := start(t, next); name != "a" || counts["b"] != 2 {
		t.Errorf("took %s after %v, want a, which has fewer in flight", name, counts)
	}
}

// A backend that leaves and returns is the same while it has requests in flight,
// and forgotten else.
func TestLedgerRemembersWhoLeft(t *testing.T) {
	for _, test := range []struct {
		away     int
		inFlight bool
		want     uint64
	}{{1, false, 0}, {1, true, 1}, {5, true, 1}} {
		opts := heldPool(t, Options{}, "a")
		_, body := start(t, mustNew(t, opts))
		if !test.inFlight {
			body.Close()
		}
		elsewhere := opts
		elsewhere.Backends = []Backend{{URL: "http://192.0.2.9:80"}}
		for range test.away {
			elsewhere.Ledger = opts.Ledger.Next()
			mustNew(t, elsewhere)
			opts.Ledger = elsewhere.Ledger
		}
		opts.Ledger = opts.Ledger.Next()
		if s := mustNew(t, opts).Status().Backends[0]; s.Requests != test.want || s.InFlight > 0 != test.inFlight {
			t.Errorf("%+v: %+v on return", test, s)
		}
	}
}
