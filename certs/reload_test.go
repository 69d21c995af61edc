package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// within is how long tests wait for a new certificate, which is generous, for
// machines are busy. With polling off only word of the change can bring it.
const within = 10 * time.Second

// TestWithinASecond is the promise itself: the best of five must keep it.
func TestWithinASecond(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	f := writePair(t, dir, "a", issue(t, ca, pki.Request{Names: []string{"a.test"}}))
	s := newStore(t, Options{PollInterval: time.Hour})
	load(t, s, Source{Files: f})
	run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
	best := time.Hour
	for range 5 {
		next := issue(t, ca, pki.Request{Names: []string{"a.test"}})
		started := time.Now()
		writePair(t, dir, "a", next)
		eventually(t, within, "serving the new certificate", func() bool { return serves(s, "a.test", next) })
		best = min(best, time.Since(started))
	}
	if best > time.Second {
		t.Errorf("a new certificate was served after %v at best", best)
	}
	t.Logf("served after %v", best)
}

// pairBytes is a certificate as file contents.
func pairBytes(t testing.TB, cert *tls.Certificate) (certPEM, key []byte) {
	t.Helper()
	return pki.ChainPEM(cert), keyPEM(t, cert)
}

// TestChangesAreNoticed replaces a pair in every way that is in use, and wants
// the new one served within a second and nothing else in between.
func TestChangesAreNoticed(t *testing.T) {
	ca := newCA(t)
	one := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	two := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	rename := func(t *testing.T, file string, data []byte) {
		writeFile(t, file+".tmp", data)
		if err := os.Rename(file+".tmp", file); err != nil {
			t.Fatal(err)
		}
	}
	link := func(t *testing.T, target, name string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	relink := func(t *testing.T, target, name string) {
		link(t, target, name+".new")
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	put := func(t *testing.T, dir string, c *tls.Certificate) {
		certPEM, key := pairBytes(t, c)
		writeFile(t, filepath.Join(dir, "tls.crt"), certPEM)
		writeFile(t, filepath.Join(dir, "tls.key"), key)
	}
	tests := []struct {
		name          string
		setUp, change func(t *testing.T, dir string)
	}{
		{"path through a link", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "releases", "1"), one)
			put(t, filepath.Join(dir, "releases", "2"), two)
			if err := os.Remove(dir + "/in"); err != nil {
				t.Fatal(err)
			}
			link(t, "releases/1", filepath.Join(dir, "in"))
		}, func(t *testing.T, dir string) {
			relink(t, "releases/2", filepath.Join(dir, "in"))
		}},
		{"written in place", func(t *testing.T, dir string) { put(t, dir, one) }, func(t *testing.T, dir string) { put(t, dir, two) }},
		{"renamed into place", func(t *testing.T, dir string) { put(t, dir, one) }, func(t *testing.T, dir string) {
			certPEM, key := pairBytes(t, two)
			rename(t, filepath.Join(dir, "tls.crt"), certPEM)
			rename(t, filepath.Join(dir, "tls.key"), key)
		}},
		{"Kubernetes volume", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "..2026_01"), one)
			link(t, "..2026_01", filepath.Join(dir, "..data"))
			link(t, "..data/tls.crt", filepath.Join(dir, "tls.crt"))
			link(t, "..data/tls.key", filepath.Join(dir, "tls.key"))
		}, func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "..2026_02"), two)
			relink(t, "..2026_02", filepath.Join(dir, "..data"))
			if err := os.RemoveAll(filepath.Join(dir, "..2026_01")); err != nil {
				t.Fatal(err)
			}
		}},
		{"certbot archive", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "archive", "1"), one)
			put(t, filepath.Join(dir, "archive", "2"), two)
			link(t, "archive/1/tls.crt", filepath.Join(dir, "tls.crt"))
			link(t, "archive/1/tls.key", filepath.Join(dir, "tls.key"))
		}, func(t *testing.T, dir string) {
			relink(t, "archive/2/tls.crt", filepath.Join(dir, "tls.crt"))
			relink(t, "archive/2/tls.key", filepath.Join(dir, "tls.key"))
		}},
		{"link on the way", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "releases", "1", "tls"), one)
			put(t, filepath.Join(dir, "releases", "2", "tls"), two)
			link(t, "../releases/1", filepath.Join(dir, "elsewhere", "current"))
			link(t, "elsewhere/current/tls/tls.crt", filepath.Join(dir, "tls.crt"))
			link(t, "elsewhere/current/tls/tls.key", filepath.Join(dir, "tls.key"))
		}, func(t *testing.T, dir string) {
			relink(t, "../releases/2", filepath.Join(dir, "elsewhere", "current"))
		}},
		{"target written in place", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "elsewhere"), one)
			link(t, "elsewhere/tls.crt", filepath.Join(dir, "tls.crt"))
			link(t, "elsewhere/tls.key", filepath.Join(dir, "tls.key"))
		}, func(t *testing.T, dir string) { put(t, filepath.Join(dir, "elsewhere"), two) }},
		{"removed and made again", func(t *testing.T, dir string) { put(t, dir, one) }, func(t *testing.T, dir string) {
			for _, name := range []string{"tls.crt", "tls.key"} {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			put(t, dir, two)
		}},
		{"only the certificate, same key", func(t *testing.T, dir string) { put(t, dir, one) }, func(t *testing.T, dir string) {
			again := issue(t, ca, pki.Request{Names: []string{"a.test"}, Key: one.PrivateKey.(crypto.Signer)})
			rename(t, filepath.Join(dir, "tls.crt"), pki.ChainPEM(again))
		}},
	}
	for _, how := range []string{"files", "directory", "polled"} {
		for _, tt := range tests {
			t.Run(how+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				in := filepath.Join(dir, "in")
				if err := os.Mkdir(in, 0o755); err != nil {
					t.Fatal(err)
				}
				at := in // where the files of most tests are
				if tt.name == "path through a link" {
					at = dir
				}
				tt.setUp(t, at)
				s := newStore(t, Options{PollInterval: time.Hour})
				src := Source{Files: &Files{Cert: filepath.Join(in, "tls.crt"), Key: filepath.Join(in, "tls.key")}}
				switch how {
				case "directory":
					src = Source{Directory: &Directory{Path: in}}
				case "polled":
					s.options.PollInterval = 50 * time.Millisecond
					s.seams.newWatcher = func() (watcher, error) { return nil, syscall.EMFILE }
				}
				load(t, s, src)
				run(t, s)
				if !serves(s, "a.test", one) {
					t.Fatal("the first certificate is not served")
				}
				if how != "polled" {
					eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
				}
				tt.change(t, at)
				eventually(t, within, "serving the new certificate", func() bool {
					leaf := served(s, "a.test")
					if leaf == nil {
						t.Fatal("no certificate is served in between")
					}
					return !leaf.Equal(one.Leaf)
				})
				eventually(t, within, "free of errors", func() bool { return s.Status()[0].LastError == "" })
			})
		}
	}
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestBadPairKeepsTheOldOne: whatever is wrong with the new files, the old
// certificate is served, the log and the status say why, and good files end it.
func TestBadPairKeepsTheOldOne(t *testing.T) {
	ca := newCA(t)
	one := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	two := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	certPEM, key := pairBytes(t, two)
	tests := map[string]struct {
		spoil func(f *Files) error
		want  string
	}{
		"half written":        {func(f *Files) error { return os.WriteFile(f.Cert, certPEM[:len(certPEM)/3], 0o600) }, "no certificate in it"},
		"cut inside a block":  {func(f *Files) error { return os.WriteFile(f.Key, key[:60], 0o600) }, "no private key in it"},
		"empty":               {func(f *Files) error { return os.WriteFile(f.Cert, nil, 0o600) }, "no certificate in it"},
		"certificate deleted": {func(f *Files) error { return os.Remove(f.Cert) }, "no such file"},
		"key deleted":         {func(f *Files) error { return os.Remove(f.Key) }, "no such file"},
		"both deleted":        {func(f *Files) error { return os.RemoveAll(filepath.Dir(f.Cert)) }, "no such file"},
		"only the key new":    {func(f *Files) error { return os.WriteFile(f.Key, key, 0o600) }, "belongs to none"},
		"dangling link":       {func(f *Files) error { os.Remove(f.Cert); return os.Symlink("nowhere", f.Cert) }, "no such file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "tls")
			f := writePair(t, dir, "a", one)
			var log logBuffer
			s := newStore(t, Options{Logger: log.logger(), PollInterval: 200 * time.Millisecond})
			load(t, s, Source{Files: f})
			run(t, s)
			eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
			if err := tt.spoil(f); err != nil {
				t.Fatal(err)
			}
			eventually(t, within, "reporting the fault", func() bool {
				return strings.Contains(s.Status()[0].LastError, tt.want) && strings.Contains(log.String(), tt.want)
			})
			if !serves(s, "a.test", one) {
				t.Error("the old certificate is not served any more")
			}
			if st := s.Stats(); st.ReloadFailures == 0 || st.Reloads != 0 {
				t.Errorf("Stats = %+v", st)
			}
			// A reload of the configuration fails as a whole.
			if _, err := s.Load(t.Context(), []Source{{Files: f}}); err == nil {
				t.Error("Load accepts the bad pair")
			}
			writePair(t, dir, "a", two)
			eventually(t, within, "serving the good certificate", func() bool { return serves(s, "a.test", two) })
			if st := s.Status()[0]; st.LastError != "" {
				t.Errorf("LastError = %q after good files", st.LastError)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("%d errors in the log; want the one:\n%s", n, log.String())
			}
		})
	}
}

