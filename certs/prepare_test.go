package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// TestPreparationsDoNotQueue: certificates whose preparation waits wait together,
// however many they are.
func TestPreparationsDoNotQueue(t *testing.T) {
	const many = 130
	ca, dir := newCA(t), t.TempDir()
	for i := range many {
		writePair(t, dir, fmt.Sprintf("c%d", i), issue(t, ca, pki.Request{Names: []string{fmt.Sprintf("c%d.test", i)}}))
	}
	var waiting sync.WaitGroup
	waiting.Add(many)
	s := newStore(t, Options{Logger: slog.New(slog.DiscardHandler), Prepare: func(c context.Context, _ *tls.Certificate) error {
		waiting.Done()
		all := make(chan struct{})
		go func() {
			waiting.Wait()
			close(all)
		}()
		select {
		case <-all:
			return nil
		case <-time.After(time.Minute):
			return errors.New("the others have not begun")
		}
	}})
	load(t, s, Source{Directory: &Directory{Path: dir}})
	if left := s.unprepared(); len(left) > 0 {
		t.Errorf("%d certificates waited alone", len(left))
	}
}

// TestSlowPreparationInADirectory: what waits for its first staple holds up
// nothing else in its directory, neither what was written with it nor what
// comes later, and is served when it is prepared, or cannot be.
func TestSlowPreparationInADirectory(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"prepared": nil, "fails": errors.New("no answer")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, dir, h := newCA(t), t.TempDir(), new(hooks)
			cert := func(name string) *tls.Certificate { return issue(t, ca, pki.Request{Names: []string{name}}) }
			slow, slower := cert("slow.test"), cert("slower.test")
			release := map[string]chan struct{}{"slow.test": make(chan struct{}), "slower.test": make(chan struct{})}
			s := newStore(t, Options{PollInterval: time.Hour, Release: h.release, Prepare: func(c context.Context, cert *tls.Certificate) error {
				if wait := release[cert.Leaf.DNSNames[0]]; wait != nil {
					select {
					case <-wait:
					case <-c.Done():
						return c.Err()
					}
					if result != nil {
						return result
					}
				}
				return h.prepare(c, cert)
			}})
			first := cert("first.test")
			writePair(t, dir, "first", first)
			load(t, s, Source{Directory: &Directory{Path: dir}})
			stop := run(t, s)
			eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
			plain, later := cert("plain.test"), cert("later.test")
			writePair(t, dir, "slow", slow)
			writePair(t, dir, "slower", slower)
			writePair(t, dir, "plain", plain)
			eventually(t, within, "serving what was written with it", func() bool { return serves(s, "plain.test", plain) })
			writePair(t, dir, "later", later)
			eventually(t, within, "serving what was written later", func() bool { return serves(s, "later.test", later) })
			if serves(s, "slow.test", slow) || serves(s, "slower.test", slower) {
				t.Error("a certificate is served that is still being prepared")
			}
			close(release["slow.test"])
			eventually(t, within, "serving it", func() bool { return serves(s, "slow.test", slow) })
			if serves(s, "slower.test", slower) || !serves(s, "first.test", first) {
				t.Error("the other one is served, or the first is not")
			}
			close(release["slower.test"])
			eventually(t, within, "serving the other", func() bool { return serves(s, "slower.test", slower) })
			load(t, s)
			stop()
			if n := h.live(t); n != 0 || len(s.registry.held) != 0 {
				t.Errorf("%d certificates prepared, %d held without sources", n, len(s.registry.held))
			}
		})
	}
}

// TestLatePreparationOfNoUse: what is prepared when its source is gone, or
// nothing runs any more, is released.
func TestLatePreparationOfNoUse(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *Store, stop func(), release chan struct{}){
		"source gone": func(t *testing.T, s *Store, _ func(), release chan struct{}) {
			load(t, s)
			close(release)
		},
		"stopped": func(t *testing.T, s *Store, stop func(), _ chan struct{}) {
			stop()
			load(t, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, dir, h := newCA(t), t.TempDir(), new(hooks)
			release, waiting := make(chan struct{}), make(chan struct{}, 1)
			s := newStore(t, Options{PollInterval: time.Hour, Release: h.release, Prepare: func(c context.Context, cert *tls.Certificate) error {
				if cert.Leaf.DNSNames[0] == "slow.test" {
					waiting <- struct{}{}
					select {
					case <-release:
					case <-c.Done():
						return c.Err()
					}
				}
				return h.prepare(c, cert)
			}})
			writePair(t, dir, "first", issue(t, ca, pki.Request{Names: []string{"first.test"}}))
			load(t, s, Source{Directory: &Directory{Path: dir}})
			stop := run(t, s)
			eventually(t, within, "watching", func() bool { return s.Stats().Watched > 0 })
			writePair(t, dir, "slow", issue(t, ca, pki.Request{Names: []string{"slow.test"}}))
			plain := issue(t, ca, pki.Request{Names: []string{"plain.test"}})
			writePair(t, dir, "plain", plain)
			<-waiting
			eventually(t, within, "serving what was written with it", func() bool { return serves(s, "plain.test", plain) })
			end(t, s, stop, release)
			eventually(t, within, "released", func() bool {
				s.registry.mu.Lock()
				defer s.registry.mu.Unlock()
				return len(s.registry.held) == 0
			})
			stop()
			if n := h.live(t); n != 0 {
				t.Errorf("%d certificates are still prepared", n)
			}
		})
	}
}

// TestIssuerAtTheStart: the issuer that came with one certificate is known when
// another one of the same load is prepared, and not for longer than it is held.
func TestIssuerAtTheStart(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	whole, alone := issue(t, ca, pki.Request{Names: []string{"whole.test"}}), issue(t, ca, pki.Request{Names: []string{"alone.test"}})
	alone.Certificate = alone.Certificate[:1]
	var s *Store
	var missing sync.Map
	s = newStore(t, Options{Prepare: func(_ context.Context, cert *tls.Certificate) error {
		if s.Issuer(cert.Leaf) == nil {
			missing.Store(cert.Leaf.DNSNames[0], true)
		}
		return nil
	}})
	load(t, s, Source{Files: writePair(t, dir, "a-alone", alone)}, Source{Files: writePair(t, dir, "whole", whole)})
	missing.Range(func(name, _ any) bool {
		t.Errorf("no issuer for %v", name)
		return true
	})
	load(t, s)
	if s.Issuer(alone.Leaf) != nil {
		t.Error("the issuer is known by a certificate that is gone")
	}
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

// TestPreparationCalledOff: at a stop nobody is told that a certificate is served
// unprepared, as it is not; after a deadline it is.
func TestPreparationCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, err := fromTLS(issue(t, newCA(t), pkiRequest("stop.test")))
		if err != nil {
			t.Fatal(err)
		}
		for _, stop := range []bool{true, false} {
			var log logBuffer
			s := newStore(t, Options{Logger: log.logger(), Prepare: func(ctx context.Context, _ *tls.Certificate) error {
				<-ctx.Done()
				return ctx.Err()
			}})
			held, _ := s.registry.acquire(cert)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if stop {
				cancel()
			}
			s.registry.prepareAll(ctx, []*certificate{held})
			cancel()
			if told := strings.Contains(log.String(), "without having been prepared"); told == stop {
				t.Errorf("stop %v: the log says %q", stop, log.String())
			}
		}
	})
}
