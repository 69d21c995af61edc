package ocsp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// always answers with one response, as a cache on the way does.
func always(der []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(der) })
}

// signed is a response about cert from the given time that lasts for life.
func signed(t testing.TB, ca *pki.CA, cert *tls.Certificate, from time.Time, life time.Duration) []byte {
	t.Helper()
	s := goodSpec(ca, cert.Leaf, from)
	s.Singles[0].ThisUpdate, s.Singles[0].NextUpdate = from, from.Add(life)
	return build(t, s)
}

// held is a hold on cert from the given time that lasts for life.
func held(t testing.TB, ca *pki.CA, cert *tls.Certificate, from time.Time, life time.Duration) []byte {
	t.Helper()
	s := goodSpec(ca, cert.Leaf, from)
	one := &s.Singles[0]
	one.ThisUpdate, one.NextUpdate = from, from.Add(life)
	one.Status, one.RevokedAt, one.Reason = pki.Revoked, from, reasonCertificateHold
	return build(t, s)
}

// TestReplayedHold: a hold that is older than the good response taken counts
// no more, though it is current: neither while the good one lasts nor after.
func TestReplayedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		begin, dir := time.Now(), t.TempDir()
		told := 0
		r := start(t, Options{StateDir: dir, OnRevoked: func(*x509.Certificate) { told++ }})
		defer r.stop(t)
		good := signed(t, ca, cert, begin.Add(-time.Minute), 10*time.Hour)
		r.net.set("ocsp.test", always(good))
		r.prepare(t, cert)
		advance(time.Second)
		r.net.set("ocsp.test", always(held(t, ca, cert, begin.Add(-time.Hour), 100*time.Hour)))
		advance(time.Until(r.statusOf(t, "a.test").NextFetch) + time.Second)
		got := r.statusOf(t, "a.test")
		if string(r.served(t, cert)) != string(good) || got.State != StateGood || got.LastResult != ReasonOlder {
			t.Errorf("stapled %v, status %+v", r.served(t, cert) != nil, got)
		}
		if _, err := os.Stat(fileOf(dir, cert, goodSuffix)); err != nil {
			t.Error("the good response was deleted:", err)
		}
		advance(20 * time.Hour) // the good one has ended
		if got := r.statusOf(t, "a.test"); got.State != StatePending || got.LastResult != ReasonOlder || told != 0 {
			t.Errorf("after the end of the good one: told %d times, status %+v", told, got)
		}
		r.net.set("ocsp.test", always(held(t, ca, cert, time.Now(), 10*time.Hour)))
		advance(2 * time.Hour)
		if got := r.statusOf(t, "a.test").State; got != StateRevoked || told != 1 {
			t.Errorf("a new hold: state = %s, told %d times", got, told)
		}
	})
}

// TestHoldEnds: a hold counts while it is current. What was good before it does
// not come back with its end.
func TestHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		begin, dir := time.Now(), t.TempDir()
		r := start(t, Options{StateDir: dir})
		defer r.stop(t)
		r.net.set("ocsp.test", always(held(t, ca, cert, begin, time.Hour)))
		r.prepare(t, cert)
		advance(time.Second)
		if st := r.Stats(); st.Revoked != 1 {
			t.Fatalf("revoked = %d", st.Revoked)
		}
		r.net.set("ocsp.test", always(signed(t, ca, cert, begin.Add(-time.Minute), 100*time.Hour)))
		advance(3 * time.Hour)
		if got, st := r.statusOf(t, "a.test"), r.Stats(); got.State != StatePending || got.NextFetch.IsZero() || st.Revoked != 0 || st.Stapled != 0 {
			t.Errorf("after the end of the hold: %+v, %d revoked, %d stapled", got, st.Revoked, st.Stapled)
		}
		if _, err := os.Stat(fileOf(dir, cert, revokedSuffix)); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the hold is still stored:", err)
		}
		r.net.set("ocsp.test", always(signed(t, ca, cert, time.Now(), 10*time.Hour)))
		advance(2 * time.Hour)
		if r.served(t, cert) == nil {
			t.Error("not stapled by a newer good response")
		}
	})
}

