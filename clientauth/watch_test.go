package clientauth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// run runs v until the end of the test.
func run(t *testing.T, v *Verifier) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func closedNow(v *Verifier) func() bool { return func() bool { return v.Current().Err != nil } }
func openNow(v *Verifier) func() bool   { return func() bool { return v.Current().Err == nil } }

func TestRunFollowsFiles(t *testing.T) {
	one, two := newCA(t, nil, "one"), newCA(t, nil, "two")
	dir := t.TempDir()
	path := write(t, dir, "ca.pem", bundle(one))
	// Polling is too rare to help: what happens comes from notices.
	v, err := New(Options{Site: "app", Mode: Require, CAFiles: []string{path}, Logger: testLogger(t), PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	trusts := func(ca *authority) func() bool {
		client := newClient(t, ca, "client")
		return func() bool { return v.VerifyConnection(stateOf([]*authority{client, ca})) == nil }
	}
	testtool.Eventually(t, "open", trusts(one))

	// written in place
	write(t, dir, "ca.pem", bundle(two))
	testtool.Eventually(t, "trusting the second authority", trusts(two))
	// replaced by renaming
	if err := os.Rename(write(t, dir, "new.pem", bundle(one)), path); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "trusting the first authority again", trusts(one))
	// removed, and back
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "closed", closedNow(v))
	write(t, dir, "ca.pem", bundle(one))
	testtool.Eventually(t, "open again", trusts(one))
}

// Kubernetes mounts a volume as links to ..data/FILE, where ..data is a link to
// a directory, and replaces that link by renaming.
func TestRunFollowsKubernetesVolumes(t *testing.T) {
	one, two := newCA(t, nil, "one"), newCA(t, nil, "two")
	dir := t.TempDir()
	generation := func(name string, ca *authority) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), "ca.pem", bundle(ca))
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	generation("..2026_1", one)
	path := filepath.Join(dir, "ca.pem")
	if err := os.Symlink(filepath.Join("..data", "ca.pem"), path); err != nil {
		t.Fatal(err)
	}
	v, err := New(Options{Site: "app", Mode: Require, CAFiles: []string{path}, Logger: testLogger(t), PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	for i, ca := range []*authority{two, one, two} {
		before := v.Current().Digest
		generation(fmt.Sprintf("..2026_%d", i+2), ca)
		testtool.Eventually(t, "of the next generation", func() bool { return v.Current().Err == nil && v.Current().Digest != before })
	}
}

// A list lies in a directory that is replaced as a whole, by a link to it: each
// revocation counts, not only the first.
func TestRunFollowsLinkedDirectories(t *testing.T) {
	ca := newCA(t, nil, "ca")
	root := t.TempDir()
	publish := func(n int64, revoked ...*authority) {
		t.Helper()
		name := fmt.Sprintf("release-%d", n)
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name), "ca.crl", ca.crl(t, crlOptions{number: n, revoked: revoked}))
		if err := os.Symlink(name, filepath.Join(root, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, "next"), filepath.Join(root, "current")); err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	v, err := New(Options{
		Site: "app", Mode: Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", bundle(ca))},
		CRLFiles: []string{filepath.Join(root, "current", "ca.crl")}, Logger: testLogger(t), PollInterval: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	var revoked []*authority
	for n := range int64(4) {
		client := newClient(t, ca, "client")
		if err := v.VerifyConnection(stateOf([]*authority{client, ca})); err != nil {
			t.Fatal(err)
		}
		revoked = append(revoked, client)
		publish(n+2, revoked...)
		testtool.Eventually(t, "revoked", func() bool { return v.VerifyConnection(stateOf([]*authority{client, ca})) != nil })
	}
}

// What others write beside a list makes nobody read it again.
func TestEventsBesideAFile(t *testing.T) {
	ca := newCA(t, nil, "ca")
	dir := t.TempDir()
	path := write(t, dir, "ca.crl", ca.crl(t, crlOptions{}))
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	w := watcher{files: []string{path}, seen: make(map[string]sight)}
	if !w.changed() {
		t.Error("the first look is no change")
	}
	write(t, dir, "log", []byte("line"))
	if w.changed() {
		t.Error("a file beside it changed, and it counts as changed")
	}
	write(t, dir, "ca.crl", ca.crl(t, crlOptions{number: 2}))
	// A clock that is coarse could hide a second change right after the first.
	for range 2 {
		if !w.changed() {
			t.Error("a new list is no change")
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !w.changed() || w.changed() {
		t.Error("a list that is gone must be one change")
	}
}

// A file reached by a link from elsewhere changes without a notice in the
// watched directory.
func TestRunPolls(t *testing.T) {
	one, two := newCA(t, nil, "one"), newCA(t, nil, "two")
	elsewhere, dir := t.TempDir(), t.TempDir()
	target := write(t, elsewhere, "ca.pem", bundle(one))
	path := filepath.Join(dir, "ca.pem")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	v, err := New(Options{Site: "app", Mode: Require, CAFiles: []string{path}, Logger: testLogger(t), PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	run(t, v)
	before := v.Current().Digest
	write(t, elsewhere, "ca.pem", bundle(two))
	testtool.Eventually(t, "of the second authority", func() bool { return v.Current().Err == nil && v.Current().Digest != before })
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "closed", closedNow(v))
	write(t, elsewhere, "ca.pem", bundle(one))
	testtool.Eventually(t, "open", openNow(v))
}

// One site's broken file closes no other site.
func TestBrokenFileClosesOneSiteOnly(t *testing.T) {
	ca := newCA(t, nil, "ca")
	client := newClient(t, ca, "client")
	dirs := []string{t.TempDir(), t.TempDir()}
	var sites []*Verifier
	for _, dir := range dirs {
		v, err := New(Options{
			Site: dir, Mode: Require, CAFiles: []string{write(t, dir, "ca.pem", bundle(ca))},
			CRLFiles: []string{write(t, dir, "ca.crl", ca.crl(t, crlOptions{}))}, Logger: testLogger(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, v)
		sites = append(sites, v)
	}
	write(t, dirs[0], "ca.crl", []byte("broken"))
	testtool.Eventually(t, "closed", closedNow(sites[0]))
	wantReason(t, sites[0].VerifyConnection(stateOf([]*authority{client, ca})), Unavailable, "ca.crl")
	wantReason(t, sites[1].VerifyConnection(stateOf([]*authority{client, ca})), "")
}

func TestReloadOfTheSameKeepsTheSnapshot(t *testing.T) {
	ca := newCA(t, nil, "ca")
	dir := t.TempDir()
	v, err := New(Options{Mode: Require, CAFiles: []string{write(t, dir, "ca.pem", bundle(ca))}, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	before := v.Current()
	write(t, dir, "ca.pem", bundle(ca))
	if err := v.Reload(); err != nil || v.Current() != before {
		t.Errorf("Reload = %v, snapshot replaced = %v", err, v.Current() != before)
	}
}
