package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server starts a backend and returns its address.
func server(t *testing.T, h http.HandlerFunc, change ...func(*httptest.Server)) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	for _, c := range change {
		c(srv)
	}
	if srv.TLS != nil {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// named answers with a name and the protocol.
func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, " ", r.Proto) }
}

func newPool(t *testing.T, opts Options, urls ...string) *Pool {
	t.Helper()
	opts.Name = "test"
	opts.Logger = slog.New(slog.DiscardHandler)
	for _, u := range urls {
		opts.Backends = append(opts.Backends, Backend{URL: u})
	}
	p, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.CloseIdleConnections)
	return p
}

func request(t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://app.test/path?q", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// get sends a GET and returns the body, or the error in words.
func get(t *testing.T, p *Pool) string {
	t.Helper()
	return send(t, p, request(t, "GET", nil))
}

func send(t *testing.T, p *Pool, req *http.Request) string {
	t.Helper()
	res, err := p.RoundTrip(req)
	if err != nil {
		return "error: " + err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func TestSchemes(t *testing.T) {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(pki.Request{Names: []string{"backend.test"}})
	if err != nil {
		t.Fatal(err)
	}
	withTLS := func(protos ...string) func(*httptest.Server) {
		return func(s *httptest.Server) {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: protos}
			s.EnableHTTP2 = protos[0] == "h2"
		}
	}
	h2c := func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	unix := func(path string) func(*httptest.Server) {
		return func(s *httptest.Server) {
			s.Listener.Close()
			if s.Listener, err = net.Listen("unix", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	server(t, named("unix"), unix(filepath.Join(dir, "h1")))
	server(t, named("unix"), unix(filepath.Join(dir, "h2")), h2c)
	tlsOptions := TLS{RootCAs: ca.Pool(), ServerName: "backend.test"}
	tests := []struct {
		name string
		url  string
		tls  TLS
		want string
	}{
		{"http", "http://" + server(t, named("plain")), TLS{}, "plain HTTP/1.1"},
		{"http with a slash", "http://" + server(t, named("plain")) + "/", TLS{}, "plain HTTP/1.1"},
		{"h2c", "h2c://" + server(t, named("h2c"), h2c), TLS{}, "h2c HTTP/2.0"},
		{"https, HTTP/2", "https://" + server(t, named("tls"), withTLS("h2", "http/1.1")), tlsOptions, "tls HTTP/2.0"},
		{"https, HTTP/1.1", "https://" + server(t, named("tls"), withTLS("http/1.1")), tlsOptions, "tls HTTP/1.1"},
		{"h2", "h2://" + server(t, named("tls"), withTLS("h2")), tlsOptions, "tls HTTP/2.0"},
		{"h2 to HTTP/1.1", "h2://" + server(t, named("tls"), withTLS("http/1.1")), tlsOptions, "error: *no application protocol"},
		{"unix", "unix:" + filepath.Join(dir, "h1"), TLS{}, "unix HTTP/1.1"},
		{"unix with slashes", "unix://" + filepath.Join(dir, "h1"), TLS{}, "unix HTTP/1.1"},
		{"unix+h2c", "unix+h2c:" + filepath.Join(dir, "h2"), TLS{}, "unix HTTP/2.0"},
		{"unix, missing", "unix:" + filepath.Join(dir, "none"), TLS{}, "error: *no such file"},
		{"unknown CA", "https://" + server(t, named("tls"), withTLS("http/1.1")), TLS{ServerName: "backend.test"}, "error: *unknown authority"},
		{"wrong name", "https://" + server(t, named("tls"), withTLS("http/1.1")), TLS{RootCAs: ca.Pool()}, "error: *127.0.0.1"},
		{"unverified", "https://" + server(t, named("tls"), withTLS("http/1.1")), TLS{InsecureSkipVerify: true}, "tls HTTP/1.1"},
		{"plain to TLS", "http://" + server(t, named("tls"), withTLS("http/1.1")), TLS{}, "Client sent an HTTP request to an HTTPS server.\n"},
		{"TLS to plain", "https://" + server(t, named("plain")), tlsOptions, "error: *first record does not look like a TLS handshake"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool(t, Options{TLS: tt.tls, EjectAfter: -1}, tt.url)
			for range 2 {
				got := get(t, p)
				if text, isErr := strings.CutPrefix(tt.want, "error: *"); isErr {
					if !strings.HasPrefix(got, "error: upstream \"test\": backend \""+tt.url) || !strings.Contains(got, text) {
						t.Errorf("got %q, want an error with %q", got, text)
					}
				} else if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
		})
	}
}

func TestClientCertificate(t *testing.T) {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := ca.Issue(pki.Request{Names: []string{"127.0.0.1"}})
	client, err := ca.Issue(pki.Request{CommonName: "proxy", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	addr := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	})
	p := newPool(t, Options{TLS: TLS{RootCAs: ca.Pool(), Certificates: []tls.Certificate{*client}}}, "https://"+addr)
	if got := get(t, p); got != "proxy" {
		t.Errorf("got %q", got)
	}
	p = newPool(t, Options{TLS: TLS{RootCAs: ca.Pool()}}, "https://"+addr)
	if got := get(t, p); !strings.HasPrefix(got, "error: ") {
		t.Errorf("without a certificate: got %q", got)
	}
}

func TestNewErrors(t *testing.T) {
	tests := map[string]Options{
		"no backends":      {},
		"unknown scheme":   {Backends: []Backend{{URL: "ftp://a"}}},
		"no scheme":        {Backends: []Backend{{URL: "localhost"}}},
		"no host":          {Backends: []Backend{{URL: "http://"}}},
		"absolute":         {Backends: []Backend{{URL: "unix:run/x"}}},
		"only scheme":      {Backends: []Backend{{URL: "http://a/base"}}},
		"user information": {Backends: []Backend{{URL: "http://u:secret@a"}}},
		"port":             {Backends: []Backend{{URL: "http://a:0"}}},
		"invalid":          {Backends: []Backend{{URL: "http://a b"}}},
		"listed twice":     {Backends: []Backend{{URL: "http://a"}, {URL: "http://a"}}},
		"begin with":       {Backends: []Backend{{URL: "http://a"}}, Health: Health{Path: "healthz"}},
		"threshold":        {Backends: []Backend{{URL: "http://a"}}, Health: Health{Path: "/", Fall: -1}},
		"no status":        {Backends: []Backend{{URL: "http://a"}}, Health: Health{Path: "/", StatusMin: 500}},
		"unknown balance":  {Backends: []Backend{{URL: "http://a"}}, Balance: 9},
		"negative":         {Backends: []Backend{{URL: "http://a"}}, DialTimeout: -1},
	}
	for want, opts := range tests {
		opts.Name = "web"
		_, err := New(opts)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `upstream "web"`) {
			t.Errorf("%s: got %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells a password: %v", err)
		}
	}
	_, err := New(Options{Backends: []Backend{{URL: "ftp://a"}, {URL: "http://a/b"}}})
	if err == nil || !strings.Contains(err.Error(), "backends[0]") || !strings.Contains(err.Error(), "backends[1]") {
		t.Errorf("not every error is reported: %v", err)
	}
}

func TestRoundRobin(t *testing.T) {
	p := newPool(t, Options{}, "http://"+server(t, named("a")), "http://"+server(t, named("b")), "http://"+server(t, named("c")))
	var got strings.Builder
	for range 7 {
		got.WriteString(get(t, p)[:1])
	}
	if got.String() != "abcabca" {
		t.Errorf("got %s", &got)
	}
}

// hold is a backend that answers at once and ends when it is released.
func hold(name string, release <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, name)
		http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
}

// start begins a request and leaves it in flight.
func start(t *testing.T, p *Pool) (name string, body io.ReadCloser) {
	t.Helper()
	res, err := p.RoundTrip(request(t, "GET", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	first := make([]byte, 1)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	return string(first), res.Body
}

func TestLeastConn(t *testing.T) {
	for _, balance := range []Balance{LeastConn, RandomTwo} {
		release := make(chan struct{})
		p := newPool(t, Options{Balance: balance}, "http://"+server(t, hold("a", release)), "http://"+server(t, hold("b", release)))
		counts := map[string]int{}
		var ofA []io.ReadCloser
		for range 6 {
			name, body := start(t, p)
			counts[name]++
			if name == "a" {
				ofA = append(ofA, body)
			}
		}
		if counts["a"] != 3 || counts["b"] != 3 {
			t.Errorf("balance %d: in flight %v, want 3 each", balance, counts)
		}
		ofA[0].Close()
		ofA[1].Close()
		for range 2 {
			if name, _ := start(t, p); name != "a" {
				t.Errorf("balance %d: took %s, want a, which has fewer in flight", balance, name)
			}
		}
		close(release)
	}
}

func TestMaxRequests(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for _, n := range []int{1, 2} {
		var urls []string
		for i := range n {
			urls = append(urls, "http://"+server(t, hold(fmt.Sprint(i), release)))
		}
		p := newPool(t, Options{MaxRequests: 2}, urls...)
		var last io.ReadCloser
		for range 2 * n {
			_, last = start(t, p)
		}
		_, err := p.RoundTrip(request(t, "GET", nil))
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%d backends: got %v, want ErrBusy", n, err)
		}
		last.Close()
		start(t, p)
	}
}

// A connection that could not be made is tried elsewhere, with the body.
func TestRetry(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }
	p := newPool(t, Options{EjectAfter: -1}, "http://"+closedPort(t), "http://"+server(t, echo))
	for range 4 {
		var trace Trace
		req := request(t, "POST", io.NopCloser(strings.NewReader("body")))
		req.ContentLength = 4
		if got := send(t, p, req.WithContext(WithTrace(req.Context(), &trace))); got != "body" {
			t.Errorf("got %q", got)
		}
		if trace.Upstream != "test" || trace.Backend != p.backends[1].url || trace.Tries < 1 || trace.Tries > 2 {
			t.Errorf("traced %+v", &trace)
		}
	}
	if s := p.Status().Backends[0]; s.Failures != s.Requests || s.Failures == 0 || !strings.Contains(s.LastError, "refused") || s.InFlight != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestRetryLimit(t *testing.T) {
	var urls []string
	for range 5 {
		urls = append(urls, "http://"+closedPort(t))
	}
	for retries, want := range map[int]int{0: 3, -1: 1, 1: 2, 9: 5} {
		p := newPool(t, Options{Retries: retries, EjectAfter: -1}, urls...)
		var trace Trace
		req := request(t, "GET", nil)
		_, err := p.RoundTrip(req.WithContext(WithTrace(req.Context(), &trace)))
		if err == nil || trace.Tries != want {
			t.Errorf("retries %d: %d tries, %v; want %d", retries, trace.Tries, err, want)
		}
	}
}

// dropper is a backend that reads a request and closes the connection.
func dropper(t *testing.T, seen *atomic.Int64) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		seen.Add(1)
		panic(http.ErrAbortHandler)
	})
}

// What a backend may have begun to work on is never sent again.
func TestNoRetryAfterSending(t *testing.T) {
	var first, second atomic.Int64
	p := newPool(t, Options{}, "http://"+dropper(t, &first), "http://"+dropper(t, &second))
	for i, method := range []string{"POST", "GET", "POST"} {
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader("x")
		}
		if got := send(t, p, request(t, method, body)); !strings.HasPrefix(got, "error: ") {
			t.Errorf("got %q", got)
		}
		if n := first.Load() + second.Load(); n != int64(i+1) {
			t.Errorf("%d requests arrived after %d were sent", n, i+1)
		}
	}
}

