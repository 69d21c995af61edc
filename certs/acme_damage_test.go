package certs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestDamagedStorage: what cannot be used in the storage is obtained anew by the
// next attempt, whichever file it is, and a certificate without metadata is
// served meanwhile.
func TestDamagedStorage(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	ca, dir := newCA(t), t.TempDir()
	s := newACMEStore(t, Options{StateDir: dir})
	p.add(s)
	old := make(map[string]string)
	var sources []Source
	for _, file := range []string{"crt", "key", "json", "pair"} {
		for _, content := range []string{"", "junk"} {
			for _, reuse := range []bool{false, true} {
				name := fmt.Sprintf("%s-%s-%v.damaged.test", file, content, reuse)
				name = strings.ReplaceAll(name, "--", "-empty-")
				// It is due, as otherwise one that can be used need not be replaced.
				cert := issue(t, ca, pki.Request{Names: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * time.Minute)})
				putStored(t, dir, p.directory, name, cert)
				old[name] = file
				at := siteKey(p.directory, name)
				spoil := map[string]string{"crt": at.crt, "key": at.key, "json": at.json, "pair": at.key}[file]
				data := []byte(content)
				if file == "pair" {
					data = keyPEM(t, issue(t, ca, pkiRequest(name)))
				}
				writeFile(t, filepath.Join(dir, "acme", spoil), data)
				sources = append(sources, p.source(func(a *ACME) {
					a.ReuseKey = reuse
					if content == "" { // of several issuers the library reads all
						a.Issuers = append(a.Issuers, Issuer{Directory: awayCA})
					}
				}, name))
			}
		}
	}
	load(t, s, sources...)
	for name, file := range old {
		if leaf := served(s, name); file == "json" && (leaf == nil || leaf.VerifyHostname(name) != nil) {
			t.Errorf("%s is not served at the start", name)
		}
	}
	run(t, s)
	for name := range old {
		eventually(t, 60*time.Second, "obtained: "+name, func() bool {
			leaf := served(s, name)
			return leaf != nil && leaf.VerifyHostname(name) == nil && strings.HasPrefix(leaf.Issuer.CommonName, "Pebble")
		})
	}
	if st := s.Stats(); st.ObtainFailures != 0 {
		t.Errorf("%d attempts failed", st.ObtainFailures)
	}
}

// TestDamageIsNamed: the error names the file that is damaged.
func TestDamageIsNamed(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	s := newStore(t, Options{StateDir: dir})
	a, errs := s.newACMESource(&Source{ACME: &ACME{Hosts: []string{"x.test"}, Issuers: []Issuer{{Directory: awayCA}}}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	at := siteKey(awayCA, "x.test")
	for _, file := range []string{at.crt, at.key} {
		putStored(t, dir, awayCA, "x.test", issue(t, ca, pkiRequest("x.test")))
		writeFile(t, filepath.Join(dir, "acme", file), nil)
		if _, err := a.load(t.Context(), "x.test"); err == nil || !strings.Contains(err.Error(), file+":") {
			t.Errorf("%s emptied: %v", file, err)
		}
	}
}

// TestDamagedAccount: the error of an attempt names the account's damaged file,
// and the attempt is over at once.
func TestDamagedAccount(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	dir := t.TempDir()
	s := newACMEStore(t, Options{StateDir: dir})
	p.add(s)
	load(t, s, p.source(nil, "account.test"))
	stop := run(t, s)
	obtained(t, s, 20*time.Second, "account.test")
	stop()
	for _, ext := range []string{".json", ".key"} {
		var file string
		filepath.WalkDir(filepath.Join(dir, "acme", "acme"), func(path string, _ fs.DirEntry, _ error) error {
			if filepath.Ext(path) == ext {
				file = path
			}
			return nil
		})
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, nil)
		name := "account" + ext + ".test"
		s := newACMEStore(t, Options{StateDir: dir})
		load(t, s, p.source(nil, name))
		stop := run(t, s)
		eventually(t, 30*time.Second, "the file is named", func() bool {
			return strings.Contains(statusOf(s, name).LastError, filepath.Base(file)+" is damaged")
		})
		stop()
		writeFile(t, file, good)
	}
}

// fullStorage takes no certificates while it is full.
type fullStorage struct {
	certmagic.Storage
	full atomic.Bool
}

func (f *fullStorage) Store(c ctx, key string, value []byte) error {
	if f.full.Load() && strings.HasSuffix(key, ".crt") {
		return fmt.Errorf("%s: no space left", key)
	}
	return f.Storage.Store(c, key, value)
}

// TestStorageFull: when a certificate cannot be saved the attempt has failed and
// says why; the library places no further order within it.
func TestStorageFull(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	storage := &fullStorage{Storage: &certmagic.FileStorage{Path: t.TempDir()}}
	storage.full.Store(true)
	s := newACMEStore(t, Options{Storage: storage})
	s.seams.backoff = func(int) time.Duration { return time.Hour }
	p.add(s)
	load(t, s, p.source(nil, "full.test"))
	run(t, s)
	eventually(t, 30*time.Second, "reported", func() bool {
		st := statusOf(s, "full.test")
		return st.ACME.State == ACMEFailed && strings.Contains(st.LastError, "no space left") && st.NextAction == "next attempt"
	})
	settled(t, s, "full.test")
	if n := p.issued(); n != 1 {
		t.Errorf("%d certificates were issued; want 1", n)
	}
}
