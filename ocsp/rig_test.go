package ocsp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// network is a transport that reaches responders by host, without sockets, so
// that everything runs on the fake clock of a synctest bubble.
type network struct {
	mu    sync.Mutex
	hosts map[string]http.Handler
	seen  map[string][]time.Time
}

func newNetwork() *network {
	return &network{hosts: make(map[string]http.Handler), seen: make(map[string][]time.Time)}
}

func (n *network) set(host string, h http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = h
}

func (n *network) requests(host string) []time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]time.Time(nil), n.seen[host]...)
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	h := n.hosts[r.URL.Host]
	n.seen[r.URL.Host] = append(n.seen[r.URL.Host], time.Now())
	n.mu.Unlock()
	if h == nil {
		return nil, errors.New("connection refused")
	}
	return localTransport{h}.RoundTrip(r)
}

// silent never answers, until the request is given up.
var silent = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

// silentTransport fails as the real transport does when nobody answers.
func silentAware(n *network) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := n.RoundTrip(r)
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return resp, err
	}
}

func failing(code int, header ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "sorry")
	})
}

// answer responds with whatever the spec builds at that moment.
func answer(t testing.TB, spec func() pki.ResponseSpec) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(build(t, spec()))
	})
}

// rig is a running stapler in a bubble.
type rig struct {
	*Stapler
	net    *network
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{net: newNetwork(), done: make(chan error, 1)}
	if o.Transport == nil {
		o.Transport = silentAware(r.net)
	}
	if o.Logger == nil {
		o.Logger = testLogger(t)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Stapler = s
	s.random = func() float64 { return 0.5 }
	r.run(t)
	return r
}

func (r *rig) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.done <- r.Stapler.Run(ctx) }()
	synctest.Wait()
}

func (r *rig) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func (r *rig) prepare(t *testing.T, cert *tls.Certificate) {
	t.Helper()
	if err := r.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
}

// served returns what a handshake would staple.
func (s *Stapler) served(t testing.TB, cert *tls.Certificate) []byte {
	t.Helper()
	get := s.GetCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })
	c, err := get(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.OCSPStaple
}

func (s *Stapler) statusOf(t testing.TB, name string) CertificateStatus {
	t.Helper()
	for _, c := range s.Status() {
		if c.Names[0] == name {
			return c
		}
	}
	t.Fatalf("no status of %q", name)
	panic("unreachable")
}

// advance lets time pass and all that is due happen.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
