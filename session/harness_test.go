package session

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// versions are what everything is shown for.
var versions = []struct {
	name string
	id   uint16
}{{"TLS 1.2", tls.VersionTLS12}, {"TLS 1.3", tls.VersionTLS13}}

// eachVersion runs f as a sub-test of each TLS version, on a fake clock.
func eachVersion(t *testing.T, f func(t *testing.T, version uint16)) {
	t.Helper()
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, v.id) })
		})
	}
}

// Certificates of the tests are valid on the fake clock (2000) and today.
var (
	notBefore = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
)

var testCA = sync.OnceValue(func() *pki.CA {
	return must(pki.NewRoot(pki.CAOptions{Name: "test root", NotBefore: notBefore, NotAfter: notAfter}))
})

// serverCert issues a certificate for any name with a new key.
var serverCert = func(key pki.Request) *tls.Certificate {
	key.Names = []string{"a.test", "b.test", "*.test", "xn--bcher-kva.test"}
	key.NotBefore, key.NotAfter = notBefore, notAfter
	return must(testCA().Issue(key))
}

var defaultCert = sync.OnceValue(func() *tls.Certificate { return serverCert(pki.Request{}) })

// clientCert issues a client certificate.
func clientCert(ca *pki.CA, name string, end time.Time) *tls.Certificate {
	return must(ca.Issue(pki.Request{Names: []string{name}, Client: true, NotBefore: notBefore, NotAfter: end}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func keyID(cert *tls.Certificate) [32]byte {
	return sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo)
}

// policy is what the front knows of a site.
type policy struct {
	site       string
	scope      Scope
	clientAuth tls.ClientAuthType
	clientCAs  *x509.CertPool
	authorise  func(tls.ConnectionState) error
	cert       *tls.Certificate // nil: defaultCert
	keys       [][32]byte       // nil: cert's
	protocols  []string
	suites     []uint16
}

// proxy does with a Resumer what the front does: it makes an Attempt in
// GetConfigForClient, handshakes, and commits.
type proxy struct {
	r      *Resumer
	policy policy
	addr   netip.Addr    // of the client
	age    time.Duration // stamp the start of handshakes that long ago

	beforeCommit func()
	attempt      *Attempt // of the last handshake
}

func newProxy(t testing.TB, o Options) *proxy {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &proxy{r: r, policy: policy{site: "site", scope: NewScope().Add("site", "site").Sum()}}
}

// config is the listener's configuration; it leaves its Attempt in attempt.
func (p *proxy) config(attempt **Attempt) *tls.Config {
	started := time.Now().Add(-p.age)
	return &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		pol := p.policy
		if pol.cert == nil {
			pol.cert = defaultCert()
		}
		if pol.keys == nil {
			pol.keys = [][32]byte{keyID(pol.cert)}
		}
		a := p.r.Begin(Binding{
			Scope: pol.scope, Site: pol.site, ServerName: strings.ToLower(hello.ServerName),
			Keys: pol.keys, Client: p.addr, Started: started, ClientAuth: pol.clientAuth != tls.NoClientCert,
		})
		*attempt = a
		return &tls.Config{
			CipherSuites: pol.suites, NextProtos: pol.protocols,
			ClientAuth: pol.clientAuth, ClientCAs: pol.clientCAs,
			VerifyConnection: func(cs tls.ConnectionState) error {
				if pol.authorise == nil {
					return nil
				}
				err := pol.authorise(cs)
				if err != nil {
					a.Refuse(cs)
				}
				return err
			},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				a.Served(keyID(pol.cert))
				return pol.cert, nil
			},
			WrapSession: a.Wrap, UnwrapSession: a.Unwrap,
		}, nil
	}}
}

