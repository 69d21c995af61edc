package ocsp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// memoryStore is a shared store as an in-memory map with lifetimes.
type memoryStore struct {
	mu     sync.Mutex
	values map[[32]byte]memoryValue
	fail   error
	slow   bool
	calls  int
}

type memoryValue struct {
	data  []byte
	until time.Time
}

func newMemoryStore() *memoryStore { return &memoryStore{values: make(map[[32]byte]memoryValue)} }

func (m *memoryStore) enter(ctx context.Context) error {
	m.mu.Lock()
	slow := m.slow
	m.mu.Unlock()
	if slow {
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	m.calls++
	return m.fail
}

func (m *memoryStore) Get(ctx context.Context, key [32]byte) ([]byte, error) {
	if err := m.enter(ctx); err != nil {
		return nil, m.leave(err)
	}
	defer m.mu.Unlock()
	if v, ok := m.values[key]; ok && time.Now().Before(v.until) {
		return v.data, nil
	}
	return nil, nil
}

func (m *memoryStore) leave(err error) error {
	if m.fail != nil {
		m.mu.Unlock()
	}
	return err
}

func (m *memoryStore) Put(ctx context.Context, key [32]byte, value []byte, until time.Time) error {
	if err := m.enter(ctx); err != nil {
		return m.leave(err)
	}
	defer m.mu.Unlock()
	m.values[key] = memoryValue{value, until}
	return nil
}

func (m *memoryStore) Claim(ctx context.Context, key [32]byte, d time.Duration) (bool, error) {
	if err := m.enter(ctx); err != nil {
		return false, m.leave(err)
	}
	defer m.mu.Unlock()
	if v, ok := m.values[key]; ok && time.Now().Before(v.until) {
		return false, nil
	}
	m.values[key] = memoryValue{nil, time.Now().Add(d)}
	return true, nil
}

func TestAFleetFetchesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		store := newMemoryStore()
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: 10 * time.Hour})
		n := newNetwork()
		n.set("ocsp.test", responder)
		var certs []*tls.Certificate
		for i := range 5 {
			certs = append(certs, serverCert(t, ca, fmt.Sprintf("c%d.test", i)))
		}
		random := newRandom()
		var fleet []*rig
		for range 8 {
			r := start(t, Options{Store: store, Transport: silentAware(n)})
			defer r.stop(t)
			r.random = random
			for _, c := range certs {
				r.prepare(t, c)
			}
			fleet = append(fleet, r)
		}
		advance(2 * time.Minute)
		for _, r := range fleet {
			if got := r.Stats().Stapled; got != len(certs) {
				t.Errorf("stapled = %d; want %d", got, len(certs))
			}
		}
		if got := len(n.requests("ocsp.test")); got != len(certs) {
			t.Errorf("%d requests by 8 replicas with %d certificates", got, len(certs))
		}
		advance(6 * time.Hour) // one refresh
		if got := len(n.requests("ocsp.test")); got != 2*len(certs) {
			t.Errorf("%d requests after a refresh; want %d", got, 2*len(certs))
		}
		// A new replica has its staples without a fetch.
		late := start(t, Options{Store: store})
		defer late.stop(t)
		for _, c := range certs {
			late.prepare(t, c)
		}
		advance(time.Second)
		if got := late.Stats(); got.Stapled != len(certs) || len(got.Fetches) != 0 || got.Store.Hits != uint64(len(certs)) {
			t.Errorf("a late replica: %+v", got)
		}
	})
}

func TestRevocationReachesTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		store := newMemoryStore()
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: 10 * time.Hour})
		first := start(t, Options{Store: store})
		defer first.stop(t)
		first.net.set("ocsp.test", responder)
		first.prepare(t, cert)
		advance(time.Second)
		second := start(t, Options{Store: store})
		defer second.stop(t)
		second.prepare(t, cert)
		advance(2 * time.Minute)
		if second.served(t, cert) == nil {
			t.Fatal("the second replica is not stapled")
		}
		responder.Revoke(cert.Leaf.SerialNumber, time.Now(), 1)
		advance(time.Until(first.statusOf(t, "a.test").NextFetch) + 30*time.Second) // the other, which reaches nobody, may have claimed the fetch
		if first.served(t, cert) != nil {
			t.Fatal("the first replica still staples")
		}
		advance(2 * time.Minute)
		if second.served(t, cert) != nil || second.statusOf(t, "a.test").State != StateRevoked {
			t.Errorf("the second replica did not hear of it: %+v", second.statusOf(t, "a.test"))
		}
		// A replica that knows only a good one, and gives it to the others, does
		// not undo it.
		e := first.list()[0]
		good, err := Verify(build(t, goodSpec(ca, cert.Leaf, time.Now())), cert.Leaf, ca.Certificate, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		first.shared.give(t.Context(), e, good, time.Now())
		third := start(t, Options{Store: store})
		defer third.stop(t)
		third.net.set("ocsp.test", responder)
		third.prepare(t, cert)
		advance(time.Minute)
		if third.served(t, cert) != nil || third.statusOf(t, "a.test").State != StateRevoked {
			t.Error("a good response in the store beat a revocation")
		}
	})
}

