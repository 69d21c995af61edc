package certs

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestChangeDuringPreparation: what changes while the same files are being
// loaded or prepared is served right after, without waiting for a poll.
func TestChangeDuringPreparation(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	dir := t.TempDir()
	cert := func(name string) *tls.Certificate { return issue(t, ca, pki.Request{Names: []string{name}}) }
	one, two, three, other, other2 := cert("a.test"), cert("a.test"), cert("a.test"), cert("b.test"), cert("b.test")
	waiting, release := make(chan struct{}, 1), make(chan struct{})
	s := newStore(t, Options{PollInterval: time.Hour, Prepare: func(c context.Context, cert *tls.Certificate) error {
		if cert.Leaf.Equal(two.Leaf) {
			waiting <- struct{}{}
			select {
			case <-release:
			case <-c.Done():
				return c.Err()
			}
		}
		return nil
	}})
	load(t, s, Source{Files: writePair(t, dir, "a", one)}, Source{Files: writePair(t, dir, "b", other)})
	run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
	writePair(t, dir, "a", two)
	<-waiting
	writePair(t, dir, "a", three)
	writePair(t, dir, "b", other2)
	eventually(t, within, "having looked at both files", func() bool { return serves(s, "b.test", other2) })
	close(release)
	eventually(t, within, "serving the last certificate", func() bool { return serves(s, "a.test", three) })
}

// TestNoFiles: a path that leads to something else than a file is an error at
// once, whatever it is.
func TestNoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := writePair(t, dir, "good", issue(t, newCA(t), pki.Request{Names: []string{"a.test"}}))
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"loop": "pool", "pool": "loop", "self": "self", "dangling": "nothing"} {
		if err := os.Symlink(target, path(link)); err != nil {
			t.Fatal(err)
		}
	}
	huge, err := os.Create(path("huge"))
	if err != nil {
		t.Fatal(err)
	}
	if err := huge.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	huge.Close()
	for file, want := range map[string]string{
		path("fifo"): "not a regular file", dir: "not a regular file", "/dev/zero": "not a regular file", path("huge"): "larger than 4 MiB",
		path("loop"): "too many levels of symbolic links", path("self"): "too many levels", path("dangling"): "no such file",
	} {
		for _, f := range []Files{{Cert: file, Key: good.Key}, {Cert: good.Cert, Key: file}, {PKCS12: file}, {Cert: good.Cert, Key: good.Key, PassphraseFile: file}} {
			s := newStore(t, Options{})
			done := make(chan error, 1)
			go func() {
				_, err := s.Load(context.Background(), []Source{{Files: &f}})
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
					t.Errorf("%+v: error %v; want %q", f, err, want)
				}
			case <-time.After(within):
				t.Fatalf("%+v: Load does not return", f)
			}
		}
	}
}

// TestDirectoryOfOddities: what is no file, and links that lead in circles,
// hinder nobody else in a directory.
func TestDirectoryOfOddities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert := issue(t, newCA(t), pki.Request{Names: []string{"a.test"}})
	writePair(t, dir, "a", cert)
	for link, target := range map[string]string{"self": ".", "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, Options{})
	load(t, s, Source{Directory: &Directory{Path: dir}})
	run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
	if !serves(s, "a.test", cert) {
		t.Fatal("the pair is not served")
	}
	again := issue(t, newCA(t), pki.Request{Names: []string{"a.test"}})
	writePair(t, dir, "a", again)
	eventually(t, within, "serving its successor", func() bool { return serves(s, "a.test", again) })
}

// TestTrustedCertificate: the blocks that "openssl x509 -trustout" writes are
// read, with or without settings of trust behind the certificate.
func TestTrustedCertificate(t *testing.T) {
	leaf := issue(t, newCA(t), pki.Request{Names: []string{"a.test"}}).Leaf
	for _, settings := range [][]byte{nil, {0x30, 0x00}, {0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 1}} {
		data := pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: append(slices.Clip(leaf.Raw), settings...)})
		got, err := parseCertificates(data)
		if err != nil || len(got) != 1 || !got[0].Equal(leaf) {
			t.Errorf("settings %x: %v, %v", settings, got, err)
		}
	}
	for _, junk := range [][]byte{nil, {0x30}, {0x30, 0x00}} {
		if _, err := parseCertificates(pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: junk})); err == nil {
			t.Errorf("%x was read", junk)
		}
	}
}
