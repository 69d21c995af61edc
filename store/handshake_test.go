package store

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

// replica is one proxy of a fleet: sessions on a Store on a server.
type replica struct {
	*session.Resumer
	store *Store
}

var certificate = sync.OnceValue(func() *tls.Certificate {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		panic(err)
	}
	cert, err := ca.Issue(pki.Request{Names: []string{"a.test"}})
	if err != nil {
		panic(err)
	}
	return cert
})

// newReplica starts a replica; it ends with the test, before its Store.
func newReplica(t testing.TB, so Options, o session.Options) *replica {
	t.Helper()
	s := open(t, so)
	o.Store = s.Sessions()
	o.StoreTimeout = s.o.Timeout
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	r, err := session.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return &replica{r, s}
}

// newFleet starts two replicas that share servers and keys.
func newFleet(t testing.TB, so Options, o session.Options) (a, b *replica) {
	t.Helper()
	if so.KeyFile == "" {
		so.KeyFile = writeKeys(t, "", newKey())
	}
	return newReplica(t, so, o), newReplica(t, so, o)
}

// tlsClient is a TLS client that keeps its first session for ever, or with
// follow its last one.
func tlsClient(version uint16, follow bool) *tls.Config {
	c := &tls.Config{ServerName: "a.test", InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}
	c.ClientSessionCache = new(firstTicket)
	if follow {
		c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	return c
}

type firstTicket struct{ state *tls.ClientSessionState }

func (c *firstTicket) Get(string) (*tls.ClientSessionState, bool) { return c.state, c.state != nil }
func (c *firstTicket) Put(_ string, s *tls.ClientSessionState) {
	if c.state == nil {
		c.state = s
	}
}

// connect makes one handshake, which must succeed, and says how it went.
func (r *replica) connect(t testing.TB, c *tls.Config) (resumed bool, result session.Result) {
	t.Helper()
	clientEnd, serverEnd := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
	defer clientEnd.Close()
	defer serverEnd.Close()
	var wg sync.WaitGroup
	var clientErr error
	wg.Go(func() {
		conn := tls.Client(clientEnd, c)
		if clientErr = conn.Handshake(); clientErr == nil {
			_, clientErr = io.ReadFull(conn, make([]byte, 1))
		}
	})
	var a *session.Attempt
	key := sha256.Sum256(certificate().Leaf.RawSubjectPublicKeyInfo)
	started := time.Now()
	conn := tls.Server(serverEnd, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		a = r.Begin(session.Binding{ServerName: hello.ServerName, Site: "site", Keys: [][32]byte{key}, Started: started})
		a.Served(key)
		return &tls.Config{
			Certificates: []tls.Certificate{*certificate()}, WrapSession: a.Wrap, UnwrapSession: a.Unwrap,
		}, nil
	}})
	err := conn.Handshake()
	if err == nil {
		err = a.Commit(conn.ConnectionState())
	}
	if err == nil {
		_, err = conn.Write([]byte{1})
	}
	wg.Wait()
	if err != nil || clientErr != nil {
		t.Fatalf("handshake: server: %v, client: %v", err, clientErr)
	}
	return conn.ConnectionState().DidResume, a.Result()
}

// shares makes full handshakes at r until a client's session resumes at other,
// which it returns.
func (r *replica) shares(t testing.TB, other *replica, version uint16) (client *tls.Config) {
	t.Helper()
	testtool.Eventually(t, "a session of one replica resumes on the other", func() bool {
		client = tlsClient(version, false)
		r.connect(t, client)
		pauseFor(t, 20*time.Millisecond) // for the write behind the handshake
		resumed, result := other.connect(t, client)
		return resumed && result == session.HitShared
	})
	return client
}

// flushed waits until nothing waits to be written.
func (r *replica) flushed(t testing.TB) {
	t.Helper()
	testtool.Eventually(t, "the queue is empty", func() bool { return r.Stats().StoreQueued == 0 })
}