// bodyCloser tells of its Close.
type bodyCloser struct {
	io.Reader
	closed chan struct{}
}

func (b *bodyCloser) Close() error {
	select {
	case b.closed <- struct{}{}:
	default:
	}
	return nil
}

// The request body is closed in the end, as http.RoundTripper demands.
func TestBodyIsClosed(t *testing.T) {
	ok, dead := "http://"+server(t, named("a")), "http://"+closedPort(t)
	for _, urls := range [][]string{{ok}, {dead}, {dead, ok}} {
		p := newPool(t, Options{EjectAfter: -1}, urls...)
		b := &bodyCloser{Reader: strings.NewReader("body"), closed: make(chan struct{}, 1)}
		req := request(t, "POST", b)
		req.ContentLength = 4
		send(t, p, req)
		select {
		case <-b.closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d backends: the body was not closed", len(urls))
		}
	}
}

// A backend may close a kept connection just when the next request comes.
func TestStaleConnection(t *testing.T) {
	var network memnet.Network
	ln, err := network.Listen("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var heads atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			br := bufio.NewReader(c)
			for n := range 2 {
				if _, err := http.ReadRequest(br); err != nil {
					break
				}
				heads.Add(1)
				if n == 0 {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}
			c.Close()
		}
	}()
	p := newPool(t, Options{dial: network.DialContext}, "http://192.0.2.1:80")
	for i, tt := range []struct {
		method string
		ok     bool
	}{{"GET", true}, {"GET", true}, {"POST", false}, {"POST", true}} {
		if got := send(t, p, request(t, tt.method, nil)); (got == "ok") != tt.ok {
			t.Errorf("request %d: %s got %q", i, tt.method, got)
		}
	}
	if n := heads.Load(); n != 5 {
		t.Errorf("%d requests arrived, want 4 and one of them twice", n)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var conns atomic.Int64
	addr := server(t, named("a"), func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns.Add(1)
			}
		}
	})
	p := newPool(t, Options{}, "http://"+addr)
	const clients = 20
	for range 3 {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() { get(t, p) })
		}
		wg.Wait()
	}
	if n := conns.Load(); n > clients {
		t.Errorf("%d connections for %d requests at a time", n, clients)
	}
	var trace Trace
	req := request(t, "GET", nil)
	send(t, p, req.WithContext(WithTrace(req.Context(), &trace)))
	if trace.Connect() != 0 {
		t.Errorf("connect time %v on a kept connection", trace.Connect())
	}
	p.CloseIdleConnections()
	req = request(t, "GET", nil)
	send(t, p, req.WithContext(WithTrace(req.Context(), &trace)))
	if trace.Connect() <= 0 {
		t.Error("no connect time on a new connection")
	}
}

