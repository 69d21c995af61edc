package front

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
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childEnv); address != "" {
		os.Exit(activationChild(address))
	}
	goleak.VerifyTestMain(m)
}

const (
	listenAddr = "192.0.2.1:443"
	clientAddr = "203.0.113.7:5000"
)

// certStore is the certificates of a rig by server name, "" for all others.
type certStore struct {
	mu    sync.Mutex
	certs map[string]*identity
}

func (s *certStore) set(name string, id *identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certs[name] = id
}

func (s *certStore) find(name string) *identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := s.certs[name]; id != nil {
		return id
	}
	return s.certs[""]
}

func (s *certStore) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name, _ := CanonicalName(hello.ServerName)
	return s.find(name).tls(), nil
}

func (s *certStore) keys(name string) [][32]byte { return [][32]byte{s.find(name).keyID()} }

// recorder is an Observer that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	events []Handshake
}

func (r *recorder) Handshake(h Handshake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, h)
}

func (r *recorder) reasons() []Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Reason
	for _, h := range r.events {
		all = append(all, h.Reason)
	}
	return all
}

// rig is a Front with an http.Server behind it on a network in memory.
type rig struct {
	t        testing.TB
	network  memnet.Network
	ca       *identity
	certs    *certStore
	sessions *session.Resumer
	observer *recorder
	front    *Front
	server   *http.Server
	stop     func() // ends Run, then the server; safe to call twice
}

// rigOptions is what tests set; the zero value is one site for every name.
type rigOptions struct {
	pki       *identity // made before a bubble, whose certificates must fit its clock
	cert      *identity
	listeners func(*rig) []ListenerOptions
	limits    Limits
	sessions  session.Options
	noStart   bool
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, ca: o.pki, certs: &certStore{certs: make(map[string]*identity)}, observer: &recorder{}}
	if r.ca == nil {
		r.ca = newCA(t, "server ca")
	}
	if o.cert == nil {
		o.cert = newServer(t, r.ca, newKey(t), "app.example", "*.example", "other.test", "*.other.test")
	}
	r.certs.set("", o.cert)
	log := testLog(t)
	o.sessions.Logger = log
	var err error
	if r.sessions, err = session.New(o.sessions); err != nil {
		t.Fatal(err)
	}
	r.front, err = New(Options{
		Sessions: r.sessions, Observer: r.observer, Logger: log,
		Listen: func(network, address string) (net.Listener, error) { return r.network.Listen(network, address) },
	})
	if err != nil {
		t.Fatal(err)
	}
	listeners := []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "default"}))}}
	if o.listeners != nil {
		listeners = o.listeners(r)
	}
	r.install(Config{Listeners: listeners, Limits: o.limits})
	if !o.noStart {
		r.start(log)
		t.Cleanup(func() { r.stop() })
	}
	return r
}

func testLog(t testing.TB) *slog.Logger {
	if _, many := t.(*testing.T); !many {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start runs the front and a server that answers with what it knows of the
// connection.
func (r *rig) start(log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	ran, served := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ran)
		if err := r.front.Run(ctx); err != nil {
			r.t.Errorf("Run = %v", err)
		}
	}()
	r.server = &http.Server{
		Handler:     http.HandlerFunc(describeConn),
		ConnContext: ConnContext,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelInfo),
	}
	go func() {
		defer close(served)
		if err := r.server.Serve(r.front.Listener()); err != http.ErrServerClosed {
			r.t.Errorf("Serve = %v", err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-ran
		_ = r.server.Close()
		<-served
		r.checkPlaces()
	})
}

// checkPlaces demands that every place was given back, exactly once. The server
// may still be closing its last connections.
func (r *rig) checkPlaces() {
	r.t.Helper()
	f := r.front
	held := func() [4]int {
		f.gate.mu.Lock()
		defer f.gate.mu.Unlock()
		f.shakes.mu.Lock()
		defer f.shakes.mu.Unlock()
		f.clients.mu.Lock()
		defer f.clients.mu.Unlock()
		clients := 0
		for _, n := range f.clients.open {
			clients += n
		}
		return [4]int{f.gate.held, f.shakes.held, clients, f.Stats().Open}
	}
	testtool.Eventually(r.t, "all places to be given back", func() bool { return held() == [4]int{} })
}

