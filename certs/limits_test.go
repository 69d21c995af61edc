package certs

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// limited is a watcher that the kernel's limit stops.
type limited struct{ watcher }

func (l limited) add(string) error { return syscall.ENOSPC }

// TestWatchLimit: where the kernel allows no more watches, files are polled.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	one, two := issue(t, ca, pki.Request{Names: []string{"a.test"}}), issue(t, ca, pki.Request{Names: []string{"a.test"}})
	dir := t.TempDir()
	f := writePair(t, dir, "a", one)
	var log logBuffer
	s := newStore(t, Options{Logger: log.logger()})
	s.seams.newWatcher = func() (watcher, error) {
		w, err := newInotify()
		return limited{w}, err
	}
	load(t, s, Source{Files: f})
	run(t, s)
	eventually(t, within, "polling, and saying so", func() bool {
		return s.Stats().Polling && strings.Contains(log.String(), "files cannot be watched") && strings.Contains(log.String(), "no space left")
	})
	writePair(t, dir, "a", two)
	eventually(t, 3*time.Second, "serving the new certificate", func() bool { return serves(s, "a.test", two) })
}

// TestKernelWithoutInotify runs in a user namespace whose limit of inotify
// instances is 0.
func TestKernelWithoutInotify(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	one, two := issue(t, ca, pki.Request{Names: []string{"a.test"}}), issue(t, ca, pki.Request{Names: []string{"a.test"}})
	dir := t.TempDir()
	f := writePair(t, dir, "a", one)
	_, lines := startChild(t, childConfig{Sources: []Source{{Files: f}}, NoInotify: true})
	expect(t, lines, "running")
	expect(t, lines, "polling")
	first := expect(t, lines, "serving")
	writePair(t, dir, "a", two)
	if second := expect(t, lines, "serving"); second == first {
		t.Errorf("serving %s twice", first)
	}
}