// TestSlowWriter writes a pair byte by byte: no torn state is ever served or
// logged as an error, and the whole is served in the end.
func TestSlowWriter(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	one, two := issue(t, ca, pki.Request{Names: []string{"a.test"}}), issue(t, ca, pki.Request{Names: []string{"a.test"}})
	f := writePair(t, t.TempDir(), "a", one)
	var log logBuffer
	s := newStore(t, Options{Logger: log.logger(), PollInterval: time.Hour})
	load(t, s, Source{Files: f})
	run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
	certPEM, key := pairBytes(t, two)
	for _, part := range []struct {
		file string
		data []byte
	}{{f.Cert, certPEM}, {f.Key, key}} {
		w, err := os.Create(part.file)
		if err != nil {
			t.Fatal(err)
		}
		for chunk := range slices.Chunk(part.data, 100) {
			if _, err := w.Write(chunk); err != nil {
				t.Fatal(err)
			}
			if leaf := served(s, "a.test"); leaf == nil || !leaf.Equal(one.Leaf) {
				t.Fatalf("served %v while the pair was being written", leaf)
			}
		}
		w.Close()
	}
	eventually(t, within, "serving the new certificate", func() bool { return serves(s, "a.test", two) })
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log has errors:\n%s", log.String())
	}
}

