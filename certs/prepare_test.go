package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// hooks records what the stapler would be told.
type hooks struct {
	mu       sync.Mutex
	prepared map[*tls.Certificate]int
	released map[*tls.Certificate]int
	fail     error
	served   func(*tls.Certificate) bool // is it served already?
	early    int
}

func (h *hooks) prepare(_ context.Context, c *tls.Certificate) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.prepared == nil {
		h.prepared, h.released = make(map[*tls.Certificate]int), make(map[*tls.Certificate]int)
	}
	if h.served != nil && h.served(c) {
		h.early++
	}
	if h.fail != nil {
		return h.fail
	}
	h.prepared[c]++
	return nil
}

func (h *hooks) release(c *tls.Certificate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released[c]++
}

// live is how many certificates are prepared and not released; each is to be
// prepared and released once.
func (h *hooks) live(t *testing.T) int {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for c, times := range h.prepared {
		if times != 1 || h.released[c] > 1 {
			t.Errorf("a certificate was prepared %d and released %d times", times, h.released[c])
		}
		n += times - h.released[c]
	}
	return n
}

// TestReloadsLeaveNothing: 100 reloads and 20 swaps of certificates leave as
// many goroutines and certificates as before, and every certificate was
// prepared before its first use and released after its last.
func TestReloadsLeaveNothing(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	h := new(hooks)
	var s *Store
	h.served = func(c *tls.Certificate) bool {
		got, err := s.GetCertificate(modern("a.test"))
		return err == nil && got == c
	}
	s = newStore(t, Options{Prepare: h.prepare, Release: h.release, StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	f := writePair(t, dir, "a", issue(t, ca, pki.Request{Names: []string{"a.test"}}))
	g := writePair(t, dir, "b", issue(t, ca, pki.Request{Names: []string{"b.test"}}))
	sources := []Source{{Files: f}, {Files: g}, {Directory: &Directory{Path: dir}}, {Local: &Local{Hosts: []string{"localhost"}}}}
	load(t, s, sources...)
	stop := run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
	goroutines := runtime.NumGoroutine()
	first, _ := s.GetCertificate(modern("b.test"))
	local, _ := s.GetCertificate(modern("localhost"))
	for i := range 100 {
		if i%5 == 0 {
			writePair(t, dir, "a", issue(t, ca, pki.Request{Names: []string{"a.test"}}))
		}
		load(t, s, sources...)
		if i%10 == 0 {
			if _, err := s.Load(t.Context(), append(sources, Source{})); err == nil {
				t.Fatal("no error")
			}
			set, err := s.Load(t.Context(), sources)
			if err != nil {
				t.Fatal(err)
			}
			s.Discard(set)
		}
	}
	eventually(t, within, "down to the three certificates in use", func() bool { return h.live(t) == 3 })
	if again, _ := s.GetCertificate(modern("b.test")); again != first {
		t.Error("an unchanged certificate is another one after reloads")
	}
	if again, _ := s.GetCertificate(modern("localhost")); again != local {
		t.Error("the development CA's certificate is another one after reloads")
	}
	if h.early > 0 {
		t.Errorf("%d certificates were served before they were prepared", h.early)
	}
	eventually(t, within, "down to as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
	load(t, s)
	stop()
	if n := h.live(t); n != 0 || len(s.registry.held) != 0 {
		t.Errorf("%d certificates prepared, %d held without sources", n, len(s.registry.held))
	}
}

// TestPreparationFails: the certificate is served, and prepared later.
func TestPreparationFails(t *testing.T) {
	h := &hooks{fail: context.DeadlineExceeded}
	s := newStore(t, Options{Prepare: h.prepare, Release: h.release, PollInterval: 20 * time.Millisecond})
	cert := issue(t, newCA(t), pki.Request{Names: []string{"a.test"}})
	load(t, s, Source{Files: writePair(t, t.TempDir(), "a", cert)})
	if !serves(s, "a.test", cert) {
		t.Fatal("not served")
	}
	run(t, s)
	h.mu.Lock()
	h.fail = nil
	h.mu.Unlock()
	eventually(t, within, "prepared", func() bool { return h.live(t) == 1 })
	load(t, s)
	eventually(t, within, "released", func() bool { return h.live(t) == 0 })
}

// TestSlowPreparation: while one certificate waits for its first staple the old
// one is served, and other files are reloaded as ever.
func TestSlowPreparation(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	dir := t.TempDir()
	cert := func(name string) *tls.Certificate { return issue(t, ca, pki.Request{Names: []string{name}}) }
	slow, other := cert("slow.test"), cert("other.test")
	release := make(chan struct{})
	waiting := make(chan struct{}, 10)
	var slow2 *tls.Certificate
	s := newStore(t, Options{PollInterval: time.Hour, Prepare: func(c context.Context, cert *tls.Certificate) error {
		if slow2 != nil && cert.Leaf.Equal(slow2.Leaf) {
			waiting <- struct{}{}
			select {
			case <-release:
			case <-c.Done():
				return c.Err()
			}
		}
		return nil
	}})
	load(t, s, Source{Files: writePair(t, dir, "slow", slow)}, Source{Files: writePair(t, dir, "other", other)})
	slow2 = cert("slow.test")
	run(t, s)
	eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
	writePair(t, dir, "slow", slow2)
	<-waiting
	other2 := cert("other.test")
	writePair(t, dir, "other", other2)
	eventually(t, within, "serving the other file", func() bool { return serves(s, "other.test", other2) })
	if !serves(s, "slow.test", slow) {
		t.Error("a certificate is served that is still being prepared")
	}
	close(release)
	eventually(t, within, "serving the prepared certificate", func() bool { return serves(s, "slow.test", slow2) })
}
