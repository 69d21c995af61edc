package ocsp

import (
	"crypto/tls"
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// fileOf is where the response for cert is kept.
func fileOf(dir string, cert *tls.Certificate, suffix string) string {
	sum := keyOf(cert)
	return filepath.Join(dir, "ocsp", hex.EncodeToString(sum[:])+suffix)
}

// logLines collects the messages logged at warn and above.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *logLines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestRestartServesWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		dir := t.TempDir()
		r := start(t, Options{StateDir: dir})
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{Validity: 10 * time.Hour}))
		r.prepare(t, cert)
		advance(time.Second)
		held := r.served(t, cert)
		r.stop(t)
		stored, err := os.ReadFile(fileOf(dir, cert, goodSuffix))
		if err != nil || string(stored) != string(held) {
			t.Fatalf("stored = %d bytes, %v; want what is served", len(stored), err)
		}

		again := start(t, Options{StateDir: dir}) // its network has no responder
		defer again.stop(t)
		again.prepare(t, cert)
		if string(again.served(t, cert)) != string(held) {
			t.Error("not served right after Prepare")
		}
		advance(2 * time.Hour)
		if len(again.net.requests("ocsp.test")) != 0 {
			t.Error("fetched although what was stored is fresh")
		}
		advance(8 * time.Hour)
		if again.served(t, cert) != nil {
			t.Error("served beyond its end")
		}
	})
}

func TestRestartWithDamage(t *testing.T) {
	ca, other := newCA(t, pki.CAOptions{}), newCA(t, pki.CAOptions{Name: "other"})
	cert := serverCert(t, ca, "a.test")
	neighbour := serverCert(t, ca, "b.test")
	expired := goodSpec(ca, cert.Leaf, time.Now().Add(-24*time.Hour))
	revoked := goodSpec(ca, cert.Leaf, time.Now())
	revoked.Singles[0].Status, revoked.Singles[0].RevokedAt = pki.Revoked, time.Now()
	good := build(t, goodSpec(ca, cert.Leaf, time.Now()))
	tests := map[string]func(path string) error{
		"corrupt":   func(path string) error { return os.WriteFile(path, []byte("not DER"), 0o600) },
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"truncated": func(path string) error { return os.WriteFile(path, good[:len(good)/2], 0o600) },
		"huge":      func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"expired":   func(path string) error { return os.WriteFile(path, build(t, expired), 0o600) },
		"of a neighbour": func(path string) error {
			return os.WriteFile(path, build(t, goodSpec(ca, neighbour.Leaf, time.Now())), 0o600)
		},
		"of another issuer": func(path string) error {
			return os.WriteFile(path, build(t, goodSpec(other, cert.Leaf, time.Now())), 0o600)
		},
		"revoked, as good": func(path string) error { return os.WriteFile(path, build(t, revoked), 0o600) },
		"a directory":      func(path string) error { return os.Mkdir(path, 0o700) }, // unreadable, whoever we are
		"a dangling link":  func(path string) error { return os.Symlink("/nonexistent/file", path) },
		"a device":         func(path string) error { return os.Symlink("/dev/zero", path) },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "ocsp"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := damage(fileOf(dir, cert, goodSuffix)); err != nil {
				t.Fatal(err)
			}
			n := newNetwork()
			n.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
			var log logLines
			s, err := New(Options{StateDir: dir, Transport: n, Logger: log.logger()})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Prepare(t.Context(), cert); err != nil {
				t.Fatal(err)
			}
			if s.served(t, cert) != nil {
				t.Fatal("served what was stored")
			}
			if got := log.count("not used"); got != 1 && name != "a dangling link" {
				t.Errorf("%d warnings about the file; want one: %v", got, log.lines)
			}
			s.refresh(t.Context(), s.list()[0])
			if s.served(t, cert) == nil {
				t.Error("not fetched anew")
			}
			if name == "a directory" {
				return // nothing can be renamed over it; the next test is about that
			}
			if stored, err := os.ReadFile(fileOf(dir, cert, goodSuffix)); err != nil || string(stored) != string(s.served(t, cert)) {
				t.Errorf("not stored anew: %v", err)
			}
		})
	}
}

