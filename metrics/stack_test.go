package metrics_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tlsproxy/tlsproxy/admin"
	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/metrics"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/store"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// stack is the proxy's real parts, wired as the program wires them.
type stack struct {
	ca        *pki.CA
	responder *pki.Responder
	cert      *tls.Certificate
	certFile  string
	keyFile   string

	certs    *certs.Store
	stapler  *ocsp.Stapler
	sessions *session.Resumer
	front    *front.Front
	pool     *upstream.Pool
	upgrades *proxy.Upgrades
	access   *proxy.AccessLog
	store    *store.Store // nil: none
	redis    *process
	metrics  *metrics.Metrics
	admin    http.Handler
	backend  *httptest.Server

	addr    string // of the TLS listener
	started time.Time

	mu     sync.Mutex
	config metrics.ConfigStats
	reload error
}

// options of newStack; the zero value is a stack as the defaults make it.
type options struct {
	session session.Options
	limits  front.Limits
	reject  bool // names that no site has
	maxTLS  uint16
	backend http.Handler
	health  upstream.Health
	redis   bool // a real one as the shared store

	noResponder bool // nobody answers at the certificate's OCSP responder
}

// newStack starts everything; the test's end stops it.
func newStack(t *testing.T, o options) *stack {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := &stack{upgrades: &proxy.Upgrades{}, started: time.Now(), config: metrics.ConfigStats{Generation: 1, Loaded: time.Now()}}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	t.Cleanup(func() {
		cancel()
		if err := running.Wait(); err != nil {
			t.Errorf("a part ended with %v", err)
		}
	})

	s.newCertificate(t, o)
	ocspOptions := ocsp.Options{Logger: logger}
	if o.redis {
		s.newRedis(t, logger)
		o.session.StoreTimeout = 5 * time.Second // a busy machine is no failing store
		o.session.Store, ocspOptions.Store = s.store.Sessions(), s.store.Staples()
		running.Go(func() error { return s.store.Run(ctx) })
	}
	s.stapler = must(ocsp.New(ocspOptions))
	s.newCertStore(t, ctx, logger)
	o.session.Logger = logger
	s.sessions = must(session.New(o.session))
	s.newBackend(t, ctx, o, logger)
	s.access = must(proxy.NewAccessLog(proxy.AccessLogOptions{Writer: io.Discard, FlushInterval: 20 * time.Millisecond, Logger: logger}))
	s.newMetrics(t, logger)
	server := s.newFront(t, o, logger)
	for _, run := range []func(context.Context) error{s.certs.Run, s.stapler.Run, s.sessions.Run, s.pool.Run, s.front.Run, s.access.Run} {
		running.Go(func() error { return run(ctx) })
	}
	running.Go(func() error {
		if err := server.Serve(s.front.Listener()); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	t.Cleanup(func() { server.Close() })
	if !o.noResponder {
		s.waitStaple(t)
	}
	return s
}

// must is for what only a broken test can make fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (s *stack) newCertificate(t *testing.T, o options) {
	t.Helper()
	s.ca = must(pki.NewRoot(pki.CAOptions{Name: "metrics test CA"}))
	s.responder = pki.NewResponder(s.ca, pki.ResponderOptions{})
	srv := httptest.NewServer(s.responder)
	t.Cleanup(srv.Close)
	if o.noResponder {
		srv.Close()
	}
	s.cert = must(s.ca.Issue(pki.Request{Names: []string{"a.test", "b.test"}, OCSPServers: []string{srv.URL}}))
	dir := t.TempDir()
	s.certFile, s.keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := pki.WritePair(s.cert, s.certFile, s.keyFile); err != nil {
		t.Fatal(err)
	}
}

func (s *stack) newCertStore(t *testing.T, ctx context.Context, logger *slog.Logger) {
	t.Helper()
	s.certs = must(certs.New(certs.Options{
		Prepare: s.stapler.Prepare, Release: s.stapler.Release,
		PollInterval: 50 * time.Millisecond, Logger: logger,
	}))
	set, err := s.certs.Load(ctx, []certs.Source{{Files: &certs.Files{Cert: s.certFile, Key: s.keyFile}}})
	if err != nil {
		t.Fatal(err)
	}
	s.certs.Install(set)
}

// newRedis starts a real server and a Store on it.
func (s *stack) newRedis(t *testing.T, logger *slog.Logger) {
	t.Helper()
	addr := testtool.FreeAddr(t)
	host, port, _ := net.SplitHostPort(addr)
	s.redis = start(t, testtool.Require(t, "redis-server", "redis-server"), "--bind", host, "--port", port, "--save", "", "--dir", t.TempDir())
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(strings.Repeat("00112233445566778899aabbccddeeff", 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.store = must(store.New(store.Options{Addresses: []string{addr}, KeyFile: keys, Timeout: 5 * time.Second, Logger: logger}))
	t.Cleanup(func() { s.store.Close() })
	testtool.Eventually(t, "redis answers", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	must(s.store.Staples().Get(t.Context(), [32]byte{})) // what handshakes ask next finds a connection
}

func (s *stack) newBackend(t *testing.T, ctx context.Context, o options, logger *slog.Logger) {
	t.Helper()
	if o.backend == nil {
		o.backend = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, "hello")
		})
	}
	s.backend = httptest.NewServer(o.backend)
	t.Cleanup(s.backend.Close)
	s.pool = must(upstream.New(upstream.Options{
		Name: "web", Backends: []upstream.Backend{{URL: s.backend.URL}}, Health: o.health, Logger: logger,
	}))
}

func (s *stack) newMetrics(t *testing.T, logger *slog.Logger) {
	t.Helper()
	options := metrics.Options{
		Version: "v0.0.0-test", Revision: "abcdef",
		Front:        func() front.Stats { return s.front.Stats() },
		Upgraded:     s.upgrades.Len,
		Sessions:     s.sessions.Stats,
		OCSP:         s.stapler.Stats,
		ClientOCSP:   must(ocsp.NewClientChecker(ocsp.CheckerOptions{})).Stats,
		Staples:      s.stapler.Status,
		Certificates: s.certs.Status,
		CertStats:    s.certs.Stats,
		Memory:       must(memwatch.New(memwatch.Options{Shed: func(int64) int64 { return 0 }})).Status,
		Upstreams:    func() []upstream.Status { return []upstream.Status{s.pool.Status()} },
		AccessLog:    s.access.Stats,
		Config:       s.configStats,
		Logger:       logger,
	}
	if s.store != nil {
		options.Store = s.store.Status
	}
	s.metrics = metrics.New(options)
	s.admin = must(admin.New(admin.Options{
		Status: s.status, Metrics: s.metrics.Handler(), Reload: s.doReload, Revoke: s.sessions.Revoke,
		Sites: func() []string { return []string{"a", "b"} }, Logger: logger,
	}))
}

func (s *stack) configStats() metrics.ConfigStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// doReload stands for the reload of the program, which is not of this package.
func (s *stack) doReload(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.LastFailed = s.reload != nil
	if s.reload != nil {
		s.config.ReloadFailures++
		return s.reload
	}
	s.config.Reloads++
	s.config.Generation++
	s.config.Loaded = time.Now()
	return nil
}

func (s *stack) status() admin.Status {
	c := s.configStats()
	st := admin.Status{
		Version: "v0.0.0-test", Started: s.started,
		Config: admin.Config{
			Path: "/etc/tlsproxy/config.yaml", Generation: c.Generation, Loaded: c.Loaded,
			Reloads: c.Reloads, ReloadFailures: c.ReloadFailures, LastReloadOK: !c.LastFailed,
		},
		Listeners: s.front.Status(), Front: s.front.Stats(), Upgraded: s.upgrades.Len(),
		Certificates: s.certs.Status(), CertificateStats: s.certs.Stats(),
		Staples: s.stapler.Status(), OCSP: s.stapler.Stats(), Sessions: s.sessions.Status(),
		Upstreams: []upstream.Status{s.pool.Status()},
	}
	if c.LastFailed {
		st.Config.LastError = s.reload.Error()
	}
	st.Caches = []admin.Cache{
		{Name: "session", Entries: st.Sessions.Entries, Capacity: st.Sessions.Capacity, Bytes: st.Sessions.Bytes, MaxBytes: st.Sessions.MaxBytes, Evictions: st.Sessions.Evictions},
		{Name: "ocsp", Entries: st.OCSP.Cache.Entries, Capacity: st.OCSP.Cache.Capacity, Bytes: st.OCSP.Cache.Bytes, Hits: st.OCSP.Cache.Hits, Misses: st.OCSP.Cache.Misses},
	}
	return st
}

// newFront makes two sites with one certificate and the HTTP server behind them.
func (s *stack) newFront(t *testing.T, o options, logger *slog.Logger) *http.Server {
	t.Helper()
	s.front = must(front.New(front.Options{Sessions: s.sessions, Observer: s.metrics, Logger: logger}))
	var sites []front.Site
	for _, name := range []string{"a", "b"} {
		policy := must(front.NewPolicy(front.PolicyOptions{
			Site: name, MaxVersion: o.maxTLS, Keys: s.certs.Keys,
			GetCertificate: s.stapler.GetCertificate(s.certs.GetCertificate),
		}))
		sites = append(sites, front.Site{Hosts: []string{name + ".test"}, Policy: policy})
	}
	table := must(front.NewTable(front.TableOptions{Sites: sites, Default: sites[0].Policy, RejectUnknownSNI: o.reject}))
	change, err := s.front.Prepare(front.Config{
		Listeners: []front.ListenerOptions{{Address: "127.0.0.1:0", Table: table}}, Limits: o.limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	change.Install()
	s.addr = s.front.Status()[0].Bound[0]
	handler := must(proxy.New(proxy.Options{
		Sites: []proxy.Site{
			{Name: "a", Hosts: []string{"a.test"}, Routes: []proxy.Route{{Path: "/", Upstream: s.pool, UpstreamName: "web"}}},
			{Name: "b", Hosts: []string{"b.test"}, Routes: []proxy.Route{{Path: "/api", Upstream: s.pool, UpstreamName: "web"}}},
		},
		Observer: observers{s.metrics, s.access}, Upgrades: s.upgrades, Logger: logger,
	}))
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ConnContext: front.ConnContext,
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// observers tells several of each request.
type observers []proxy.Observer

func (o observers) Request(r *proxy.Record) {
	for _, each := range o {
		each.Request(r)
	}
}

// waitStaple waits until the staple is there.
func (s *stack) waitStaple(t *testing.T) {
	t.Helper()
	testtool.Eventually(t, "the staple was fetched", func() bool { return s.stapler.Stats().Stapled == 1 })
}

// client is an HTTP client whose every request is a connection of its own, and
// which resumes sessions.
func (s *stack) client(t *testing.T, version uint16) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.Certificate)
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: version, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(8)},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get makes a request and returns its status.
func get(t *testing.T, c *http.Client, method, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// scrape reads the metrics as Prometheus does and returns every series by its
// name with labels.
func (s *stack) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Host = "127.0.0.1"
	s.admin.ServeHTTP(rec, req)
	if rec.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", rec.Code, rec.Body)
	}
	series := map[string]float64{}
	for line := range strings.Lines(rec.Body.String()) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		var v float64
		if _, err := fmt.Sscan(line[i+1:], &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		series[line[:i]] = v
	}
	return series
}

// want compares series by name.
func want(t *testing.T, got map[string]float64, series string, value float64) {
	t.Helper()
	v, there := got[series]
	if !there || v != value {
		t.Errorf("%s = %v (present: %t); want %v", series, v, there, value)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	return string(must(os.ReadFile(path)))
}
