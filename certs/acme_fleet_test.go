package certs

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// ariStore is a store that asks for renewal information all the time.
func ariStore(t *testing.T, o Options) *Store {
	s := newACMEStore(t, o)
	s.seams.ariMin, s.seams.ariMax = 100*time.Millisecond, 200*time.Millisecond
	return s
}

// hammer makes handshakes until the returned function is called, which returns
// how many there were; any failure is one of the test.
func hammer(t *testing.T, p *pebble, name string, roots *x509.CertPool) (stop func() int) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := p.dial(name, roots, "h2"); err != nil {
					t.Errorf("handshake during the renewal: %v", err)
					return
				}
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	stop = sync.OnceValue(func() int {
		close(done)
		wg.Wait()
		return n
	})
	t.Cleanup(func() { stop() })
	return stop
}

// TestRenewalWhenTheCAWantsIt: the CA moves the renewal window into the past;
// two replicas notice, one renews, both serve the new certificate, handshakes
// never fail, and a key that is kept keeps Keys.
func TestRenewalWhenTheCAWantsIt(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	roots := p.roots()
	dir := t.TempDir()
	keep := func(a *ACME) { a.ReuseKey = true }
	one, two := ariStore(t, Options{StateDir: dir}), ariStore(t, Options{StateDir: dir})
	p.add(one)
	load(t, one, p.source(keep, "ari.test"))
	run(t, one)
	obtained(t, one, 20*time.Second, "ari.test")
	load(t, two, p.source(keep, "ari.test"))
	run(t, two)
	old := served(one, "ari.test")
	keys := slices.Clone(one.Keys("ari.test"))
	stop := hammer(t, p, "ari.test", roots)
	p.setARI(old, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	for _, s := range []*Store{one, two} {
		eventually(t, 30*time.Second, "renewed", func() bool { return !served(s, "ari.test").Equal(old) })
	}
	eventually(t, 10*time.Second, "waiting again", func() bool {
		return statusOf(one, "ari.test").NextAction == "renewal" && time.Until(statusOf(one, "ari.test").NextActionAt) > 24*time.Hour
	})
	if n := stop(); n == 0 {
		t.Error("no handshake was made")
	}
	if !served(one, "ari.test").Equal(served(two, "ari.test")) || p.issued() != 2 {
		t.Errorf("%d certificates were issued; want the first and one renewal for both", p.issued())
	}
	if !slices.Equal(keys, one.Keys("ari.test")) {
		t.Error("Keys changed although the key is to be kept")
	}
}

// TestRenewalByLifetime: without renewal information a third of the lifetime
// decides; the key is new.
func TestRenewalByLifetime(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{validity: 15 * time.Second})
	s := newACMEStore(t, Options{})
	p.add(s)
	load(t, s, p.source(func(a *ACME) { a.DisableARI = true }, "lifetime.test"))
	run(t, s)
	obtained(t, s, 20*time.Second, "lifetime.test")
	roots := p.roots()
	stop := hammer(t, p, "lifetime.test", roots)
	serials, keys := map[string]bool{}, map[[32]byte]bool{}
	eventually(t, 40*time.Second, "renewed", func() bool {
		leaf := served(s, "lifetime.test")
		serials[leaf.SerialNumber.String()] = true
		keys[s.Keys("lifetime.test")[0]] = true
		return len(serials) == 2
	})
	stop()
	if len(keys) != 2 {
		t.Errorf("%d keys for 2 certificates", len(keys))
	}
}