func TestDirectoryChanges(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	dir := t.TempDir()
	cert := func(name string) *tls.Certificate { return issue(t, ca, pki.Request{Names: []string{name}}) }
	a, b, c := cert("a.test"), cert("b.test"), cert("c.test")
	writePair(t, dir, "a", a)
	s := newStore(t, Options{PollInterval: time.Hour})
	load(t, s, Source{Directory: &Directory{Path: dir}})
	run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })

	fb := writePair(t, dir, "b", b)
	eventually(t, within, "serving an added pair", func() bool { return serves(s, "b.test", b) })
	writePair(t, filepath.Join(dir, "sub"), "c", c)
	eventually(t, within, "serving a pair in a new subdirectory", func() bool { return serves(s, "c.test", c) })

	// One bad pair harms no other, and a first pair that is bad is reported.
	writeFile(t, filepath.Join(dir, "bad.crt"), []byte("junk"))
	writeFile(t, filepath.Join(dir, "bad.key"), []byte("junk"))
	b2 := cert("b.test")
	writePair(t, dir, "b", b2)
	eventually(t, within, "serving the renewed pair", func() bool { return serves(s, "b.test", b2) })
	eventually(t, within, "reporting the bad pair", func() bool {
		return slices.ContainsFunc(s.Status(), func(st Status) bool {
			return st.Name == filepath.Join(dir, "bad.crt") && st.LastError != "" && st.NotAfter.IsZero()
		})
	})
	os.Remove(filepath.Join(dir, "bad.crt"))
	os.Remove(filepath.Join(dir, "bad.key"))
	eventually(t, 10*time.Second, "forgetting the bad pair", func() bool { return len(s.Status()) == 3 })

	// Deleted files take their certificate along, after a while.
	os.Remove(fb.Cert)
	os.Remove(fb.Key)
	eventually(t, within, "reporting the deletion", func() bool {
		return slices.ContainsFunc(s.Status(), func(st Status) bool { return st.LastError == errGone.Error() })
	})
	if !serves(s, "b.test", b2) {
		t.Error("a deleted pair is dropped at once: its replacement may be on the way")
	}
	eventually(t, 15*time.Second, "dropping the deleted pair", func() bool { return !serves(s, "b.test", b2) })
	if !serves(s, "a.test", a) || !serves(s, "c.test", c) {
		t.Error("other pairs went too")
	}

	// A directory that loses everything is more likely unmounted than meant.
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.wake()
	eventually(t, within, "reporting the empty directory", func() bool {
		return s.Status()[0].LastError == errEmptied.Error()
	})
	if !serves(s, "a.test", a) || !serves(s, "c.test", c) {
		t.Error("certificates of an emptied directory are dropped")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.wake()
	eventually(t, within, "reporting the missing directory", func() bool {
		return strings.Contains(s.Status()[0].LastError, "no such file")
	})
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	s.wake()
	eventually(t, within, "free of errors", func() bool {
		return !slices.ContainsFunc(s.Status(), func(st Status) bool { return st.LastError != "" })
	})
}