// describeConn answers with the facts of the connection, one word each.
func describeConn(w http.ResponseWriter, req *http.Request) {
	i := FromContext(req.Context())
	client := ""
	if len(i.VerifiedChains) > 0 {
		client = i.VerifiedChains[0][0].Subject.CommonName
	}
	fmt.Fprintf(w, "site=%s sni=%s resumed=%v alpn=%s proto=%s client=%s addr=%s proxy=%s remote=%s session=%s",
		i.Site, i.ServerName, i.Resumed, i.ALPN, req.Proto, client, i.Client, i.Proxy, req.RemoteAddr, i.Session)
}

func (r *rig) policy(o PolicyOptions) *Policy {
	r.t.Helper()
	if o.GetCertificate == nil {
		o.GetCertificate, o.Keys = r.certs.getCertificate, r.certs.keys
	}
	p, err := NewPolicy(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) table(fallback *Policy, sites ...Site) *Table {
	r.t.Helper()
	t, err := NewTable(TableOptions{Sites: sites, Default: fallback, RejectUnknownSNI: fallback == nil})
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) install(c Config) {
	r.t.Helper()
	change, err := r.front.Prepare(c)
	if err != nil {
		r.t.Fatal(err)
	}
	change.Install()
}

// client is the config of a client that trusts the rig.
func (r *rig) client(name string, version uint16, cache tls.ClientSessionCache) *tls.Config {
	return &tls.Config{
		ServerName: name, RootCAs: r.ca.pool(), MinVersion: version, MaxVersion: version, ClientSessionCache: cache,
	}
}

func (r *rig) dial() net.Conn { return r.dialFrom(clientAddr, listenAddr) }

func (r *rig) dialFrom(from, to string) net.Conn {
	r.t.Helper()
	c, err := r.network.DialFrom(context.Background(), from, to)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// visit makes a connection, asks for a page and returns the answer.
func (r *rig) visit(config *tls.Config) (tls.ConnectionState, string, error) {
	r.t.Helper()
	return visitOver(r.dial(), config)
}

func visitOver(raw net.Conn, config *tls.Config) (tls.ConnectionState, string, error) {
	defer raw.Close()
	c := tls.Client(raw, config)
	if err := c.Handshake(); err != nil {
		return tls.ConnectionState{}, "", err
	}
	host := config.ServerName
	if host == "" {
		host = "none.invalid"
	}
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return tls.ConnectionState{}, "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return tls.ConnectionState{}, "", err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return tls.ConnectionState{}, "", err
	}
	_, _ = io.Copy(io.Discard, c) // the server's goodbye: it is done with us
	return c.ConnectionState(), string(body), nil
}

// mustVisit is visit that must succeed.
func (r *rig) mustVisit(config *tls.Config) (tls.ConnectionState, string) {
	r.t.Helper()
	state, body, err := r.visit(config)
	if err != nil {
		r.t.Fatalf("visit to %q: %v", config.ServerName, err)
	}
	return state, body
}

// waitTold waits until the observer was told of n connections. A client may see
// its alert before the observer hears of it.
func (r *rig) waitTold(n int) {
	r.t.Helper()
	testtool.Eventually(r.t, "connections to be told of", func() bool { return len(r.observer.reasons()) >= n })
}

// waitFailure waits for a connection that failed and returns its reason.
func (r *rig) waitFailure() Reason {
	r.t.Helper()
	var got Reason
	testtool.Eventually(r.t, "a connection that failed", func() bool {
		reasons := r.observer.reasons()
		i := slices.IndexFunc(reasons, func(r Reason) bool { return r != "" })
		if i >= 0 {
			got = reasons[i]
		}
		return i >= 0
	})
	return got
}

// alertOf is the alert that a client got, by its text.
func alertOf(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return strings.TrimPrefix(op.Err.Error(), "tls: ")
	}
	return ""
}

var versions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

func forVersions(t *testing.T, f func(t *testing.T, version uint16)) {
	for _, v := range versions {
		t.Run(tls.VersionName(v), func(t *testing.T) { f(t, v) })
	}
}

// anyName is a client's session cache that offers its last session to every
// server name, as an attacker would.
type anyName struct {
	mu    sync.Mutex
	last  *tls.ClientSessionState
	hold  bool // keep what is there
	taken int
}

func (c *anyName) Get(string) (*tls.ClientSessionState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken++
	return c.last, c.last != nil
}

func (c *anyName) Put(_ string, s *tls.ClientSessionState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hold || c.last == nil {
		c.last = s
	}
}

func mustPrefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}