// client is a TLS client that keeps its sessions.
func client(version uint16, serverName string) *tls.Config {
	return &tls.Config{
		ServerName: serverName, RootCAs: testCA().Pool(),
		MinVersion: version, MaxVersion: version,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
}

// outcome is one handshake as both ends saw it.
type outcome struct {
	server, client       tls.ConnectionState
	serverErr, clientErr error
	commitErr            error
	result               Result
	hello                []byte // what the client sent first, in raw records
}

// connect makes one connection and fails the test if the handshake did.
func (p *proxy) connect(t testing.TB, c *tls.Config) outcome {
	t.Helper()
	o := p.try(c)
	if o.serverErr != nil || o.clientErr != nil {
		t.Fatalf("handshake: server: %v, client: %v", o.serverErr, o.clientErr)
	}
	if o.server.DidResume != o.client.DidResume {
		t.Fatalf("server resumed: %v, client resumed: %v", o.server.DidResume, o.client.DidResume)
	}
	return o
}

// try makes one connection whose client reads a byte of data, and with it the
// ticket of TLS 1.3.
func (p *proxy) try(c *tls.Config) outcome {
	clientEnd, serverEnd := memnet.Pipe(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 443})
	defer clientEnd.Close()
	rec := &recorder{Conn: clientEnd}
	var o outcome
	var wg sync.WaitGroup
	wg.Go(func() {
		conn := tls.Client(rec, c)
		if o.clientErr = conn.Handshake(); o.clientErr == nil {
			_, o.clientErr = io.ReadFull(conn, make([]byte, 1))
			o.client = conn.ConnectionState()
		}
		conn.Close()
	})
	var a *Attempt
	o.server, o.commitErr, o.serverErr = p.serve(serverEnd, &a)
	p.attempt = a
	if a != nil {
		o.result = a.Result()
	}
	wg.Wait()
	o.hello = rec.first
	return o
}

// serve is the server's side of a connection.
func (p *proxy) serve(end net.Conn, a **Attempt) (cs tls.ConnectionState, commitErr, err error) {
	defer end.Close()
	conn := tls.Server(end, p.config(a))
	defer conn.Close()
	if err = conn.Handshake(); err != nil {
		if *a != nil {
			(*a).Abandon()
		}
		return cs, nil, err
	}
	cs = conn.ConnectionState()
	if p.beforeCommit != nil {
		p.beforeCommit()
	}
	commitErr = (*a).Commit(cs)
	_, err = conn.Write([]byte{1})
	return cs, commitErr, err
}

// caught returns what a client of c sends first, which goes no further.
func caught(c *tls.Config) []byte {
	clientEnd, serverEnd := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
	defer clientEnd.Close()
	serverEnd.CloseWrite()
	rec := &recorder{Conn: clientEnd}
	_ = tls.Client(rec, c).Handshake()
	return rec.first
}

// replay sends recorded bytes and goes away.
func (p *proxy) replay(hello []byte) (a *Attempt, err error) {
	clientEnd, serverEnd := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
	if _, err := clientEnd.Write(hello); err != nil {
		return nil, err
	}
	clientEnd.CloseWrite()
	_, _, err = p.serve(serverEnd, &a)
	return a, err
}

// recorder keeps the first flight that a client writes.
type recorder struct {
	net.Conn
	first []byte
	done  bool
}

func (r *recorder) Write(b []byte) (int, error) {
	if !r.done {
		r.first = append(r.first, b...)
		r.done = true
	}
	return r.Conn.Write(b)
}

// oneTicket is a client's session cache that never lets go of its first
// session, as `openssl s_client -sess_in` does.
type oneTicket struct{ state *tls.ClientSessionState }

func (c *oneTicket) Get(string) (*tls.ClientSessionState, bool) { return c.state, c.state != nil }
func (c *oneTicket) Put(_ string, s *tls.ClientSessionState) {
	if c.state == nil {
		c.state = s
	}
}