// What the store says is verified, and a store that does not work is no
// reason not to staple.
func TestStoreIsNotTrustedNorNeeded(t *testing.T) {
	for name, spoil := range map[string]func(*memoryStore){
		"fails": func(m *memoryStore) { m.fail = errors.New("connection refused") },
		"hangs": func(m *memoryStore) { m.slow = true },
		"lies":  func(m *memoryStore) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newCA(t, pki.CAOptions{})
				cert, neighbour := serverCert(t, ca, "a.test"), serverCert(t, ca, "b.test")
				store := newMemoryStore()
				spoil(store)
				var log logLines
				r := start(t, Options{Store: store, Logger: log.logger()})
				defer r.stop(t)
				r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
				e := r.newEntry([32]byte{}, cert)
				e.key = keyOf(cert)
				for i, junk := range [][]byte{nil, []byte("junk that is long enough"), append(make([]byte, 8), build(t, goodSpec(ca, neighbour.Leaf, time.Now()))...)} {
					purpose := purposeCurrent
					if i == 1 {
						purpose = purposeRevoked
					}
					store.values[sharedKey(purpose, e.key)] = memoryValue{junk, time.Now().Add(time.Hour)}
				}
				r.prepare(t, cert)
				advance(30 * time.Second)
				if _, err := Verify(r.served(t, cert), cert.Leaf, ca.Certificate, time.Now()); err != nil {
					t.Errorf("staple: %v", err)
				}
				advance(time.Hour)
				wantErrors := name != "lies"
				if got := r.Stats().Store.Errors; (got > 0) != wantErrors {
					t.Errorf("errors = %d", got)
				}
				if got := log.count("not shared"); wantErrors && got != 1 {
					t.Errorf("%d warnings; want one", got)
				}
			})
		})
	}
}

// TestPrepareWithAStore: with a store as without, whoever prepares a
// must-staple certificate asks every two seconds, be it for its own claim or for
// that of a replica that is dead.
func TestPrepareWithAStore(t *testing.T) {
	for name, taken := range map[string]bool{"our claim": false, "another's claim": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newCA(t, pki.CAOptions{})
				cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{responderURL}, MustStaple: true})
				store := newMemoryStore()
				if taken {
					store.values[sharedKey(purposeClaim, keyOf(cert))] = memoryValue{nil, time.Now().Add(claimFor)}
				}
				r := start(t, Options{Store: store})
				defer r.stop(t)
				begin, responder := time.Now(), pki.NewResponder(ca, pki.ResponderOptions{})
				r.net.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if time.Since(begin) < 3*time.Second { // published late
						_, _ = w.Write([]byte{0x30, 0x03, 0x0a, 0x01, 0x06}) // unauthorized
						return
					}
					responder.ServeHTTP(w, req)
				}))
				r.prepare(t, cert)
				if took := time.Since(begin); r.served(t, cert) == nil || took > 5*time.Second {
					t.Errorf("Prepare returned after %v, stapled: %v", took, r.served(t, cert) != nil)
				}
			})
		})
	}
}

// TestPrepareLeavesTheFetchToAnother: a fleet that prepares the same
// must-staple certificate at once makes one request.
func TestPrepareLeavesTheFetchToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{responderURL}, MustStaple: true})
		store, n := newMemoryStore(), newNetwork()
		n.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		begin := time.Now()
		var preparing sync.WaitGroup
		for range 5 {
			r := start(t, Options{Store: store, Transport: silentAware(n)})
			defer r.stop(t)
			preparing.Go(func() {
				r.prepare(t, cert)
				if took := time.Since(begin); r.served(t, cert) == nil || took > 3*time.Second {
					t.Errorf("Prepare returned after %v, stapled: %v", took, r.served(t, cert) != nil)
				}
			})
		}
		preparing.Wait()
		if got := len(n.requests("ocsp.test")); got != 1 {
			t.Errorf("%d requests; want 1", got)
		}
	})
}

func TestDeadClaimHolderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		store := newMemoryStore()
		store.values[sharedKey(purposeClaim, keyOf(cert))] = memoryValue{nil, time.Now().Add(claimFor)}
		r := start(t, Options{Store: store})
		defer r.stop(t)
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		r.prepare(t, cert)
		advance(claimFor / 2)
		if len(r.net.requests("ocsp.test")) != 0 {
			t.Error("fetched while another replica does")
		}
		advance(20 * time.Second)
		if r.served(t, cert) == nil {
			t.Error("not fetched after the claim had run out")
		}
	})
}
