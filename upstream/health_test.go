package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// fakeBackend is a backend in memory that can be switched off in several ways.
type fakeBackend struct {
	network *memnet.Network
	addr    string
	srv     *http.Server
	done    chan struct{}
	status  atomic.Int64 // of the health check
	checks  atomic.Int64
	served  atomic.Int64
}

func newFakeBackend(t *testing.T, n *memnet.Network, addr string) *fakeBackend {
	b := &fakeBackend{network: n, addr: addr}
	b.status.Store(200)
	b.start(t)
	return b
}

func (b *fakeBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthz" {
		b.served.Add(1)
		fmt.Fprint(w, b.addr)
		return
	}
	b.checks.Add(1)
	if s := b.status.Load(); s != 0 {
		w.WriteHeader(int(s))
		return
	}
	<-r.Context().Done() // hangs
}

func (b *fakeBackend) start(t *testing.T) {
	ln, err := b.network.Listen("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	b.srv = &http.Server{Handler: b}
	b.done = make(chan struct{})
	go func() {
		defer close(b.done)
		b.srv.Serve(ln)
	}()
}

// await lets n more checks pass.
func (b *fakeBackend) await(n int64) {
	for want := b.checks.Load() + n; b.checks.Load() < want; {
		time.Sleep(time.Second)
	}
	synctest.Wait()
}

func (b *fakeBackend) stop() {
	b.srv.Close()
	<-b.done
}

// healthRig runs two fake backends under health checks, in a bubble.
type healthRig struct {
	*Pool
	a, b *fakeBackend
	stop func()
}

func startHealth(t *testing.T, h Health) *healthRig {
	network := new(memnet.Network)
	r := &healthRig{a: newFakeBackend(t, network, "192.0.2.1:80"), b: newFakeBackend(t, network, "192.0.2.2:80")}
	r.Pool = newPool(t, Options{Health: h, dial: network.DialContext}, "http://192.0.2.1:80", "http://192.0.2.2:80")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		r.CloseIdleConnections()
		r.a.stop()
		r.b.stop()
	}
	synctest.Wait()
	return r
}

func (r *healthRig) states() string {
	s := r.Status()
	return string(s.Backends[0].State) + " " + string(s.Backends[1].State)
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startHealth(t, Health{Path: "/healthz", Interval: 10 * time.Second, Rise: 2, Fall: 3})
		defer r.stop()
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := r.states(); got != want {
				t.Fatalf("%s: %s, want %s", when, got, want)
			}
		}
		expect("at the start", "up up")
		r.a.status.Store(503)
		r.a.await(2)
		expect("after two failures", "up up")
		r.a.await(1)
		expect("after three failures", "down up")
		for range 4 {
			if got := get(t, r.Pool); got != "192.0.2.2:80" {
				t.Errorf("answered by %q", got)
			}
		}
		if s := r.Status().Backends[0]; !strings.Contains(s.LastError, "status 503") || s.LastCheck.IsZero() || s.Since.IsZero() {
			t.Errorf("status %+v", s)
		}
		r.b.status.Store(0) // hangs
		time.Sleep(40 * time.Second)
		expect("all down", "down down")
		if _, err := r.RoundTrip(request(t, "GET", nil)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("all down: %v, want ErrUnavailable", err)
		}
		r.a.status.Store(301)
		r.b.status.Store(204)
		r.a.await(1)
		expect("after one success", "down down")
		r.a.await(1)
		r.b.await(1)
		expect("after two", "up up")
	})
}

// The first check decides alone: a dead backend gets no requests at the start.
func TestFirstCheckDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Network)
		p := newPool(t, Options{Health: Health{Path: "/healthz"}, dial: network.DialContext}, "http://192.0.2.1:80")
		if !p.Status().Backends[0].Up() {
			t.Error("down before any check")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go p.Run(ctx)
		synctest.Wait()
		if s := p.Status().Backends[0]; s.State != StateDown || !strings.Contains(s.LastError, "refused") {
			t.Errorf("after the first check: %+v", s)
		}
		b := newFakeBackend(t, network, "192.0.2.1:80")
		time.Sleep(6 * time.Second)
		if !p.Status().Backends[0].Up() {
			t.Error("still down after it came up")
		}
		cancel()
		b.stop()
	})
}

// Checks do not march in step, and stay near their interval.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startHealth(t, Health{Path: "/healthz", Interval: 10 * time.Second})
		defer r.stop()
		time.Sleep(1000 * time.Second)
		if n := r.a.checks.Load(); n < 90 || n > 112 {
			t.Errorf("%d checks in 1000 s, want about 100", n)
		}
	})
	seen := map[time.Duration]bool{}
	for range 100 {
		d := jitter(10 * time.Second)
		if d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("jitter made 10s to %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different intervals of 100", len(seen))
	}
}

