package ocsp

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

const day = 24 * time.Hour

// longCert is a certificate that outlives every response.
func longCert(t testing.TB) (*pki.CA, *tls.Certificate) {
	t.Helper()
	ca := newCA(t, pki.CAOptions{NotAfter: time.Now().Add(20 * 365 * day)})
	return ca, issue(t, ca, pki.Request{
		Names: []string{"a.test"}, OCSPServers: []string{responderURL}, NotAfter: time.Now().Add(5 * 365 * day),
	})
}

// TestLongLivedResponse: a response that was signed once for a long time is
// stapled to its end while its responder serves it, as receiving it anew counts.
func TestLongLivedResponse(t *testing.T) {
	for _, life := range []time.Duration{29 * day, 31 * day, 40 * day, 90 * day, 365 * day} {
		for _, random := range []float64{0, 0.5, 0.999} {
			t.Run(fmt.Sprintf("%v/%v", life, random), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ca, cert := longCert(t)
					r := start(t, Options{})
					defer r.stop(t)
					r.random = func() float64 { return random }
					r.net.set("ocsp.test", always(signed(t, ca, cert, time.Now(), life)))
					r.prepare(t, cert)
					begin := time.Now()
					for advance(2 * time.Minute); time.Since(begin) < life-2*time.Hour; advance(time.Hour) {
						if r.served(t, cert) == nil {
							t.Fatalf("not stapled after %v: %+v", time.Since(begin), r.statusOf(t, "a.test"))
						}
					}
					if n := len(r.net.requests("ocsp.test")); n > int(life/(10*day))+20 {
						t.Errorf("%d requests", n)
					}
				})
			})
		}
	}
}

// TestLongLivedResponseEnds: without its responder it is served for 30 days
// from its receipt, over all restarts.
func TestLongLivedResponseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cert := longCert(t)
		begin, dir := time.Now(), t.TempDir()
		for begun := time.Duration(0); begun < 40*day; begun += 8 * day {
			r := start(t, Options{StateDir: dir})
			if begun == 0 {
				r.net.set("ocsp.test", always(signed(t, ca, cert, begin, 365*day)))
			}
			r.prepare(t, cert)
			advance(2 * time.Minute)
			if begun == 0 { // the file system does not keep the time of the bubble
				if err := os.Chtimes(fileOf(dir, cert, goodSuffix), begin, begin); err != nil {
					t.Fatal(err)
				}
			}
			r.net.set("ocsp.test", failing(500))
			for range 8 {
				if got, want := r.served(t, cert) != nil, time.Since(begin) < maxLife; got != want {
					t.Errorf("%v after its receipt: stapled %v; want %v", time.Since(begin), got, want)
				}
				advance(day - 15*time.Second)
			}
			r.stop(t)
		}
	})
}

// TestLongLivedResponseInStore: the end is counted from when the replica that
// fetched it did.
func TestLongLivedResponseInStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cert := longCert(t)
		store, received := newMemoryStore(), time.Now()
		der := signed(t, ca, cert, received, 365*day)
		store.values[sharedKey(purposeCurrent, keyOf(cert))] = memoryValue{
			append(binary.BigEndian.AppendUint64(nil, uint64(received.Unix())), der...), received.Add(365 * day),
		}
		advance(20 * day)
		r := start(t, Options{Store: store})
		defer r.stop(t)
		r.net.set("ocsp.test", silent)
		r.prepare(t, cert)
		advance(time.Second)
		if got := r.statusOf(t, "a.test"); !got.Expires.Equal(received.Add(maxLife)) {
			t.Errorf("it ends %v; want %v: %+v", got.Expires, received.Add(maxLife), got)
		}
	})
}

// TestReceivedAnewInAFleet: of a response that lasts by its receipt one replica
// receives a new copy, and the others have it from the store.
func TestReceivedAnewInAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		store, n := newMemoryStore(), newNetwork()
		spec := goodSpec(ca, cert.Leaf, time.Now())
		spec.Singles[0].NextUpdate = time.Time{}
		n.set("ocsp.test", always(build(t, spec)))
		random := newRandom()
		var fleet []*rig
		for range 4 {
			r := start(t, Options{Store: store, Transport: silentAware(n)})
			defer r.stop(t)
			r.random = random
			r.prepare(t, cert)
			fleet = append(fleet, r)
		}
		for range 60 {
			advance(time.Minute)
			for i, r := range fleet {
				if r.served(t, cert) == nil {
					t.Errorf("replica %d: %+v", i, r.statusOf(t, "a.test"))
				}
			}
		}
		if got := len(n.requests("ocsp.test")); got < 60/6 || got > 60/3 {
			t.Errorf("%d requests by 4 replicas in an hour; want one in about 5 minutes", got)
		}
	})
}

// TestRevocationOutlivesItsSigner: a revocation for good counts after a restart even
// when the certificate of the delegate that signed it has ended meanwhile; a good
// response of that delegate does not.
func TestRevocationOutlivesItsSigner(t *testing.T) {
	for name, status := range map[string]pki.Status{"revoked": pki.Revoked, "good": pki.Good} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca, cert := longCert(t)
				spec := goodSpec(ca, cert.Leaf, time.Now())
				spec.Singles[0].Status, spec.Singles[0].NextUpdate = status, time.Now().Add(20*day)
				if status == pki.Revoked {
					spec.Singles[0].RevokedAt, spec.Singles[0].Reason = time.Now(), 1
				}
				der := build(t, signedBy(spec, delegate(t, ca, pki.Request{NotAfter: time.Now().Add(day)})))
				begin, dir := time.Now(), t.TempDir()
				r := start(t, Options{StateDir: dir})
				r.net.set("ocsp.test", always(der))
				r.prepare(t, cert)
				advance(2 * time.Minute)
				suffix := map[pki.Status]string{pki.Revoked: revokedSuffix, pki.Good: goodSuffix}[status]
				if err := os.Chtimes(fileOf(dir, cert, suffix), begin, begin); err != nil { // in the bubble's time
					t.Fatal(err)
				}
				r.stop(t)
				time.Sleep(3 * day)

				again := start(t, Options{StateDir: dir}) // its network has no responder
				defer again.stop(t)
				again.prepare(t, cert)
				advance(2 * time.Minute)
				if got := again.statusOf(t, "a.test").State; (got == StateRevoked) != (status == pki.Revoked) || again.served(t, cert) != nil {
					t.Errorf("state %s after the signer's end", got)
				}
			})
		})
	}
}
