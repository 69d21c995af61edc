package session

import (
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
