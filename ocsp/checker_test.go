package ocsp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func clientCert(t testing.TB, ca *pki.CA) *tls.Certificate {
	return issue(t, ca, pki.Request{CommonName: "client", Client: true, OCSPServers: []string{responderURL}})
}

func newChecker(t testing.TB, transport http.RoundTripper) *ClientChecker {
	t.Helper()
	c, err := NewClientChecker(CheckerOptions{Transport: transport, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCheckerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		n := newNetwork()
		responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: time.Hour})
		n.set("ocsp.test", responder)
		c := newChecker(t, silentAware(n))
		good, revoked, unknown := clientCert(t, ca), clientCert(t, ca), clientCert(t, ca)
		responder.Revoke(revoked.Leaf.SerialNumber, time.Now(), 1)
		responder.Set(unknown.Leaf.SerialNumber, pki.Unknown)
		silentToo := issue(t, ca, pki.Request{CommonName: "none", Client: true})

		tests := []struct {
			name   string
			leaf   *x509.Certificate
			status Status
			reason Reason
		}{
			{"good", good.Leaf, Good, ""},
			{"revoked", revoked.Leaf, Revoked, ResultRevoked},
			{"unknown", unknown.Leaf, Unknown, ResultUnknown},
			{"no responder", silentToo.Leaf, 0, ReasonNoResponder},
		}
		for _, test := range tests {
			err := c.Check(t.Context(), test.leaf, ca.Certificate)
			if test.status == Good {
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				continue
			}
			e, ok := errors.AsType[*CheckError](err)
			if !ok || e.Status != test.status || e.Reason != test.reason || e.Revoked() != (test.status == Revoked) {
				t.Errorf("%s: %#v", test.name, err)
			}
		}
		if got := c.Stats(); got.Checks["good"] != 1 || got.Checks["revoked"] != 1 || got.Checks["unknown"] != 1 || got.Checks["unavailable"] != 1 || got.Cache.Entries != 4 {
			t.Errorf("stats = %+v", got)
		}

		// Answers are remembered until they end; a revocation reaches us then.
		before := len(n.requests("ocsp.test"))
		responder.Revoke(good.Leaf.SerialNumber, time.Now(), 1)
		for range 50 {
			if err := c.Check(t.Context(), good.Leaf, ca.Certificate); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(n.requests("ocsp.test")); got != before {
			t.Errorf("%d requests for what is known", got-before)
		}
		advance(56 * time.Minute)
		if e, ok := errors.AsType[*CheckError](c.Check(t.Context(), good.Leaf, ca.Certificate)); !ok || !e.Revoked() {
			t.Error("a revocation was not noticed when the answer had ended")
		}
	})
}

func TestCheckerDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		n := newNetwork()
		n.set("ocsp.test", silent)
		c := newChecker(t, silentAware(n))
		cert := clientCert(t, ca)

		begin := time.Now()
		err := c.Check(t.Context(), cert.Leaf, ca.Certificate)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("waited %v; want 1s", waited)
		}
		if e, ok := errors.AsType[*CheckError](err); !ok || e.Status != 0 || e.Reason != ReasonTimeout || e.Revoked() {
			t.Errorf("error = %#v", err)
		}
		// The failure is remembered for a while, so that not every connection of
		// this client waits.
		begin = time.Now()
		if err := c.Check(t.Context(), cert.Leaf, ca.Certificate); err == nil || time.Since(begin) != 0 {
			t.Errorf("the second check took %v: %v", time.Since(begin), err)
		}
		// After some failures the breaker answers for all clients of the responder.
		for range breakerThreshold {
			_ = c.Check(t.Context(), clientCert(t, ca).Leaf, ca.Certificate)
		}
		begin = time.Now()
		err = c.Check(t.Context(), clientCert(t, ca).Leaf, ca.Certificate)
		if ReasonOf(err) != ReasonBreakerOpen || time.Since(begin) != 0 {
			t.Errorf("with an open breaker: %v after %v", err, time.Since(begin))
		}
		n.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		advance(breakerMin)
		if err := c.Check(t.Context(), clientCert(t, ca).Leaf, ca.Certificate); err != nil {
			t.Errorf("after the responder came back: %v", err)
		}
	})
}

func TestCheckerSharesOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		responder := pki.NewResponder(ca, pki.ResponderOptions{})
		n := newNetwork()
		n.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(500 * time.Millisecond)
			responder.ServeHTTP(w, r)
		}))
		c := newChecker(t, silentAware(n))
		cert := clientCert(t, ca)
		var wg sync.WaitGroup
		// The first to come gives up early; the others get their answer all the same.
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wg.Go(func() { _ = c.Check(impatient, cert.Leaf, ca.Certificate) })
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				if err := c.Check(t.Context(), cert.Leaf, ca.Certificate); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			begin := time.Now()
			if err := c.Check(impatient, cert.Leaf, ca.Certificate); err == nil || time.Since(begin) > 100*time.Millisecond {
				t.Errorf("an impatient follower: %v after %v", err, time.Since(begin))
			}
		})
		wg.Wait()
		if got := len(n.requests("ocsp.test")); got != 1 {
			t.Errorf("%d requests; want 1", got)
		}
	})
}

func TestCheckerHostile(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]func(*pki.ResponseSpec){
		"serial of another CA": func(s *pki.ResponseSpec) { s.Singles[0].CertID.Issuer = w.other.Certificate },
		"expired":              func(s *pki.ResponseSpec) { s.Singles[0].NextUpdate = now.Add(-time.Minute) },
		"leaf-signed":          func(s *pki.ResponseSpec) { *s = signedBy(*s, w.cert) },
		"try later":            func(s *pki.ResponseSpec) { s.ResponseStatus = 3 },
	} {
		s := w.good()
		spec(&s)
		c := newChecker(t, localTransport{write(build(t, s))})
		e, ok := errors.AsType[*CheckError](c.Check(t.Context(), w.cert.Leaf, w.ca.Certificate))
		if !ok || e.Status != 0 || e.Revoked() {
			t.Errorf("%s: %v; want no answer", name, e)
		}
	}
	if _, err := NewClientChecker(CheckerOptions{Timeout: -1}); err == nil {
		t.Error("a negative timeout was accepted")
	}
}

// Many clients that come at once are answered although each is its own fetch.
func TestCheckerUnderABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		key, err := pki.GenerateKey(pki.ECDSAP256)
		if err != nil {
			t.Fatal(err)
		}
		responder := pki.NewResponder(ca, pki.ResponderOptions{})
		n := newNetwork()
		n.set("ocsp.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(50 * time.Millisecond)
			responder.ServeHTTP(w, r)
		}))
		c := newChecker(t, silentAware(n))
		var wg sync.WaitGroup
		for range 500 {
			cert := issue(t, ca, pki.Request{CommonName: "client", Client: true, Key: key, OCSPServers: []string{responderURL}})
			wg.Go(func() {
				if err := c.Check(t.Context(), cert.Leaf, ca.Certificate); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}