// TestLiftedHoldInStore: a replica that starts after a hold was lifted hears of
// no hold, not even of one that lies where revocations do.
func TestLiftedHoldInStore(t *testing.T) {
	for _, misplaced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ca := newCA(t, pki.CAOptions{})
			cert := serverCert(t, ca, "a.test")
			store := newMemoryStore()
			responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: 24 * time.Hour})
			responder.Revoke(cert.Leaf.SerialNumber, time.Now(), reasonCertificateHold)
			first := start(t, Options{Store: store})
			defer first.stop(t)
			first.net.set("ocsp.test", responder)
			first.prepare(t, cert)
			advance(time.Second)
			if misplaced {
				store.values[sharedKey(purposeRevoked, keyOf(cert))] = memoryValue{
					append(binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix())), held(t, ca, cert, time.Now(), 48*time.Hour)...),
					time.Now().Add(48 * time.Hour),
				}
			}
			second := start(t, Options{Store: store})
			second.prepare(t, cert)
			advance(time.Second)
			if got := second.statusOf(t, "a.test").State; got != StateRevoked {
				t.Fatalf("state of the second replica = %s; want revoked", got)
			}
			second.stop(t)
			responder.Set(cert.Leaf.SerialNumber, pki.Good)
			advance(30 * time.Hour)
			if first.served(t, cert) == nil {
				t.Fatal("the hold was not lifted")
			}
			told := 0
			third := start(t, Options{Store: store, OnRevoked: func(*x509.Certificate) { told++ }})
			defer third.stop(t)
			third.prepare(t, cert)
			advance(time.Second)
			if third.served(t, cert) == nil || told != 0 {
				t.Errorf("misplaced %v: a new replica staples: %v, told %d times: %+v",
					misplaced, third.served(t, cert) != nil, told, third.statusOf(t, "a.test"))
			}
		})
	}
}

// TestHoldBecomesFinal: the others hear that a hold has become a revocation for
// good, and a hold that comes late does not replace it in the store.
func TestHoldBecomesFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		store := newMemoryStore()
		hold := held(t, ca, cert, time.Now(), 100*time.Hour)
		var fleet []*rig
		for range 2 {
			r := start(t, Options{Store: store})
			defer r.stop(t)
			r.net.set("ocsp.test", always(hold))
			r.prepare(t, cert)
			advance(time.Minute)
			fleet = append(fleet, r)
		}
		e := fleet[0].list()[0]
		final := goodSpec(ca, cert.Leaf, time.Now())
		final.Singles[0].Status, final.Singles[0].RevokedAt, final.Singles[0].Reason = pki.Revoked, time.Now(), 1
		for _, der := range [][]byte{build(t, final), hold} {
			r, err := Verify(der, cert.Leaf, ca.Certificate, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			fleet[0].shared.give(t.Context(), e, r, time.Now())
		}
		advance(storePoll + storeJitter)
		for i, r := range fleet {
			if got := r.statusOf(t, "a.test"); got.State != StateRevoked || !got.NextFetch.IsZero() {
				t.Errorf("replica %d: %+v; want revoked for good", i, got)
			}
		}
	})
}

// TestLiftedHoldOnDisk: a hold whose file outlived its end does not count at
// the next start.
func TestLiftedHoldOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		dir := t.TempDir()
		hold, good := held(t, ca, cert, time.Now().Add(-time.Hour), 100*time.Hour), signed(t, ca, cert, time.Now(), 10*time.Hour)
		if err := os.MkdirAll(dir+"/ocsp", 0o700); err != nil {
			t.Fatal(err)
		}
		for suffix, der := range map[string][]byte{revokedSuffix: hold, goodSuffix: good} {
			if err := os.WriteFile(fileOf(dir, cert, suffix), der, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log logLines
		told := 0
		r := start(t, Options{StateDir: dir, Logger: log.logger(), OnRevoked: func(*x509.Certificate) { told++ }})
		defer r.stop(t)
		r.prepare(t, cert)
		advance(time.Second)
		if string(r.served(t, cert)) != string(good) || told != 0 || log.count("revoked") != 0 {
			t.Errorf("stapled %v, told %d times, said %d times", r.served(t, cert) != nil, told, log.count("revoked"))
		}
	})
}