// Without health checks a backend that refuses connections is left alone for a
// while, then tried by one request at a time.
func TestEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Network)
		var dials atomic.Int64
		dial := func(ctx context.Context, nw, addr string) (net.Conn, error) {
			if addr == "192.0.2.1:80" {
				dials.Add(1)
			}
			return network.DialContext(ctx, nw, addr)
		}
		b := newFakeBackend(t, network, "192.0.2.2:80")
		p := newPool(t, Options{dial: dial}, "http://192.0.2.1:80", "http://192.0.2.2:80")
		ask := func(n int) {
			t.Helper()
			for range n {
				if got := get(t, p); got != "192.0.2.1:80" && got != "192.0.2.2:80" {
					t.Fatalf("got %q", got)
				}
			}
		}
		ask(20)
		if n := dials.Load(); n != 3 {
			t.Errorf("%d attempts before the ejection, want 3", n)
		}
		if s := p.Status().Backends[0]; s.State != StateEjected || s.Up() {
			t.Errorf("state %s", s.State)
		}
		time.Sleep(11 * time.Second)
		ask(20)
		if n := dials.Load(); n != 4 {
			t.Errorf("%d attempts, want one more after 10s", n)
		}
		a := newFakeBackend(t, network, "192.0.2.1:80")
		time.Sleep(11 * time.Second)
		ask(20)
		if s := p.Status().Backends[0]; !s.Up() || a.served.Load() < 9 {
			t.Errorf("back again: state %s, %d of 20 requests", s.State, a.served.Load())
		}
		p.CloseIdleConnections()
		a.stop()
		b.stop()
	})
}

// A state says what would become of a request now: an ejection ends by the clock,
// also when nobody asks, and where every backend is ejected none is left out.
func TestStateIsThatOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Network)
		p := newPool(t, Options{dial: network.DialContext, Retries: -1}, "http://192.0.2.1:80", "http://192.0.2.2:80")
		b := newFakeBackend(t, network, "192.0.2.2:80")
		defer b.stop()
		defer p.CloseIdleConnections()
		expect := func(when, want string) {
			t.Helper()
			if got := states(p); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		for range 10 {
			get(t, p)
		}
		expect("after failures", "ejected up")
		time.Sleep(9 * time.Second)
		expect("before the end of the ejection", "ejected up")
		time.Sleep(2 * time.Second)
		expect("after it", "up up")
		get(t, p)
		get(t, p)
		expect("after another try", "ejected up")
		b.stop()
		p.CloseIdleConnections()
		for range 3 {
			get(t, p)
		}
		expect("when both are ejected", "up up")

		only := newPool(t, Options{dial: network.DialContext}, "http://192.0.2.1:80")
		for range 10 {
			get(t, only)
		}
		if s := only.Status().Backends[0]; !s.Up() || s.Failures != 10 || s.LastError == "" {
			t.Errorf("the only backend, which got every request: %+v", s)
		}
	})
}

// When every backend is ejected, requests are better tried than refused.
func TestEjectionLeavesSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(memnet.Network)
		urls := []string{"http://192.0.2.1:80", "http://192.0.2.2:80"}
		for n := 1; n <= 2; n++ {
			p := newPool(t, Options{dial: network.DialContext}, urls[:n]...)
			for range 10 {
				if got := get(t, p); !strings.Contains(got, "refused") {
					t.Fatalf("got %q", got)
				}
			}
			b := newFakeBackend(t, network, "192.0.2.1:80")
			for range 10 {
				if got := get(t, p); got != "192.0.2.1:80" {
					t.Fatalf("%d backends, one is back: got %q", n, got)
				}
			}
			p.CloseIdleConnections()
			b.stop()
		}
	})
}

// Checks make full handshakes, requests resume.
func TestChecksDoNotResume(t *testing.T) {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(pki.Request{Names: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	var host atomic.Value
	addr := server(t, func(w http.ResponseWriter, r *http.Request) {
		host.Store(r.Host)
		fmt.Fprint(w, r.TLS.DidResume, " ", r.UserAgent())
	}, func(s *httptest.Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}} })
	p := newPool(t, Options{TLS: always(&tls.Config{RootCAs: ca.Pool()}), Health: Health{Path: "/healthz", Host: "app.test", StatusMin: 200, StatusMax: 200}}, "https://"+addr)
	b := p.backends[0]
	for range 3 {
		if err := b.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		req := request(t, "GET", nil)
		req.URL.Scheme, req.URL.Host = "https", addr
		res, err := b.checker.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		res.Body.Read(buf)
		res.Body.Close()
		if string(buf) != "fals" {
			t.Errorf("a check resumed: %q", buf)
		}
	}
	if host.Load() != "app.test" {
		t.Errorf("Host %q", host.Load())
	}
	for i := range 3 {
		got := get(t, p)
		p.CloseIdleConnections()
		if want := fmt.Sprint(i > 0, " Go-http-client/1.1"); got != want {
			t.Errorf("request %d: resumed %q, want %q", i, got, want)
		}
	}
}
