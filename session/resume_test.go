package session

import (
	"bytes"
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"
)

// A client that comes back resumes, however often, and holds one session.
func TestReturningClientHoldsOneSession(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c).want(t, false, None)
		p.wantEntries(t, 1)
		for range 20 {
			p.connect(t, c).want(t, true, Hit)
			time.Sleep(time.Second)
		}
		time.Sleep(DefaultReuseWindow)
		p.wantEntries(t, 1)
		accounts(t, p.r)
		if s := p.r.Stats(); s.Lookups[Hit] != 20 {
			t.Errorf("%d hits, want 20", s.Lookups[Hit])
		}
	})
}

// While the reuse window lasts, a browser's parallel connections share one
// handle; afterwards it is gone.
func TestReuseWindow(t *testing.T) {
	tests := []struct {
		name   string
		window time.Duration
		after  []time.Duration // since the first resumption
		resume []bool
	}{
		{"default", 0, []time.Duration{0, 9 * time.Second, 10 * time.Second, 11 * time.Second}, []bool{true, true, false, false}},
		{"a minute", time.Minute, []time.Duration{0, 59 * time.Second, time.Minute}, []bool{true, true, false}},
		{"single", SingleUse, []time.Duration{0, time.Second}, []bool{false, false}},
		{"unlimited", Unlimited, []time.Duration{0, time.Minute, 23 * time.Hour}, []bool{true, true, true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version uint16) {
				if version == tls.VersionTLS12 && tt.window != SingleUse {
					return // the handle stays: see TestTLS12KeepsItsHandle
				}
				p := newProxy(t, Options{Limits: Limits{ReuseWindow: tt.window}})
				c := client(version, "a.test")
				c.ClientSessionCache = new(oneTicket)
				p.full(t, c)
				p.connect(t, c).want(t, true, Hit)
				start := time.Now()
				for i, after := range tt.after {
					time.Sleep(after - time.Since(start))
					want := Hit
					if !tt.resume[i] {
						want = Absent
					}
					p.connect(t, c).want(t, tt.resume[i], want)
				}
				accounts(t, p.r)
			})
		})
	}
}

// In TLS 1.2 a resumed session is the same session: its handle is handed out
// again, so that clients that keep their first ticket resume for ever.
func TestTLS12KeepsItsHandle(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		first := ticketOf(t, c)
		p.connect(t, c).want(t, true, Hit)
		second := ticketOf(t, c)
		if same := bytes.Equal(first, second); same != (version == tls.VersionTLS12) {
			t.Fatalf("the handle after a resumption is the same: %v", same)
		}
		if version == tls.VersionTLS12 {
			p.wantEntries(t, 1)
			time.Sleep(time.Hour)
			p.connect(t, withTicket(t, c, first)).want(t, true, Hit)
		}
	})
}

// A session that crypto/tls declines gets a new handle in TLS 1.2 as well:
// the old one names another session.
func TestDeclinedSessionGetsNewHandle(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		if version == tls.VersionTLS13 {
			return // every suite of one hash resumes every other
		}
		c := client(version, "a.test")
		p.policy.suites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
		p.full(t, c)
		first := ticketOf(t, c)
		p.policy.suites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
		o := p.connect(t, c)
		if bytes.Equal(first, ticketOf(t, c)) {
			t.Error("the declined handle was handed out again")
		}
		o.want(t, false, Declined)
		if n := p.r.Stats().Lookups[Declined]; n != 1 {
			t.Errorf("%d lookups were declined, want 1", n)
		}
		p.wantEntries(t, 2)
	})
}

// crypto/tls declines a session without a client certificate where one is
// asked for, even if the scopes were the same.
func TestDeclinedWithoutClientCertificate(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		first := ticketOf(t, c)
		cert := clientCert(testCA(), "someone", notAfter)
		c.Certificates = []tls.Certificate{*cert}
		p.policy.clientAuth, p.policy.clientCAs = tls.RequireAndVerifyClientCert, testCA().Pool()
		o := p.connect(t, c)
		o.want(t, false, Declined)
		if len(o.server.PeerCertificates) == 0 {
			t.Fatal("no client certificate")
		}
		if bytes.Equal(first, ticketOf(t, c)) {
			t.Error("the declined handle was handed out again")
		}
		p.connect(t, c).want(t, true, Hit)
	})
}

// Two resumptions later the first handle is deleted, not just cut.
func TestGrandparentIsDeleted(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		if version == tls.VersionTLS12 {
			return // no successors
		}
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		first := withTicket(t, c, ticketOf(t, c))
		p.connect(t, c).want(t, true, Hit)
		p.wantEntries(t, 2)
		p.connect(t, c).want(t, true, Hit)
		p.wantEntries(t, 2)
		p.connect(t, first).want(t, false, Absent)
		accounts(t, p.r)
	})
}

// One handle has at most eight successors; what comes after still resumes.
func TestSuccessorsAreBounded(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		if version == tls.VersionTLS12 {
			return // no successors
		}
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		c.ClientSessionCache = new(oneTicket)
		p.full(t, c)
		for range 12 {
			p.connect(t, c).want(t, true, Hit)
		}
		p.wantEntries(t, 1+maxSuccessors)
		if n := p.r.Stats().NotStored[string(successors)]; n != 4 {
			t.Errorf("%d sessions not stored for their number, want 4", n)
		}
		accounts(t, p.r)
	})
}

