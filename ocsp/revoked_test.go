package ocsp

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestRevocationThatCannotBeWritten: on a disk that takes no more, the good
// response goes, so that a restart does not bring it back, and the revocation
// is written as soon as that can be done.
func TestRevocationThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		dir := t.TempDir()
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: 10 * time.Hour})
		r := start(t, Options{StateDir: dir})
		defer r.stop(t)
		r.net.set("ocsp.test", responder)
		r.prepare(t, cert)
		advance(time.Second)
		if r.served(t, cert) == nil {
			t.Fatal("not stapled")
		}
		// A directory in the way stands for the full disk: no file can be
		// renamed over it.
		blocked := fileOf(dir, cert, revokedSuffix)
		if err := os.Mkdir(blocked, 0o700); err != nil {
			t.Fatal(err)
		}
		responder.Revoke(cert.Leaf.SerialNumber, time.Now(), 1)
		advance(time.Until(r.statusOf(t, "a.test").NextFetch) + time.Second)
		if r.served(t, cert) != nil || r.Stats().PersistErrors != 1 {
			t.Fatalf("not revoked, or written: %+v", r.Stats())
		}
		if _, err := os.Stat(fileOf(dir, cert, goodSuffix)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the good response is still stored: %v", err)
		}
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		advance(longestSleep + time.Second)
		if der, err := os.ReadFile(blocked); err != nil {
			t.Error("the revocation was not stored when that was possible again:", err)
		} else if got, err := Verify(der, cert.Leaf, ca.Certificate, time.Now()); err != nil || got.Status != Revoked {
			t.Errorf("stored: %+v, %v", got, err)
		}
	})
}

// TestRevocationOutlivesTheStore: a store that was down when a revocation was
// learned, or that has lost its data, is told of it later.
func TestRevocationOutlivesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		dir := t.TempDir()
		store := newMemoryStore()
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: 10 * time.Hour})
		knows := func() bool {
			store.mu.Lock()
			defer store.mu.Unlock()
			return len(store.values[sharedKey(purposeRevoked, keyOf(cert))].data) > 0
		}
		r := start(t, Options{Store: store, StateDir: dir})
		r.net.set("ocsp.test", responder)
		r.prepare(t, cert)
		advance(time.Second)
		store.mu.Lock()
		store.fail = errors.New("connection refused")
		store.mu.Unlock()
		responder.Revoke(cert.Leaf.SerialNumber, time.Now(), 1)
		advance(time.Until(r.statusOf(t, "a.test").NextFetch) + time.Second)
		if r.served(t, cert) != nil || knows() {
			t.Fatal("not revoked, or the store works")
		}
		store.mu.Lock()
		store.fail = nil
		store.mu.Unlock()
		advance(storePoll + storeJitter)
		if !knows() {
			t.Error("the store was not told once it answered again")
		}
		r.stop(t)

		store = newMemoryStore()
		again := start(t, Options{Store: store, StateDir: dir})
		defer again.stop(t)
		again.prepare(t, cert)
		advance(storePoll + storeJitter)
		if !knows() {
			t.Error("the store was not told what the state directory has")
		}
	})
}

// TestStoredNamedPipe: a named pipe in the place of a response blocks nobody.
func TestStoredNamedPipe(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ocsp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fileOf(dir, cert, goodSuffix), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{StateDir: dir, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Prepare(t.Context(), cert) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Prepare does not return")
	}
}

// TestMustStapleInAnotherChain: the same new leaf in another chain, as when a
// file is completed meanwhile, waits for the first staple too.
func TestMustStapleInAnotherChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert, err := ca.Issue(pki.Request{Names: []string{"a.test"}, OCSPServers: []string{"http://ocsp.test"}, MustStaple: true})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, Options{})
		defer r.stop(t)
		r.net.set("ocsp.test", silent)
		returned := make(chan string, 2)
		prepare := func(name string, cert *tls.Certificate) {
			if err := r.Prepare(t.Context(), cert); err != nil {
				t.Error(err)
			}
			returned <- name
		}
		go prepare("first", cert)
		advance(time.Second)
		other := *cert
		other.Certificate = append(append([][]byte(nil), cert.Certificate...), ca.Certificate.Raw)
		go prepare("other chain", &other)
		advance(time.Second)
		if len(returned) != 0 {
			t.Fatalf("Prepare of the %s returned without a staple", <-returned)
		}
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		advance(defaultPrepareTimeout)
		if len(returned) != 2 || r.served(t, cert) == nil {
			t.Errorf("%d have returned, stapled: %v", len(returned), r.served(t, cert) != nil)
		}
	})
}