func TestGoodOnDiskAfterRevoked(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	revoked := goodSpec(ca, cert.Leaf, time.Now().Add(-24*time.Hour)) // long past its nextUpdate
	revoked.Singles[0].Status, revoked.Singles[0].RevokedAt = pki.Revoked, time.Now().Add(-24*time.Hour)
	newer := goodSpec(ca, cert.Leaf, time.Now())
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "ocsp"), 0o700); err != nil {
		t.Fatal(err)
	}
	for suffix, spec := range map[string]pki.ResponseSpec{revokedSuffix: revoked, goodSuffix: newer} {
		if err := os.WriteFile(fileOf(dir, cert, suffix), build(t, spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Options{StateDir: dir, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	if s.served(t, cert) != nil || s.statusOf(t, "a.test").State != StateRevoked {
		t.Errorf("a good response on disk beat a revocation: %+v", s.statusOf(t, "a.test"))
	}
	// Nor does a good answer of the responder.
	e := s.list()[0]
	good, err := Verify(build(t, newer), cert.Leaf, ca.Certificate, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if s.accept(e, good, time.Now()) || s.served(t, cert) != nil {
		t.Error("a good answer beat a revocation")
	}
}

// brokenDirs are state directories into which nothing can be written, even by
// the superuser.
func TestStateDirThatCannotBeWritten(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below := t.TempDir()
	if err := os.WriteFile(filepath.Join(below, "ocsp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file": file, "a file in it": below, "proc": "/proc/self/nothing"} {
		t.Run(name, func(t *testing.T) {
			servesOnWithOneWarning(t, ca, dir)
		})
	}
}

// servesOnWithOneWarning fetches for three certificates, twice each, with a
// state directory that takes nothing.
func servesOnWithOneWarning(t *testing.T, ca *pki.CA, dir string) {
	t.Helper()
	n := newNetwork()
	n.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
	var log logLines
	s, err := New(Options{StateDir: dir, Transport: n, Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.test", "b.test", "c.test"} {
		cert := serverCert(t, ca, name)
		if err := s.Prepare(t.Context(), cert); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, e := range s.list() {
			e.mu.Lock()
			e.next = time.Time{}
			e.mu.Unlock()
			s.refresh(t.Context(), e)
		}
	}
	if got := s.Stats(); got.Stapled != 3 || got.PersistErrors != 6 {
		t.Errorf("stats = %+v; want 3 stapled, 6 errors", got)
	}
	if got := log.count("cannot be stored"); got != 1 {
		t.Errorf("%d warnings; want one: %v", got, log.lines)
	}
	s.prune()
}

func TestFilesAreReplacedInOneStep(t *testing.T) {
	d := newDisk(t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	path := filepath.Join(d.dir, "x.der")
	long, short := strings.Repeat("a", 50_000), strings.Repeat("b", 40_000)
	if err := d.write(path, []byte(long)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != long && string(got) != short {
				t.Errorf("a reader saw %d bytes, %v", len(got), err)
				return
			}
		}
	})
	for i := range 200 {
		data := long
		if i%2 == 0 {
			data = short
		}
		if err := d.write(path, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if left, _ := filepath.Glob(filepath.Join(d.dir, tempPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPruneRemovesOnlyWhatIsOldAndUnused(t *testing.T) {
	d := newDisk(t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	old := time.Now().Add(-unusedFor - time.Hour)
	id := func(c string) string { return strings.Repeat(c, 64) }
	files := map[string]struct {
		age  time.Time
		stay bool
	}{
		id("a") + goodSuffix:    {old, true}, // in use
		id("b") + goodSuffix:    {old, false},
		id("b") + revokedSuffix: {old, true}, // it may come back
		id("d") + revokedSuffix: {time.Now().Add(-revokedForever - time.Hour), false},
		id("c") + goodSuffix:    {time.Now(), true},
		tempPrefix + "1":        {time.Now().Add(-2 * time.Hour), false},
		tempPrefix + "2":        {time.Now(), true},
		"somebody-elses.txt":    {old, true},
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, f := range files {
		path := filepath.Join(d.dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, f.age, f.age); err != nil {
			t.Fatal(err)
		}
	}
	d.prune(map[string]bool{id("a"): true}, time.Now())
	for name, f := range files {
		if _, err := os.Stat(filepath.Join(d.dir, name)); (err == nil) != f.stay {
			t.Errorf("%s stays = %v; want %v", name, err == nil, f.stay)
		}
	}
}

// TestRevocationOfALateComer: a certificate that is registered while Run is
// running, as one obtained on demand is, was revoked long ago: a restart does
// not bring back a good response of before.
func TestRevocationOfALateComer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		dir, good := t.TempDir(), signed(t, ca, cert, time.Now().Add(-time.Minute), 60*24*time.Hour)
		responder := pki.NewResponder(ca, pki.ResponderOptions{})
		responder.Revoke(cert.Leaf.SerialNumber, time.Now(), 1)
		r := start(t, Options{StateDir: dir})
		r.net.set("ocsp.test", responder)
		r.prepare(t, cert)
		advance(time.Second)
		// The file system does not keep the time of the bubble.
		if err := os.Chtimes(fileOf(dir, cert, revokedSuffix), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		advance(unusedFor + 24*time.Hour)
		r.stop(t)

		again := start(t, Options{StateDir: dir})
		defer again.stop(t)
		again.net.set("ocsp.test", always(good)) // what lies in a cache on the way
		again.prepare(t, cert)
		advance(time.Hour)
		if got := again.statusOf(t, "a.test"); got.State != StateRevoked || again.served(t, cert) != nil {
			t.Errorf("stapled %v, status %+v", again.served(t, cert) != nil, got)
		}
	})
}

// A response without nextUpdate lives ten minutes from its receipt, across
// restarts too.
func TestRestartWithoutNextUpdate(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	spec := goodSpec(ca, cert.Leaf, time.Now())
	spec.Singles[0].NextUpdate = time.Time{}
	for age, want := range map[time.Duration]time.Duration{6 * time.Minute: 4 * time.Minute, 11 * time.Minute: 0, -time.Hour: 10 * time.Minute} {
		dir := t.TempDir()
		path := fileOf(dir, cert, goodSuffix)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, build(t, spec), 0o600); err != nil {
			t.Fatal(err)
		}
		received := time.Now().Add(-age)
		if err := os.Chtimes(path, received, received); err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{StateDir: dir, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prepare(t.Context(), cert); err != nil {
			t.Fatal(err)
		}
		status := s.statusOf(t, "a.test")
		if (s.served(t, cert) != nil) != (want > 0) {
			t.Errorf("received %v ago: %+v", age, status)
		}
		if left := time.Until(status.Expires); want > 0 && (left > want || left < want-time.Minute) {
			t.Errorf("received %v ago: served for %v more; want %v", age, left, want)
		}
	}
}
