package session

import (
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"
)

// fleet is two replicas of one policy that share a store.
func fleet(t *testing.T, o Options) (a, b *proxy, s *fakeStore) {
	t.Helper()
	s = newFakeStore()
	o.Store = s
	a, b = newProxy(t, o), newProxy(t, o)
	a.run(t)
	b.run(t)
	synctest.Wait()
	return a, b, s
}

// A client resumes on either replica.
func TestFleetResumesAnywhere(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		b.connect(t, c).want(t, true, HitShared)
		synctest.Wait()
		for range 5 {
			want := HitShared
			if version == tls.VersionTLS12 {
				want = Hit // both know the one session now
			}
			a.connect(t, c).want(t, true, want)
			synctest.Wait()
			b.connect(t, c).want(t, true, want)
			synctest.Wait()
		}
		time.Sleep(DefaultReuseWindow)
		if n := s.live(); n != 1 {
			t.Errorf("the store holds %d sessions of one client", n)
		}
		accounts(t, a.r)
		accounts(t, b.r)
	})
}

// A restarted replica knows what the store knows.
func TestRestartKeepsSharedSessions(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, _, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		restarted := newProxy(t, Options{Store: s})
		restarted.run(t)
		synctest.Wait()
		restarted.connect(t, c).want(t, true, HitShared)
	})
}

// The binding of a shared session is checked like that of a local one.
func TestSharedSessionsAreBound(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, _ := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		b.policy.scope = NewScope().Add("another").Sum()
		b.connect(t, c).want(t, false, ScopeMiss)
		b.policy.scope, c.ServerName = a.policy.scope, "b.test"
		b.connect(t, c).want(t, false, SNI)
		c.ServerName = "a.test"
		b.policy.keys = [][32]byte{{1}}
		b.connect(t, c).want(t, false, Key)
		b.policy.keys = nil
		b.connect(t, c).want(t, true, HitShared)
	})
}

// After a resumption the old handle has the reuse window in the store as well,
// and two resumptions later it is gone.
func TestFleetCutsAndDeletes(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		if version == tls.VersionTLS12 {
			return // nothing follows a session
		}
		a, b, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		first := withTicket(t, c, ticketOf(t, c))
		a.connect(t, c).want(t, true, Hit)
		synctest.Wait()
		b.connect(t, first).want(t, true, HitShared)
		time.Sleep(DefaultReuseWindow)
		fresh := newProxy(t, Options{Store: s})
		fresh.run(t)
		synctest.Wait()
		fresh.connect(t, first).want(t, false, Absent)

		a.full(t, client(version, "b.test"))
		a.connect(t, c).want(t, true, Hit)
		synctest.Wait()
		if n := s.live(); n != 5 { // of c the last two; what b and fresh made; b.test
			t.Errorf("the store holds %d sessions, want 5", n)
		}
	})
}

// With single use, after one completed resumption the handle resumes nowhere,
// and a replayed hello does not use it up.
func TestFleetSingleUse(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{Limits: Limits{ReuseWindow: SingleUse}})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		hello := caught(c)
		for _, p := range []*proxy{a, b} {
			if _, err := p.replay(hello); err == nil {
				t.Fatal("the replay succeeded")
			}
		}
		b.connect(t, c).want(t, true, HitShared)
		synctest.Wait()
		third := newProxy(t, Options{Store: s, Limits: Limits{ReuseWindow: SingleUse}})
		third.run(t)
		synctest.Wait()
		for _, p := range []*proxy{a, b, third} {
			p.connect(t, c).want(t, false, Absent)
		}
	})
}

// Of two replicas that complete with one single-use handle at a time, one
// stores what follows, and both keep their connections.
func TestFleetSingleUseRace(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{Limits: Limits{ReuseWindow: SingleUse}})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		a.beforeCommit = func() { b.connect(t, c).want(t, true, HitShared) }
		a.connect(t, c).want(t, true, HitShared)
		synctest.Wait()
		if n := s.live(); n != 1 {
			t.Errorf("the store holds %d sessions, want what b stored", n)
		}
		if n := a.r.Stats().NotStored[string(usedUp)]; n != 1 {
			t.Errorf("a refused to store %d sessions, want 1", n)
		}
	})
}

