package session

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A revocation made on one replica holds on the other at the next hello, and
// on a replica that starts later.
func TestFleetRevocation(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		b.connect(t, c) // absent or shared: b knows the client now
		synctest.Wait()
		keep(c)
		time.Sleep(time.Minute)
		if err := a.r.Revoke(t.Context(), Subject{Kind: KindServerName, Value: "A.test."}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.connect(t, c).want(t, false, Revoked)
		a.connect(t, c).want(t, false, Revoked)
		late := newProxy(t, Options{Store: s})
		late.run(t)
		synctest.Wait()
		late.connect(t, c).want(t, false, Revoked)
	})
}

// A replica resumes no session of the store before it knows what was revoked,
// nor while it may have missed something. Its own sessions resume.
func TestNoSharedSessionBeforeItsRevocation(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		late := newProxy(t, Options{Store: s})
		late.connect(t, c).want(t, false, StoreError)
		late.run(t)
		synctest.Wait()
		late.connect(t, c).want(t, true, HitShared)
		b.r.current.Store(false)
		b.connect(t, c).want(t, false, StoreError)
		a.r.current.Store(false)
		a.connect(t, c).want(t, true, Hit)
	})
}

// A revocation that the store did not take is in force here, said to be
// unshared, and shared when the store is back.
func TestRevocationWhileTheStoreIsDown(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		s.set(failing)
		err := a.r.Revoke(t.Context(), Subject{Kind: KindAll})
		if !errors.Is(err, ErrNotShared) || !errors.Is(err, errStore) {
			t.Fatalf("Revoke: %v", err)
		}
		a.connect(t, c).want(t, false, Revoked)
		synctest.Wait() // sharing was tried again, in vain
		s.set(nil)
		b.connect(t, c).want(t, true, HitShared)
		time.Sleep(5 * time.Second)
		b.connect(t, c).want(t, false, Revoked)
		for _, rec := range a.r.Status().Revoked {
			if !rec.Shared {
				t.Errorf("%v is not shared", rec)
			}
		}
	})
}

// record is a revocation of a site as another replica would publish it.
func record(site string, at time.Time) SharedRecord {
	return SharedRecord{
		Record: fmt.Appendf(nil, `{"kind":"site","value":%q,"at":%q}`, site, at.UTC().Format(time.RFC3339Nano)),
		End:    at.Add(recordLife),
	}
}

// Revocations that the store lost, some or all, are there again when a replica
// that knows them has looked, also for a replica that starts then.
func TestLostRevocationsAreSharedAgain(t *testing.T) {
	const n = publishBatch + 10
	for _, kept := range []int{0, 1, n} {
		eachVersion(t, func(t *testing.T, version uint16) {
			a, _, s := fleet(t, Options{})
			c := client(version, "a.test")
			a.full(t, c)
			synctest.Wait()
			keep(c)
			for i := range n {
				if err := a.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: fmt.Sprint(i)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: "site"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			s.forget(kept)
			time.Sleep(3 * time.Second)
			if got := len(s.held()); got != n+1 {
				t.Errorf("the store kept %d of %d, and has %d", kept, n+1, got)
			}
			late := newProxy(t, Options{Store: s})
			late.run(t)
			synctest.Wait()
			late.connect(t, c).want(t, false, Revoked)
		})
	}
}

// What ends soon is not put back: a replica whose clock is ahead has removed it.
func TestOldRevocationsAreNotSharedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, s := fleet(t, Options{})
		if err := a.r.Revoke(t.Context(), Subject{Kind: KindAll}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recordLife - maxSkew + time.Millisecond)
		s.forget(0)
		time.Sleep(time.Minute)
		if got := s.held(); len(got) != 0 {
			t.Errorf("the store has %q", got)
		}
	})
}

// What a replica reads is saved once, however much it is, and however it ends.
func TestReadingIsSavedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{5000, maxRecords + 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeStore()
			for i := range n {
				s.records = append(s.records, record(fmt.Sprint(i), time.Now()))
			}
			var log strings.Builder // of each save, since none succeeds
			p := newProxy(t, Options{Store: s, Logger: textLogger(&log)})
			p.r.journal.dir = filepath.Join(file, "state")
			p.run(t)
			synctest.Wait()
			if !p.r.current.Load() {
				t.Error("the revocations are not known")
			}
			most := 1
			if n > maxRecords {
				most += 2 // that of everything is shared, and comes back
			}
			if got := strings.Count(log.String(), "not kept on disk"); got < 1 || got > most {
				t.Errorf("%d records were saved %d times, want %d", n, got, most)
			}
		})
	}
}

