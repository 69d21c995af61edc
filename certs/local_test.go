package certs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestLocal(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, Options{StateDir: dir, LocalResponder: "http://127.0.0.1:8080/ocsp"})
	load(t, s, Source{Local: &Local{Hosts: []string{"localhost", "*.dev.test", "127.0.0.1"}}})
	ca := s.LocalCA()
	if ca == nil {
		t.Fatal("no CA")
	}
	leaf := served(s, "x.dev.test")
	if leaf == nil || !ca.IssuedBy(leaf) || len(leaf.OCSPServer) != 1 || leaf.OCSPServer[0] != "http://127.0.0.1:8080/ocsp" {
		t.Fatalf("leaf %+v", leaf)
	}
	if got := s.Issuer(leaf); got == nil || !got.Equal(ca.Certificate) {
		t.Error("Issuer does not find the development CA")
	}
	if err := leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(dir, "local", "ca.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the CA's file: %v, %v", info, err)
	}
	// A second process finds the same CA.
	s2 := newStore(t, Options{StateDir: dir})
	load(t, s2, Source{Local: &Local{Hosts: []string{"localhost"}}})
	if !s2.LocalCA().Certificate.Equal(ca.Certificate) {
		t.Error("another CA was made")
	}
	if st := s2.Status()[0]; st.Source != "local" || st.Name != "localhost" || st.NextAction != "renewal" || st.Responder {
		t.Errorf("Status = %+v", st)
	}
}

func TestLocalDamagedCA(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "local", "ca.pem"), []byte("junk"))
	s := newStore(t, Options{StateDir: dir})
	_, err := s.Load(t.Context(), []Source{{Local: &Local{Hosts: []string{"localhost"}}}})
	if err == nil || !strings.Contains(err.Error(), "certificates[0].local: development CA") {
		t.Errorf("Load: %v", err)
	}
}

// TestLocalRenewal: a program that runs for years always serves a valid
// certificate, also after its CA has expired.
func TestLocalRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(hooks)
		s := newStore(t, Options{StateDir: t.TempDir(), PollInterval: 24 * time.Hour, Prepare: h.prepare, Release: h.release})
		s.seams.newWatcher = func() (watcher, error) { return nil, errors.New("not in here") }
		ca, err := pki.LoadOrCreate(s.localDir(), pki.CAOptions{NotAfter: time.Now().Add(400 * 24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		load(t, s, Source{Local: &Local{Hosts: []string{"localhost"}}})
		stop := run(t, s)
		seen := map[string]bool{}
		for range 500 {
			time.Sleep(24 * time.Hour)
			leaf := served(s, "localhost")
			if now := time.Now(); now.After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
				t.Fatalf("on %v a certificate valid until %v is served", now, leaf.NotAfter)
			}
			seen[leaf.SerialNumber.String()] = true
		}
		if s.LocalCA().Certificate.Equal(ca.Certificate) {
			t.Error("the expired CA is still in use")
		}
		if len(seen) < 7 {
			t.Errorf("%d certificates in 500 days", len(seen))
		}
		if n := h.live(t); n != 1 {
			t.Errorf("%d certificates prepared; want 1", n)
		}
		stop()
	})
}