// When it cannot be known whether a single-use handle was used up, nothing
// follows it, and it is deleted once the store is back.
func TestSingleUseWhenTakeFails(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{Limits: Limits{ReuseWindow: SingleUse}})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		a.beforeCommit = func() { s.set(failing) }
		a.connect(t, c).want(t, true, HitShared)
		s.set(nil)
		time.Sleep(10 * time.Second)
		if n := s.live(); n != 0 {
			t.Errorf("the store still holds %d sessions", n)
		}
		b.connect(t, c).want(t, false, Absent)
	})
}

// Single use holds from the reload that sets it: copies that a replica had
// before are not used any more.
func TestSingleUseFromNowOn(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, _ := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		for _, p := range []*proxy{a, b} {
			if err := p.r.SetLimits(Limits{ReuseWindow: SingleUse}); err != nil {
				t.Fatal(err)
			}
		}
		b.connect(t, c).want(t, true, HitShared)
		a.connect(t, c).want(t, false, Absent)
	})
}

// With single use, a session that may have reached the store is not put again:
// it might have been used up meanwhile.
func TestSingleUseIsPutOnce(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		for _, window := range []time.Duration{0, SingleUse} {
			a, _, s := fleet(t, Options{Limits: Limits{ReuseWindow: window}})
			s.set(failing)
			a.full(t, client(version, "a.test"))
			synctest.Wait()
			s.set(nil)
			time.Sleep(time.Minute)
			if got, want := s.live() == 1, window == 0; got != want {
				t.Errorf("window %v: put again: %v", window, got)
			}
		}
	})
}

// Whatever the store does, the handshake succeeds, and waits for it once.
func TestStoreTroubles(t *testing.T) {
	troubles := []struct {
		name string
		f    func(*fakeStore)
		wait time.Duration
	}{
		{"fails", func(s *fakeStore) { s.set(failing) }, 0},
		{"panics", func(s *fakeStore) { s.set(panicking) }, 0},
		{"hangs until its deadline", func(s *fakeStore) { s.set(obeying) }, DefaultStoreTimeout},
		{"returns junk", func(s *fakeStore) {
			for id, v := range s.sessions {
				s.sessions[id] = fakeValue{[]byte("junk"), v.end}
			}
		}, 0},
		{"returns nothing but a header", func(s *fakeStore) {
			for id, v := range s.sessions {
				s.sessions[id] = fakeValue{append(v.b[:wireHeader:wireHeader], 1, 2, 3), v.end}
			}
		}, 0},
		{"forgets everything", func(s *fakeStore) { clear(s.sessions) }, 0},
	}
	for _, tt := range troubles {
		t.Run(tt.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version uint16) {
				for _, window := range []time.Duration{0, SingleUse} {
					a, b, s := fleet(t, Options{Limits: Limits{ReuseWindow: window}})
					c := client(version, "a.test")
					a.full(t, c)
					synctest.Wait()
					keep(c)
					s.mu.Lock()
					before := s.gets
					s.mu.Unlock()
					tt.f(s)
					start := time.Now()
					o := b.connect(t, c)
					if o.server.DidResume || (o.result != StoreError && o.result != Absent) {
						t.Errorf("resumed %v, %q", o.server.DidResume, o.result)
					}
					if took := time.Since(start); took != tt.wait {
						t.Errorf("the handshake waited %v for the store, want %v", took, tt.wait)
					}
					if gets, _ := s.counts(); gets != before+1 {
						t.Errorf("the store was asked %d times", gets-before)
					}
					s.set(nil)
					c = client(version, "a.test")
					a.full(t, c)
					synctest.Wait()
					b.connect(t, c).want(t, true, HitShared) // healed
				}
			})
		})
	}
}

