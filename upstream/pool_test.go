package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
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

// traced has t filled by the pool that gets req.
func traced(req *http.Request, t *Trace) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), TraceKey{}, t))
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
	// http.Transport dials beside waiting for a connection, so there may be a few more.
	if n := conns.Load(); n > 2*clients {
		t.Errorf("%d connections for 3 times %d requests at a time", n, clients)
	}
	var trace Trace
	req := request(t, "GET", nil)
	send(t, p, traced(req, &trace))
	if trace.Connect() != 0 {
		t.Errorf("connect time %v on a kept connection", trace.Connect())
	}
	p.CloseIdleConnections()
	req = request(t, "GET", nil)
	send(t, p, traced(req, &trace))
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
