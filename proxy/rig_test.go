package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/upstream"
)

func TestMain(m *testing.M) {
	// The server lets refused clients read the answer for half a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// The two protocols that clients speak.
const (
	h1 = "HTTP/1.1"
	h2 = "HTTP/2.0"
)

// eachProtocol runs a test over HTTP/1.1 and over HTTP/2.
func eachProtocol(t *testing.T, f func(t *testing.T, proto string)) {
	for _, proto := range []string{h1, h2} {
		t.Run(proto, func(t *testing.T) { f(t, proto) })
	}
}

// testPKI is one CA with a server certificate for all tests.
var testPKI = sync.OnceValues(func() (*pki.CA, *tls.Certificate) {
	ca, err := pki.NewRoot(pki.CAOptions{Name: "proxy test CA"})
	if err != nil {
		panic(err)
	}
	cert, err := ca.Issue(pki.Request{Names: []string{"app.test", "*.app.test", "other.test", "127.0.0.1"}})
	if err != nil {
		panic(err)
	}
	return ca, cert
})

// rig is a handler behind a real TLS server.
type rig struct {
	t       testing.TB
	proto   string
	addr    string
	handler *Handler
	client  *http.Client
	records chan Record
}

// clientTLS returns a configuration that trusts the rig.
func clientTLS(proto string) *tls.Config {
	ca, _ := testPKI()
	cfg := &tls.Config{RootCAs: ca.Pool(), ServerName: "app.test", NextProtos: []string{"http/1.1"}}
	if proto == h2 {
		cfg.NextProtos = []string{"h2"}
	}
	return cfg
}

// startRig serves opts; the sites default to app.test with everything on upstream.
func startRig(t testing.TB, proto string, up http.RoundTripper, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, proto: proto, records: make(chan Record, 1000)}
	opts := Options{
		Sites:    []Site{{Hosts: []string{"app.test"}, Routes: []Route{{Path: "/", Upstream: up}}}},
		ConnInfo: connInfo,
		Observer: observerFunc(r.keep),
		Logger:   slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	h, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	r.handler = h
	r.serve()
	return r
}

// keep keeps a record unless there are a thousand that nobody asked for.
func (r *rig) keep(rec *Record) {
	select {
	case r.records <- *rec:
	default:
	}
}

type observerFunc func(*Record)

func (f observerFunc) Request(r *Record) { f(r) }

type tlsConnKey struct{}

// connInfo tells of the connection of a rig what a front would tell.
func connInfo(ctx context.Context) *Conn {
	conn, ok := ctx.Value(tlsConnKey{}).(*tls.Conn)
	if !ok {
		return nil
	}
	cs := conn.ConnectionState()
	addr, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	c := &Conn{
		TLS: true, SNI: cs.ServerName, Version: cs.Version, CipherSuite: cs.CipherSuite, Resumed: cs.DidResume, Client: addr,
	}
	if len(cs.VerifiedChains) > 0 {
		c.ClientChain = cs.VerifiedChains[0]
	}
	return c
}

func (r *rig) serve() {
	ca, cert := testPKI()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{*cert},
		NextProtos:   []string{"h2", "http/1.1"},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    ca.Pool(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	srv := &http.Server{
		Handler:           r.handler,
		ReadHeaderTimeout: 10 * time.Second,

		DisableGeneralOptionsHandler: true,

		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, tlsConnKey{}, c)
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln)
	}()
	r.addr = ln.Addr().String()
	r.client = r.newClient(clientTLS(r.proto))
	r.t.Cleanup(func() {
		r.client.CloseIdleConnections()
		srv.Close()
		<-done
	})
}

// newClient returns a client whose requests all reach the rig.
func (r *rig) newClient(cfg *tls.Config) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(r.proto == h1)
	protocols.SetHTTP2(r.proto == h2)
	tr := &http.Transport{
		Protocols:             protocols,
		TLSClientConfig:       cfg,
		DisableCompression:    true,
		ExpectContinueTimeout: 10 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", r.addr)
		},
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial opens a TLS connection to write bytes to.
func (r *rig) dial() *tls.Conn {
	r.t.Helper()
	conn, err := tls.Dial("tcp", r.addr, clientTLS(r.proto))
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// request builds a request for https://app.test + target.
func (r *rig) request(method, target string, body io.Reader) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "https://app.test"+target, body)
	if err != nil {
		r.t.Fatal(err)
	}
	return req
}

// do sends a request and returns the response with its body read.
func (r *rig) do(req *http.Request) (*http.Response, string) {
	r.t.Helper()
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("%s %s: body: %v", req.Method, req.URL, err)
	}
	if res.Proto != r.proto {
		r.t.Fatalf("answered in %s, want %s", res.Proto, r.proto)
	}
	return res, string(body)
}

func (r *rig) get(target string) (*http.Response, string) {
	r.t.Helper()
	return r.do(r.request("GET", target, nil))
}

// record waits for the record of a request.
func (r *rig) record() Record {
	r.t.Helper()
	select {
	case rec := <-r.records:
		return rec
	case <-time.After(10 * time.Second):
		r.t.Fatal("no record of the request")
		return Record{}
	}
}

// backend starts an HTTP/1.1 backend and returns a pool of it.
func backend(t testing.TB, h http.HandlerFunc) *upstream.Pool {
	t.Helper()
	return poolOf(t, startBackend(t, h))
}

// startBackend starts an HTTP/1.1 backend and returns its URL.
func startBackend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// poolOf returns a pool of backends.
func poolOf(t testing.TB, urls ...string) *upstream.Pool {
	t.Helper()
	opts := upstream.Options{Name: "pool", Logger: slog.New(slog.DiscardHandler)}
	for _, u := range urls {
		opts.Backends = append(opts.Backends, upstream.Backend{URL: u})
	}
	return newPool(t, opts)
}

func newPool(t testing.TB, opts upstream.Options) *upstream.Pool {
	t.Helper()
	pool, err := upstream.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.CloseIdleConnections)
	return pool
}

// echoBackend answers with its name and the request target as it came.
func echoBackend(t *testing.T, name string) *upstream.Pool {
	return backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", name, r.RequestURI)
	})
}

// headerBackend answers with the headers it got, one "name: value" a line.
func headerBackend(t *testing.T) *upstream.Pool {
	return backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Host: %s\n", r.Host)
		r.Header.Write(w)
	})
}

// headerLines splits what headerBackend answered, by name.
func headerLines(body string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ": "); ok {
			h[name] = append(h[name], value)
		}
	}
	return h
}

func clientCertificate(t *testing.T, r pki.Request) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	ca, _ := testPKI()
	r.Client = true
	cert, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return *cert, cert.Leaf
}

// policyID is that of a site whose policy stays what it is.
func policyID(id string) func() string { return func() string { return id } }

// withPolicy is connInfo for connections of one policy.
func withPolicy(id string) func(context.Context) *Conn {
	return func(ctx context.Context) *Conn {
		c := connInfo(ctx)
		c.PolicyID = id
		return c
	}
}

func newH2CServer(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	return srv
}
