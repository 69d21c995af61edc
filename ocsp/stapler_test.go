package ocsp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestStapleLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: time.Hour})
		r := start(t, Options{})
		defer r.stop(t)
		r.net.set("ocsp.test", responder)

		r.prepare(t, cert)
		if r.served(t, cert) != nil {
			t.Error("stapled before anything was fetched")
		}
		if got := r.statusOf(t, "a.test").State; got != StatePending {
			t.Errorf("state = %s; want pending", got)
		}
		advance(time.Second)
		first := r.served(t, cert)
		if _, err := Verify(first, cert.Leaf, ca.Certificate, time.Now()); err != nil {
			t.Fatalf("staple: %v", err)
		}
		// Halfway through the 55 minutes that are left, it is refreshed.
		advance(27 * time.Minute)
		if n := len(r.net.requests("ocsp.test")); n != 1 {
			t.Fatalf("%d requests before halfway; want 1", n)
		}
		advance(2 * time.Minute)
		if n := len(r.net.requests("ocsp.test")); n != 2 {
			t.Fatalf("%d requests after halfway; want 2", n)
		}
		second := r.served(t, cert)
		if string(second) == string(first) || second == nil {
			t.Error("the newer response is not served")
		}
		// The responder dies: the staple is served to its end, not beyond.
		r.net.set("ocsp.test", nil)
		status := r.statusOf(t, "a.test")
		advance(time.Until(status.Expires) - time.Second)
		if r.served(t, cert) == nil {
			t.Error("dropped before its end")
		}
		if got := r.statusOf(t, "a.test"); got.State != StateGood || got.LastResult != ReasonNetwork || got.LastError == "" || got.Failures == 0 {
			t.Errorf("status while the responder is down = %+v", got)
		}
		advance(time.Second)
		if r.served(t, cert) != nil {
			t.Error("served at its end")
		}
		if got := r.statusOf(t, "a.test").State; got != StatePending {
			t.Errorf("state = %s; want pending", got)
		}
		// It comes back by itself.
		r.net.set("ocsp.test", responder)
		advance(90 * time.Minute)
		if r.served(t, cert) == nil {
			t.Error("not stapled again after the responder came back")
		}
		r.Release(cert)
		if r.served(t, cert) != nil {
			t.Error("stapled after Release")
		}
		if st := r.Stats(); st.Certificates != 0 || st.Cache.Entries != 0 {
			t.Errorf("after Release: %+v", st)
		}
	})
}

func TestRevokedGoesAtOnceAndForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: time.Hour})
		var told []*x509.Certificate
		dir := t.TempDir()
		options := Options{StateDir: dir, OnRevoked: func(leaf *x509.Certificate) { told = append(told, leaf) }}
		r := start(t, options)
		r.net.set("ocsp.test", responder)
		r.prepare(t, cert)
		advance(time.Second)
		if r.served(t, cert) == nil {
			t.Fatal("not stapled")
		}
		responder.Revoke(cert.Leaf.SerialNumber, time.Now(), 1)
		due := time.Until(r.statusOf(t, "a.test").NextFetch)
		advance(due)
		if r.served(t, cert) != nil {
			t.Error("still stapled in the moment the revocation was learnt")
		}
		if got := r.statusOf(t, "a.test"); got.State != StateRevoked || got.RevokedAt.IsZero() || !got.NextFetch.IsZero() {
			t.Errorf("status = %+v", got)
		}
		if got := r.Stats(); got.Revoked != 1 || got.Stapled != 0 {
			t.Errorf("stats = %+v", got)
		}
		// A responder that says good again is not even asked.
		responder.Set(cert.Leaf.SerialNumber, pki.Good)
		advance(48 * time.Hour)
		if r.served(t, cert) != nil || len(told) != 1 || !told[0].Equal(cert.Leaf) {
			t.Errorf("stapled %v, told %d times; want once", r.served(t, cert) != nil, len(told))
		}
		r.stop(t)

		// A restart remembers, although a good response lies beside it.
		told = nil
		r2 := start(t, options)
		defer r2.stop(t)
		r2.net.set("ocsp.test", responder)
		r2.prepare(t, cert)
		advance(time.Hour)
		if r2.served(t, cert) != nil || len(r2.net.requests("ocsp.test")) != 0 || len(told) != 1 {
			t.Errorf("after a restart: stapled %v, %d requests, told %d times", r2.served(t, cert) != nil, len(r2.net.requests("ocsp.test")), len(told))
		}
	})
}

func TestHoldIsLiftedByANewerGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: time.Hour})
		r := start(t, Options{StateDir: t.TempDir()})
		defer r.stop(t)
		r.net.set("ocsp.test", responder)
		responder.Revoke(cert.Leaf.SerialNumber, time.Now(), reasonCertificateHold)
		r.prepare(t, cert)
		advance(time.Second)
		if got := r.statusOf(t, "a.test").State; got != StateRevoked {
			t.Fatalf("state = %s; want revoked", got)
		}
		responder.Set(cert.Leaf.SerialNumber, pki.Good)
		advance(time.Hour)
		if r.served(t, cert) == nil {
			t.Error("not stapled after the hold was lifted")
		}
	})
}

func TestUnknownKeepsTheGoodOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: time.Hour})
		r := start(t, Options{})
		defer r.stop(t)
		r.net.set("ocsp.test", responder)
		r.prepare(t, cert)
		advance(time.Second)
		for name, change := range map[string]func(){
			"unknown":      func() { responder.Set(cert.Leaf.SerialNumber, pki.Unknown) },
			"never issued": func() { responder.Revoke(cert.Leaf.SerialNumber, time.Unix(0, 0), reasonCertificateHold) },
		} {
			change()
			advance(50*time.Minute - time.Minute)
			if r.served(t, cert) == nil {
				t.Errorf("%s: the good response was dropped before its end", name)
			}
			if got := r.statusOf(t, "a.test"); got.LastResult != ResultUnknown || got.State != StateGood {
				t.Errorf("%s: status = %+v", name, got)
			}
			advance(10 * time.Minute)
			if r.served(t, cert) != nil {
				t.Errorf("%s: served beyond its end", name)
			}
			responder.Set(cert.Leaf.SerialNumber, pki.Good)
			advance(2 * time.Hour)
			if r.served(t, cert) == nil {
				t.Errorf("%s: not stapled when good again", name)
			}
			advance(time.Until(r.statusOf(t, "a.test").NextFetch) + time.Second)
		}
	})
}

func TestMustStapleIsPreparedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		request := pki.Request{Names: []string{"m.test"}, MustStaple: true, OCSPServers: []string{responderURL}}
		cert := issue(t, ca, request)
		r := start(t, Options{})
		defer r.stop(t)
		responder := pki.NewResponder(ca, pki.ResponderOptions{})
		r.net.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			time.Sleep(3 * time.Second)
			responder.ServeHTTP(w, req)
		}))
		begin := time.Now()
		r.prepare(t, cert)
		if r.served(t, cert) == nil {
			t.Error("Prepare returned before there was a staple")
		}
		if waited := time.Since(begin); waited != 3*time.Second {
			t.Errorf("waited %v; want 3s", waited)
		}

		// CAs publish late: the first answers may be unauthorized.
		late := issue(t, ca, request)
		asked := 0
		r.net.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if asked++; asked < 6 {
				_, _ = w.Write(build(t, pki.ResponseSpec{ResponseStatus: 6}))
				return
			}
			responder.ServeHTTP(w, req)
		}))
		r.prepare(t, late)
		if r.served(t, late) == nil {
			t.Error("Prepare gave up on a responder that was a little late")
		}

		// Without an answer it is served and alarmed after a bounded wait.
		dark := issue(t, ca, request)
		r.net.set("ocsp.test", silent)
		begin = time.Now()
		r.prepare(t, dark)
		if waited := time.Since(begin); waited != defaultPrepareTimeout {
			t.Errorf("waited %v; want %v", waited, defaultPrepareTimeout)
		}
		if got := r.Stats().MustStapleMissing; got != 1 {
			t.Errorf("must-staple certificates without a staple = %d; want 1", got)
		}
		begin = time.Now()
		r.prepare(t, dark) // it is in use already: a reload has nothing to wait for
		if time.Since(begin) != 0 {
			t.Error("a second Prepare waited again")
		}
		gone := issue(t, ca, request)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Prepare(ctx, gone); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Prepare with an ended context = %v", err)
		}
		if got := r.Stats().Certificates; got != 3 {
			t.Errorf("%d certificates registered; want 3", got)
		}
	})
}

func TestStartWaitsForNoResponder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		n := newNetwork()
		n.set("ocsp.test", silent)
		s, err := New(Options{Transport: silentAware(n), Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for i := range 10 {
			cert := issue(t, ca, pki.Request{Names: []string{fmt.Sprintf("m%d.test", i)}, MustStaple: true, OCSPServers: []string{responderURL}})
			if err := s.Prepare(t.Context(), cert); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("ten certificates with a silent responder took %v before Run", waited)
		}
	})
}

func TestWithoutResponderOrIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		none := issue(t, ca, pki.Request{Names: []string{"none.test"}})
		ldap := issue(t, ca, pki.Request{Names: []string{"ldap.test"}, OCSPServers: []string{"ldap://x/", "::bad", "http://"}})
		off := issue(t, ca, pki.Request{Names: []string{"off.test"}, OCSPServers: []string{"http://old.test"}})
		orphan := serverCert(t, ca, "orphan.test")
		orphan.Certificate = orphan.Certificate[:1]
		adopted := serverCert(t, ca, "adopted.test")
		adopted.Certificate = adopted.Certificate[:1]
		other := newCA(t, pki.CAOptions{})
		r := start(t, Options{
			Overrides: map[string]string{"http://old.test": ""},
			Issuer: func(leaf *x509.Certificate) *x509.Certificate {
				if leaf.DNSNames[0] == "adopted.test" {
					return ca.Certificate
				}
				return other.Certificate // wrong: not its issuer
			},
		})
		defer r.stop(t)
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		for _, c := range []*tls.Certificate{none, ldap, off, orphan, adopted} {
			r.prepare(t, c)
		}
		advance(24 * time.Hour)
		for name, want := range map[string]State{
			"none.test": StateNoResponder, "ldap.test": StateNoResponder, "off.test": StateNoResponder,
			"orphan.test": StateNoIssuer, "adopted.test": StateGood,
		} {
			if got := r.statusOf(t, name); got.State != want || (want != StateGood) != got.NextFetch.IsZero() {
				t.Errorf("%s: %+v; want %s", name, got, want)
			}
		}
		st := r.Stats()
		if st.Certificates != 5 || st.WithResponder != 2 || st.Stapled != 1 {
			t.Errorf("stats = %+v", st)
		}
		// The chain is completed, and the certificate loaded again.
		whole := *orphan
		whole.Certificate = [][]byte{orphan.Certificate[0], ca.Certificate.Raw}
		r.prepare(t, &whole)
		r.Release(orphan)
		advance(time.Second)
		if got := r.statusOf(t, "orphan.test"); got.State != StateGood {
			t.Errorf("with its issuer: %+v", got)
		}
		r.Release(&whole)
		if got := r.Stats(); got.Certificates != 4 || got.Stapled != 1 {
			t.Errorf("stats = %+v", got)
		}
		if err := r.Prepare(t.Context(), &tls.Certificate{}); err == nil {
			t.Error("a certificate without a leaf was accepted")
		}
		r.Release(&tls.Certificate{}) // harmless
	})
}

// TestIssuerComesLater: a certificate whose issuer is not known is stapled as
// soon as another one brings that along.
func TestIssuerComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		orphan := serverCert(t, ca, "orphan.test")
		orphan.Certificate = orphan.Certificate[:1]
		r := start(t, Options{})
		defer r.stop(t)
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		r.prepare(t, orphan)
		r.prepare(t, serverCert(t, newCA(t, pki.CAOptions{}), "stranger.test"))
		advance(time.Second)
		if got := r.statusOf(t, "orphan.test").State; got != StateNoIssuer {
			t.Fatalf("state = %s; want %s", got, StateNoIssuer)
		}
		sibling := serverCert(t, ca, "sibling.test")
		r.prepare(t, sibling)
		advance(time.Second)
		if got := r.statusOf(t, "orphan.test"); got.State != StateGood || r.served(t, orphan) == nil {
			t.Errorf("with its issuer in another chain: %+v", got)
		}
		r.Release(sibling)
		r.Release(orphan)
		if got := r.Stats(); got.Certificates != 1 || got.Stapled != 0 {
			t.Errorf("stats = %+v", got)
		}
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		cert := serverCert(t, ca, "a.test")
		r := start(t, Options{})
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		if err := r.Run(t.Context()); err == nil {
			t.Error("Run while running succeeded")
		}
		r.prepare(t, cert)
		r.stop(t)
		r.run(t) // after a stop it may run again, and goes on with what it has
		advance(time.Second)
		if r.served(t, cert) == nil {
			t.Error("not stapled in the second run")
		}
		r.stop(t)
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"capacity": {Capacity: -1},
		"timeout":  {Timeout: -1},
		"override": {Overrides: map[string]string{"http://a": "ftp://b"}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