// ticketOf returns the handle in a client's session cache.
func ticketOf(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	// crypto/tls files sessions under the server name.
	s, ok := c.ClientSessionCache.Get(c.ServerName)
	if !ok {
		t.Fatal("the client holds no session")
	}
	ticket, _, err := s.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// withTicket returns a copy of c that offers another handle for its session.
func withTicket(t testing.TB, c *tls.Config, ticket []byte) *tls.Config {
	t.Helper()
	s, ok := c.ClientSessionCache.Get(c.ServerName)
	if !ok {
		t.Fatal("the client holds no session")
	}
	_, state, err := s.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	b, err := state.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if state, err = tls.ParseSessionState(b); err != nil { // NewResumptionState writes to it
		t.Fatal(err)
	}
	forged, err := tls.NewResumptionState(ticket, state)
	if err != nil {
		t.Fatal(err)
	}
	out := c.Clone()
	out.ClientSessionCache = &oneTicket{forged}
	return out
}

// want checks how a handshake went.
func (o outcome) want(t testing.TB, resumed bool, result Result) {
	t.Helper()
	if o.server.DidResume != resumed || o.result != result {
		t.Fatalf("resumed %v with result %q; want %v with %q", o.server.DidResume, o.result, resumed, result)
	}
}

func (p *proxy) wantEntries(t testing.TB, n int) {
	t.Helper()
	if got := p.r.cache.Len(); got != n {
		t.Fatalf("%d sessions are held, want %d", got, n)
	}
}

// keep makes the client hold on to its present session.
func keep(c *tls.Config) { c.ClientSessionCache = &oneTicket{must(sessionOf(c))} }

// full makes a full handshake that ends with a stored session.
func (p *proxy) full(t testing.TB, c *tls.Config) outcome {
	t.Helper()
	o := p.connect(t, c)
	if o.server.DidResume {
		t.Fatal("resumed, want a full handshake")
	}
	return o
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }

var errRefused = errors.New("refused by the test")

// accounts checks that the books agree with what the cache holds.
func accounts(t testing.TB, r *Resumer) {
	t.Helper()
	r.Shed(0) // reclaim what has expired
	var entries, long, counted int
	for _, e := range r.cache.All() {
		entries++
		if e.aside != 0 {
			long++
		}
	}
	for i := range r.ages.count {
		n := r.ages.count[i].Load()
		if n < 0 {
			t.Errorf("age bucket %d holds %d", i, n)
		}
		counted += int(n)
	}
	if counted != entries {
		t.Errorf("ages count %d sessions, the cache holds %d", counted, entries)
	}
	if got := r.aside.len(); got != long {
		t.Errorf("the aside holds %d states, entries refer to %d", got, long)
	}
	byClient := map[uint64]int{}
	for _, e := range r.cache.All() {
		if e.client != 0 {
			byClient[e.client]++
		}
	}
	if got := r.shares.clients(); got != len(byClient) {
		t.Errorf("shares of %d clients, %d hold sessions", got, len(byClient))
	}
	for c, n := range byClient {
		if got := r.shares.shard(c).clients[c].entries; got != n {
			t.Errorf("client %x holds %d sessions, its share says %d", c, n, got)
		}
	}
}

// pkiSigner is what pki takes for a key.
type pkiSigner interface {
	Public() crypto.PublicKey
	Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error)
}

// sessionOf returns the session that a client holds.
func sessionOf(c *tls.Config) (*tls.ClientSessionState, error) {
	s, ok := c.ClientSessionCache.Get(c.ServerName)
	if !ok {
		return nil, errors.New("the client holds no session")
	}
	return s, nil
}

// handshakeWith makes one handshake between two configurations.
func handshakeWith(t testing.TB, server, client *tls.Config) {
	t.Helper()
	clientEnd, serverEnd := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
	defer clientEnd.Close()
	defer serverEnd.Close()
	var wg sync.WaitGroup
	var clientErr error
	wg.Go(func() { clientErr = tls.Client(clientEnd, client).Handshake() })
	err := tls.Server(serverEnd, server).Handshake()
	wg.Wait()
	if err != nil || clientErr != nil {
		t.Fatalf("handshake: server: %v, client: %v", err, clientErr)
	}
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// len returns how many states are held.
func (a *aside) len() (n int) {
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		n += len(s.states)
		s.mu.Unlock()
	}
	return n
}