// A store that never returns costs a bounded number of goroutines, and after
// those no time.
func TestStoreThatNeverReturns(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		s := newFakeStore()
		p := newProxy(t, Options{Store: s})
		p.r.current.Store(true)
		hang, release := ignoring()
		defer release()
		s.set(hang)
		c := client(version, "a.test")
		p.full(t, c)
		p.r.Clear()
		keep(c)
		waited := 0
		for range maxCalls + 20 {
			start := time.Now()
			p.connect(t, c).want(t, false, StoreError)
			if time.Since(start) > 0 {
				waited++
			}
		}
		if waited != maxCalls {
			t.Errorf("%d handshakes waited, want %d", waited, maxCalls)
		}
	})
}

// One hello with several handles asks the store once; forged ones never do.
func TestStoreIsAskedOnce(t *testing.T) {
	s := newFakeStore()
	p := newProxy(t, Options{Store: s})
	p.r.current.Store(true)
	var handles [][]byte
	for range 3 {
		h, ok := p.r.handle(newID(s.Hint()))
		if !ok {
			t.Fatal("no handle")
		}
		handles = append(handles, h)
	}
	forged := append([]byte(nil), handles[0]...)
	forged[31] ^= 1
	a := p.r.Begin(Binding{})
	for _, h := range append([][]byte{forged, make([]byte, 32), {1}}, handles...) {
		if ss, err := a.Unwrap(h, tls.ConnectionState{Version: tls.VersionTLS13}); ss != nil || err != nil {
			t.Fatal(ss, err)
		}
	}
	a.Abandon()
	if gets, _ := s.counts(); gets != 1 {
		t.Errorf("the store was asked %d times, want once", gets)
	}
}

// Lookup and commit of one handshake share one deadline.
func TestOneDeadlineForAHandshake(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{Limits: Limits{ReuseWindow: SingleUse}})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		s.set(slowBy(40 * time.Millisecond))
		start := time.Now()
		b.connect(t, c).want(t, true, HitShared)
		if took := time.Since(start); took != DefaultStoreTimeout {
			t.Errorf("the handshake waited %v in all, want %v", took, DefaultStoreTimeout)
		}
	})
}

// What waits for a store that is down is bounded, and what was lost is counted.
func TestWriteBehindIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		p := newProxy(t, Options{Store: s})
		s.set(failing)
		p.run(t)
		id := newID(0)
		limit := p.r.queue.perLane
		for range limit + 200 {
			p.r.queue.put(id, []byte("value"), time.Hour)
		}
		if n := p.r.Stats().StoreDropped; n == 0 || n > 200 {
			t.Errorf("%d changes dropped, want up to 200", n)
		}
		time.Sleep(5 * time.Minute)
		st := p.r.Stats()
		if st.StoreQueued != 0 || st.StoreFailed+st.StoreDropped != uint64(limit)+200 {
			t.Errorf("%d queued, %d failed, %d dropped", st.StoreQueued, st.StoreFailed, st.StoreDropped)
		}
	})
}

// Changes to one session reach the store in their order, and a stop writes
// what is waiting.
func TestWriteBehindOrderAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		p := newProxy(t, Options{Store: s, StoreQueue: 1 << 16})
		ids := make([]ID, 100)
		for i := range ids {
			ids[i] = newID(0)
			for n := range 50 {
				p.r.queue.put(ids[i], []byte{byte(n)}, time.Hour)
			}
			if i%2 == 0 {
				p.r.queue.put(ids[i], nil, 0)
			} else {
				p.r.queue.put(ids[i], nil, time.Minute)
			}
		}
		func() { // started and stopped at once
			ctx, cancel := contextWithCancel()
			cancel()
			if err := p.r.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}()
		for i, id := range ids {
			v, ok := s.sessions[id]
			if i%2 == 0 && ok {
				t.Fatal("a deleted session is there")
			}
			if i%2 == 1 && (v.b[0] != 49 || time.Until(v.end) != time.Minute) {
				t.Fatalf("value %d for %v, want the last one for a minute", v.b[0], time.Until(v.end))
			}
		}
	})
}