// TestRevoked: Renew replaces a revoked certificate at once, with a new key
// even where keys are kept, once for all replicas and however often it is
// called.
func TestRevoked(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	dir := t.TempDir()
	keep := func(a *ACME) { a.ReuseKey = true }
	one, two := newACMEStore(t, Options{StateDir: dir}), newACMEStore(t, Options{StateDir: dir})
	p.add(one)
	file := issue(t, newCA(t), pkiRequest("file.test"))
	f := writePair(t, t.TempDir(), "f", file)
	load(t, one, p.source(keep, "revoked.test"), Source{Files: f})
	run(t, one)
	obtained(t, one, 20*time.Second, "revoked.test")
	load(t, two, p.source(keep, "revoked.test"))
	run(t, two)
	old := served(one, "revoked.test")
	key := one.Keys("revoked.test")[0]
	var wg sync.WaitGroup
	for range 5 {
		for _, s := range []*Store{one, two} {
			wg.Go(func() {
				if err := s.Renew(old); err != nil {
					t.Errorf("Renew: %v", err)
				}
			})
		}
	}
	wg.Wait()
	for _, s := range []*Store{one, two} {
		eventually(t, 30*time.Second, "replaced", func() bool { return !served(s, "revoked.test").Equal(old) })
	}
	if one.Keys("revoked.test")[0] == key {
		t.Error("the revoked certificate's key is still in use")
	}
	if err := one.Renew(old); err != nil {
		t.Errorf("Renew of a certificate no longer in use: %v", err)
	}
	if err := one.Renew(file.Leaf); !errors.Is(err, ErrNotACME) {
		t.Errorf("Renew of a file: %v", err)
	}
	eventually(t, 10*time.Second, "waiting again", func() bool {
		return statusOf(one, "revoked.test").NextAction == "renewal" && statusOf(two, "revoked.test").NextAction == "renewal"
	})
	if p.issued() != 2 {
		t.Errorf("%d certificates were issued; want 2", p.issued())
	}
}

// TestTwoReplicas: one process places the order, the other one's listeners
// answer the challenge, and both serve the one certificate.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	for _, challenge := range []Challenge{HTTP01, TLSALPN01} {
		t.Run(string(challenge), func(t *testing.T) {
			t.Parallel()
			p := newPebble(t, pebbleOptions{})
			name := string(challenge) + ".fleet.test"
			dir := t.TempDir()
			source := p.source(func(a *ACME) { a.Challenges = []Challenge{challenge} }, name)
			here := newACMEStore(t, Options{StateDir: dir})
			p.add(here)
			p.gate.Lock() // the CA waits until this replica is ready
			_, lines := startChild(t, childConfig{StateDir: dir, Sources: []Source{source}})
			expect(t, lines, "running")
			eventually(t, 20*time.Second, "locked by the other process", func() bool {
				_, err := os.Stat(filepath.Join(dir, "acme", "locks", "issue_cert_"+name+".lock"))
				return err == nil
			})
			load(t, here, source)
			run(t, here)
			eventually(t, 10*time.Second, "running", func() bool { return here.acme.runner(here.acmeSources()[0]) != nil })
			p.gate.Unlock()
			there := expect(t, lines, "serving")
			obtained(t, here, 20*time.Second, name)
			if got := statusOf(here, name).Fingerprint; got != there {
				t.Errorf("the replicas serve %s and %s", got, there)
			}
			if p.issued() != 1 {
				t.Errorf("%d certificates were issued; want 1", p.issued())
			}
		})
	}
}

// TestKilledDuringOrder: a process is killed while its order is under way; the
// next one takes over the lock and the account, and obtains the certificate.
func TestKilledDuringOrder(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{env: []string{"PEBBLE_VA_NOSLEEP=", "PEBBLE_VA_SLEEPTIME=5"}})
	dir := t.TempDir()
	source := p.source(nil, "killed.test")
	first, lines := startChild(t, childConfig{StateDir: dir, Sources: []Source{source}})
	expect(t, lines, "running")
	eventually(t, 30*time.Second, "placing an order", func() bool { return strings.Contains(p.log.String(), "Added order") })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.Wait()
	if p.issued() != 0 {
		t.Fatal("the order was over already")
	}
	s := newACMEStore(t, Options{StateDir: dir})
	p.add(s)
	load(t, s, source)
	run(t, s)
	obtained(t, s, 60*time.Second, "killed.test")
	if n := strings.Count(p.log.String(), "accounts in memory"); n != 1 {
		t.Errorf("%d accounts were made; want 1", n)
	}
}