// What follows a handle that was already cut lives on: each of a browser's
// parallel connections may leave the session that it uses later.
func TestSuccessorsOutliveTheWindow(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		first := withTicket(t, c, ticketOf(t, c))
		p.connect(t, first).want(t, true, Hit)
		time.Sleep(5 * time.Second)
		p.connect(t, c).want(t, true, Hit) // with the handle that was cut
		time.Sleep(time.Hour)
		p.connect(t, c).want(t, true, Hit)
	})
}

// With single use, of two connections with one handle the second at commit
// keeps its connection, and its new session is not stored.
func TestSingleUseSecondAtCommit(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{Limits: Limits{ReuseWindow: SingleUse}})
		c := client(version, "a.test")
		p.full(t, c)
		rival := withTicket(t, c, ticketOf(t, c))
		p.beforeCommit = func() {
			p.beforeCommit = nil
			p.connect(t, rival).want(t, true, Hit)
		}
		p.connect(t, c).want(t, true, Hit)
		p.wantEntries(t, 1) // the rival's
		if n := p.r.Stats().NotStored[string(usedUp)]; n != 1 {
			t.Errorf("%d sessions not stored because their handle was used up, want 1", n)
		}
		p.connect(t, c).want(t, false, Absent)
	})
}

// An unfinished handshake stores nothing.
func TestUnfinishedHandshakesStoreNothing(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		hello := p.full(t, client(version, "b.test")).hello
		before := p.r.Stats().Stored
		for range 5 {
			a, err := p.replay(hello)
			if err == nil {
				t.Fatal("the handshake of a client that went away succeeded")
			}
			if a.staged != nil {
				t.Error("the staged session was not dropped")
			}
		}
		p.wantEntries(t, 1)
		if got := p.r.Stats().Stored; got != before {
			t.Errorf("%d sessions stored, want %d", got, before)
		}
	})
}

// A replayed hello takes nothing away, not even with single use, and is no hit.
func TestReplayedHelloTakesNothingAway(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		for _, window := range []time.Duration{0, SingleUse} {
			p := newProxy(t, Options{Limits: Limits{ReuseWindow: window}})
			c := client(version, "a.test")
			p.full(t, c)
			keep(c)
			hello := caught(c)
			for range 5 {
				if _, err := p.replay(hello); err == nil {
					t.Fatal("the replay succeeded")
				}
			}
			p.wantEntries(t, 1)
			before := p.r.Stats().Lookups
			if before[Hit] != 0 || before[Unfinished] < 5 {
				t.Errorf("the replays count as %v", before)
			}
			p.connect(t, c).want(t, true, Hit)
		}
	})
}

// A client that fails authorisation leaves no session behind.
func TestRefusedClientStoresNothing(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		p.policy.authorise = func(tls.ConnectionState) error { return errRefused }
		if o := p.try(client(version, "a.test")); o.serverErr == nil {
			t.Fatal("the handshake succeeded")
		}
		p.wantEntries(t, 0)
	})
}

// Without the key it was served with, a session could not be bound to it.
func TestUnknownKeyStoresNothing(t *testing.T) {
	r := newProxy(t, Options{}).r
	a := r.Begin(Binding{})
	if _, err := a.Wrap(tls.ConnectionState{Version: tls.VersionTLS13}, sessionState(t)); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(tls.ConnectionState{}); err != nil {
		t.Fatal(err)
	}
	if s := r.Stats(); s.Entries != 0 || s.NotStored[string(noKey)] != 1 {
		t.Errorf("%d sessions stored, %d without a key", s.Entries, s.NotStored[string(noKey)])
	}
}

// sessionState returns a small state as crypto/tls would wrap it.
func sessionState(t testing.TB) *tls.SessionState {
	t.Helper()
	var state *tls.SessionState
	cfg := &tls.Config{
		Certificates: []tls.Certificate{*defaultCert()},
		WrapSession: func(_ tls.ConnectionState, ss *tls.SessionState) ([]byte, error) {
			state = ss
			return []byte("x"), nil
		},
	}
	handshakeWith(t, cfg, client(tls.VersionTLS13, "a.test"))
	return state
}

// A connection that resumed and was then refused takes its session along, in
// the store too; one that was refused in a full handshake takes nothing.
func TestRefusedResumptionEndsTheSession(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p, _, store := fleet(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		keep(c)
		synctest.Wait()
		p.policy.authorise = func(tls.ConnectionState) error { return errRefused }
		fresh := client(version, "a.test")
		if o := p.try(fresh); o.serverErr == nil {
			t.Fatal("was not refused")
		}
		p.wantEntries(t, 1)
		if o := p.try(c); o.serverErr == nil || o.result != Hit {
			t.Fatalf("was not refused on a resumption: %v, %q", o.serverErr, o.result)
		}
		synctest.Wait()
		p.wantEntries(t, 0)
		if n := store.live(); n != 0 {
			t.Errorf("the store holds %d sessions", n)
		}
		p.policy.authorise = nil
		p.connect(t, c).want(t, false, Absent)
	})
}
