package ocsp

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// sleeper is the clock of a machine that can be suspended: the wall clock goes
// on then, the monotonic one does not.
type sleeper struct{ asleep time.Duration }

// now is time.Now with its wall part alone moved. [time.Time.Add] moves both
// and hides what is to be tested, so the seconds are added where package time
// keeps them beside a monotonic reading: above 30 bits of nanoseconds.
func (s *sleeper) now() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(s.asleep/time.Second) << 30
	return t
}

// suspend lets the machine sleep, and checks that it is what it seems.
func (s *sleeper) suspend(t *testing.T, d time.Duration) {
	t.Helper()
	before := s.now()
	s.asleep += d
	after := s.now()
	if wall, mono := after.Round(0).Sub(before.Round(0)), after.Sub(before); wall < d || mono > d/2 {
		t.Fatalf("the wall clock went on by %v, the monotonic one by %v", wall, mono)
	}
}

// TestSuspendedMachine: what ended while the machine was suspended is not
// served when it wakes up, and what became due is due.
func TestSuspendedMachine(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	for name, life := range map[string]time.Duration{"with nextUpdate": 20 * time.Hour, "without nextUpdate": 0} {
		t.Run(name, func(t *testing.T) {
			var clock sleeper
			spec := goodSpec(ca, cert.Leaf, time.Now())
			spec.Singles[0].NextUpdate = time.Time{}
			if life > 0 {
				spec.Singles[0].NextUpdate = time.Now().Add(life)
			}
			n := newNetwork()
			n.set("ocsp.test", always(build(t, spec)))
			s, err := New(Options{Transport: silentAware(n), Logger: testLogger(t), Now: clock.now})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Prepare(t.Context(), cert); err != nil {
				t.Fatal(err)
			}
			e := s.list()[0]
			s.refresh(t.Context(), e)
			if s.served(t, cert) == nil {
				t.Fatal("not stapled")
			}
			clock.suspend(t, 25*time.Hour)
			if s.served(t, cert) != nil || s.Stats().Stapled != 0 || s.statusOf(t, "a.test").State != StatePending {
				t.Errorf("an expired staple is served: %+v", s.statusOf(t, "a.test"))
			}
			before := len(n.requests("ocsp.test"))
			if s.step(t.Context(), e); len(n.requests("ocsp.test")) == before {
				t.Errorf("nothing was fetched; next fetch %v, now %v", e.next, clock.now())
			}
		})
	}
}

// TestSuspendedMachineAsksFailedResponderAgain: the wait after a failure, and
// the breaker, pass while the machine is suspended.
func TestSuspendedMachineAsksFailedResponderAgain(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	var clock sleeper
	n := newNetwork()
	n.set("ocsp.test", failing(500))
	s, err := New(Options{Transport: silentAware(n), Logger: testLogger(t), Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	e := s.list()[0]
	for range breakerThreshold {
		s.refresh(t.Context(), e)
		clock.suspend(t, 2*backoffMax)
	}
	n.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{Now: clock.now}))
	clock.suspend(t, 2*backoffMax)
	if s.step(t.Context(), e); s.served(t, cert) == nil {
		t.Errorf("not fetched: %+v", s.statusOf(t, "a.test"))
	}
}

// TestSuspendedMachineChecksClientsAgain: an answer about a client certificate
// does not outlive its end in the sleep of the machine.
func TestSuspendedMachineChecksClientsAgain(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	var clock sleeper
	responder := pki.NewResponder(ca, pki.ResponderOptions{Now: clock.now, Validity: -1})
	n := newNetwork()
	n.set("ocsp.test", responder)
	c, err := NewClientChecker(CheckerOptions{Transport: silentAware(n), Logger: testLogger(t), Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context(), cert.Leaf, ca.Certificate); err != nil {
		t.Fatal(err)
	}
	responder.Revoke(cert.Leaf.SerialNumber, clock.now(), 1)
	clock.suspend(t, time.Hour)
	if err := c.Check(t.Context(), cert.Leaf, ca.Certificate); err == nil {
		t.Error("a revoked client is let in by the answer of before")
	}
}

// TestClockSetBack: a clock that was years ahead, as one without a battery may
// be at a start, does not put off the fetches for years.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		var ahead atomic.Int64
		ahead.Store(int64(4 * 365 * 24 * time.Hour))
		r := start(t, Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		defer r.stop(t)
		r.net.set("ocsp.test", failing(500))
		r.prepare(t, cert)
		advance(12 * time.Hour) // long enough for the breaker to open
		ahead.Store(0)
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		advance(longestSleep + time.Second)
		if r.served(t, cert) == nil {
			t.Errorf("not stapled after the clock was set right: %+v", r.statusOf(t, "a.test"))
		}
	})
}

// TestWallClockInFetch: times of a response are by the wall clock alone.
func TestWallClockInFetch(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	n := newNetwork()
	n.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{Validity: -1}))
	r, err := Fetch(t.Context(), cert.Leaf, ca.Certificate, FetchOptions{Transport: n})
	if err != nil {
		t.Fatal(err)
	}
	if r.End != r.End.Round(0) {
		t.Errorf("the end %v has a monotonic part", r.End)
	}
}