func TestTimeouts(t *testing.T) {
	release := make(chan struct{})
	silent := "http://" + server(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	p := newPool(t, Options{ResponseHeaderTimeout: 30 * time.Millisecond}, silent)
	_, err := p.RoundTrip(request(t, "GET", nil))
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("silent backend: got %v, want ErrTimeout", err)
	}
	// gRPC servers may be silent.
	req := request(t, "POST", nil)
	req.Header.Set("Content-Type", "application/grpc+proto")
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	if got := send(t, p, req); got != "" {
		t.Errorf("silent gRPC backend: got %q", got)
	}

	// A port that accepts and never shakes hands.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p = newPool(t, Options{DialTimeout: 30 * time.Millisecond}, "https://"+ln.Addr().String())
	if _, err := p.RoundTrip(request(t, "GET", nil)); !errors.Is(err, ErrTimeout) {
		t.Errorf("handshake: got %v, want ErrTimeout", err)
	}
}

func TestClientGone(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	p := newPool(t, Options{}, "http://"+server(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.RoundTrip(request(t, "GET", nil).WithContext(ctx))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		t.Errorf("got %v: the client's deadline is not the backend's fault", err)
	}
	if s := p.Status().Backends[0]; s.Failures != 0 || s.InFlight != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestRetire(t *testing.T) {
	release := make(chan struct{})
	p := newPool(t, Options{}, "http://"+server(t, hold("a", release)))
	if err := p.Retire(t.Context()); err != nil {
		t.Errorf("nothing in flight: %v", err)
	}
	_, body := start(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Retire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one in flight: %v", err)
	}
	close(release)
	go io.Copy(io.Discard, body)
	if err := p.Retire(t.Context()); err != nil {
		t.Errorf("in flight and ending: %v", err)
	}
}

// roundTripFunc is a transport without a network.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOwnTransport(t *testing.T) {
	var got *http.Request
	own := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		got = r
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	p := newPool(t, Options{Backends: []Backend{{URL: "builtin:echo", Transport: own}}, Health: Health{Path: "/"}})
	req := request(t, "GET", nil)
	res, err := p.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got.URL.Host != "app.test" || got.Host != "app.test" {
		t.Errorf("the transport got %v, Host %q", got.URL, got.Host)
	}
	if s := p.Status().Backends[0]; s.Backend != "builtin:echo" || !s.Up() || s.Requests != 1 || s.InFlight != 0 {
		t.Errorf("status %+v", s)
	}
	if _, err := New(Options{Backends: []Backend{{Transport: own}}}); err == nil {
		t.Error("a transport without a name is accepted")
	}
}

// The caller's request is not changed, and leaves with its own Host.
func TestRequestIsLeftAlone(t *testing.T) {
	p := newPool(t, Options{}, "http://"+server(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, " ", r.RequestURI, " ", r.Header["Accept-Encoding"])
	}))
	req := request(t, "GET", nil)
	if got := send(t, p, req); got != "app.test /path?q []" {
		t.Errorf("the backend got %q", got)
	}
	if req.URL.String() != "http://app.test/path?q" {
		t.Errorf("the request was changed to %v", req.URL)
	}
}

func TestPickAllocates(t *testing.T) {
	own := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, io.EOF })
	for _, balance := range []Balance{RoundRobin, LeastConn, RandomTwo} {
		p := newPool(t, Options{Balance: balance, Backends: []Backend{{URL: "a", Transport: own}, {URL: "b", Transport: own}, {URL: "c", Transport: own}}})
		n := testing.AllocsPerRun(100, func() {
			b, err := p.acquire(nil)
			if err != nil {
				t.Fatal(err)
			}
			b.release()
		})
		if n != 0 {
			t.Errorf("balance %d: choosing a backend allocates %v times", balance, n)
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello, world\n") }))
	defer srv.Close()
	p, err := New(Options{Backends: []Backend{{URL: srv.URL}}})
	if err != nil {
		b.Fatal(err)
	}
	defer p.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(b.Context(), "GET", "http://app.test/", nil)
	b.ReportAllocs()
	for b.Loop() {
		res, err := p.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}