// The store keeps one record of each subject, and of everything none from before.
func TestStoreKeepsOneRecordOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, s := fleet(t, Options{})
		for range 20 {
			for _, p := range []*proxy{a, b} {
				time.Sleep(time.Millisecond)
				for _, site := range []string{"one", "two"} {
					if err := p.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: site}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		wild := record("one", time.Now().Add(time.Hour)) // stands for none and is left
		foreign := SharedRecord{Record: []byte(`{"kind":"country","value":"x"}`), End: time.Now().Add(time.Hour)}
		if err := s.Publish(t.Context(), []SharedRecord{wild, foreign}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		last := a.r.now().Add(-2 * time.Second)
		for _, site := range []string{"one", "two"} {
			if got := s.held(); !slices.Contains(got, string(record(site, last).Record)) {
				t.Errorf("the last record of %s is not there: %q", site, got)
			}
		}
		if got := s.held(); len(got) != 4 {
			t.Errorf("the store has %q", got)
		}
		if err := a.r.Revoke(t.Context(), Subject{Kind: KindAll}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := s.held(); len(got) != 3 {
			t.Errorf("after one of everything the store has %q", got)
		}
	})
}

// Too many revocations become one on every replica and in the store, once: what
// is made afterwards resumes, also after further ones.
func TestTooManyRevocationsOfAFleet(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		a, b, s := fleet(t, Options{})
		c := client(version, "a.test")
		a.full(t, c)
		synctest.Wait()
		keep(c)
		var many []SharedRecord
		for i := range maxRecords + 1 {
			many = append(many, record(fmt.Sprint(i), time.Now()))
		}
		if err := s.Publish(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		b.connect(t, c).want(t, false, Revoked)
		if got := s.held(); len(got) != 1 {
			t.Errorf("the store has %d records, want one", len(got))
		}
		time.Sleep(time.Minute)
		since := client(version, "a.test")
		a.full(t, since)
		synctest.Wait()
		keep(since)
		for i := range 3 {
			if err := a.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: fmt.Sprint("new", i)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			a.connect(t, since).want(t, true, Hit)
			late := newProxy(t, Options{Store: s})
			late.run(t)
			synctest.Wait()
			late.connect(t, since).want(t, true, HitShared)
			late.connect(t, c).want(t, false, Revoked)
		}
	})
}

// While the store holds a revocation that does not open, what it may have ended
// is not taken from the store, and the log says so once. What was authenticated
// later is, and what a replica holds itself resumes.
func TestRevocationThatDoesNotOpen(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		var log strings.Builder
		a, b, s := fleet(t, Options{Logger: textLogger(&log)})
		before := client(version, "a.test")
		a.full(t, before)
		synctest.Wait()
		keep(before)
		time.Sleep(time.Minute)
		readable := record("site", time.Now())
		set := func(r SharedRecord) {
			s.mu.Lock()
			s.records = []SharedRecord{r}
			s.version++
			s.mu.Unlock()
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		for range 3 {
			set(SharedRecord{End: readable.End})
		}
		b.connect(t, before).want(t, false, StoreError)
		a.connect(t, before).want(t, true, Hit)
		time.Sleep(maxSkew)
		since := client(version, "a.test")
		a.full(t, since)
		synctest.Wait()
		keep(since)
		b.connect(t, since).want(t, true, HitShared)
		if n := strings.Count(log.String(), "level=ERROR"); n != 2 || strings.Count(log.String(), "do not open") != 2 {
			t.Errorf("%d errors in the logs of two replicas:\n%s", n, log.String())
		}

		set(readable)
		b.connect(t, before).want(t, false, Revoked)
		b.connect(t, since).want(t, true, Hit)
		if n := strings.Count(log.String(), "opens again"); n != 2 {
			t.Errorf("%d lines of the end:\n%s", n, log.String())
		}
	})
}

// What does not open counts for as long as a session of before may live; a time
// that no replica would have given it counts as now.
func TestSealedRevocationsMatterWhileSessionsLive(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		made    time.Duration // ago
		sealed  int
		covered time.Duration // what was authenticated so long ago is the last of it
	}{
		{0, 1, -maxSkew},
		{time.Minute, 1, time.Minute - maxSkew},
		{time.Hour - time.Second, 1, time.Hour - time.Second - maxSkew},
		{time.Hour + maxSkew, 0, 0},
		{24 * time.Hour, 0, 0},
		{-100 * 24 * time.Hour, 1, -2 * maxSkew},
	} {
		g := newReading([]SharedRecord{{End: now.Add(recordLife - tt.made)}}, now, time.Hour)
		if g.sealed != tt.sealed || tt.sealed > 0 && !g.until.Equal(now.Add(-tt.covered)) {
			t.Errorf("made %v ago: %d, until %v", tt.made, g.sealed, g.until)
		}
	}
}

type notPermitted struct{ error }

func (notPermitted) Refused() bool { return true }

// Whether the revocations in the store are known is logged when it changes, with
// the reason, and not while it lasts: as an error where somebody must act.
func TestUnknownRevocationsAreLogged(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		var log strings.Builder
		s := newFakeStore()
		p, other := newProxy(t, Options{Store: s, Logger: textLogger(&log)}), newProxy(t, Options{Store: s})
		p.run(t)
		other.run(t)
		c := client(version, "a.test")
		other.full(t, c)
		synctest.Wait()
		keep(c)
		if log.Len() > 0 {
			t.Errorf("logged at the start: %s", log.String())
		}
		for _, tt := range []struct {
			trouble error
			line    string
		}{
			{errStore, "level=WARN"},
			{notPermitted{errStore}, "level=ERROR"},
			{errStore, "level=WARN"},
			{nil, "known again"},
		} {
			log.Reset()
			s.mu.Lock()
			s.noRecords = tt.trouble
			s.mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			if lines := log.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, tt.line) ||
				tt.trouble != nil && !strings.Contains(lines, errStore.Error()) {
				t.Errorf("%v: logged %q, want one line of %q", tt.trouble, lines, tt.line)
			}
			if tt.trouble != nil {
				p.connect(t, c).want(t, false, StoreError)
			}
		}
		p.connect(t, c).want(t, true, HitShared)
	})
}
