package ocsp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func local(h http.Handler) func(*x509.Certificate) http.Handler {
	return func(*x509.Certificate) http.Handler { return h }
}

func TestLocalResponderStaplesAtOnce(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := issue(t, ca, pki.Request{Names: []string{"localhost"}}) // names no responder
	responder := pki.NewResponder(ca, pki.ResponderOptions{})
	s, err := New(Options{Logger: testLogger(t), Local: func(issuer *x509.Certificate) http.Handler {
		if issuer.Equal(ca.Certificate) {
			return responder
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(s.served(t, cert), cert.Leaf, ca.Certificate, time.Now()); err != nil {
		t.Errorf("not stapled before Run: %v", err)
	}
	if got := s.statusOf(t, "localhost"); got.State != StateGood || len(got.Responders) != 1 || got.Responders[0] != "local" {
		t.Errorf("status = %+v", got)
	}

	// What the responder in the process says is verified like any other.
	foreign := issue(t, newCA(t, pki.CAOptions{}), pki.Request{Names: []string{"b.test"}})
	s, err = New(Options{Logger: testLogger(t), Local: local(responder)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if s.served(t, foreign) != nil || s.statusOf(t, "b.test").LastResult != ReasonUnauthorized {
		t.Errorf("a foreign local responder: %+v", s.statusOf(t, "b.test"))
	}
}

func TestServingAllocatesNothing(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	plain := issue(t, ca, pki.Request{Names: []string{"b.test"}})
	s, err := New(Options{Local: local(pki.NewResponder(ca, pki.ResponderOptions{})), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*tls.Certificate{"stapled": cert, "unknown": plain} {
		get := s.GetCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c, nil })
		first, err := get(nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(200, func() { _, _ = get(nil) }); n != 0 {
			t.Errorf("%s: %v allocations a handshake; want 0", name, n)
		}
		if again, _ := get(nil); again != first {
			t.Errorf("%s: the copy is made anew", name)
		}
	}
	if cert.OCSPStaple != nil {
		t.Error("the shared certificate was written to")
	}
	// Another object with the same leaf gets the staple too.
	twin := *cert
	if s.served(t, &twin) == nil {
		t.Error("a copy of the certificate is not stapled")
	}
	failed := errors.New("no certificate")
	get := s.GetCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &tls.Certificate{}, failed })
	if _, err := get(nil); !errors.Is(err, failed) {
		t.Errorf("error of next = %v", err)
	}
}

func TestCapacityFollowsUse(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	s, err := New(Options{Capacity: 2, Local: local(pki.NewResponder(ca, pki.ResponderOptions{})), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	var certs []*tls.Certificate
	for i := range 20 {
		certs = append(certs, issue(t, ca, pki.Request{Names: []string{fmt.Sprintf("c%d.test", i)}}))
		if err := s.Prepare(t.Context(), certs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range certs {
		if s.served(t, c) == nil {
			t.Errorf("certificate %d lost its staple to the capacity", i)
		}
	}
	for _, c := range certs[1:] {
		s.Release(c)
	}
	if st := s.Stats(); st.Cache.Capacity != 2 || st.Cache.Entries != 1 {
		t.Errorf("after releasing: %+v", st.Cache)
	}
	if s.served(t, certs[0]) == nil {
		t.Error("the one that stays lost its staple")
	}
}

// The staple of a renewed certificate is never its predecessor's.
func TestRenewalDoesNotInherit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, pki.CAOptions{})
		before, after := serverCert(t, ca, "a.test"), serverCert(t, ca, "a.test")
		r := start(t, Options{StateDir: t.TempDir()})
		defer r.stop(t)
		r.net.set("ocsp.test", pki.NewResponder(ca, pki.ResponderOptions{}))
		r.prepare(t, before)
		advance(time.Second)
		r.net.set("ocsp.test", nil)
		r.prepare(t, after)
		advance(time.Second)
		if r.served(t, before) == nil || r.served(t, after) != nil {
			t.Error("the staple went over to the renewed certificate")
		}
	})
}

func TestSwapsUnderHandshakes(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	s, err := New(Options{Local: local(pki.NewResponder(ca, pki.ResponderOptions{})), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	e := s.list()[0]
	var der [2][]byte
	for i := range der {
		spec := goodSpec(ca, cert.Leaf, time.Now())
		spec.Singles[0].ThisUpdate = time.Now().Add(time.Second)
		der[i] = build(t, spec)
	}
	var readers sync.WaitGroup
	stop := make(chan struct{})
	get := s.GetCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := get(nil)
				if err != nil || c.OCSPStaple == nil {
					t.Errorf("handshake without a staple during a swap: %v", err)
					return
				}
			}
		})
	}
	for i := range 300 {
		r, err := Verify(der[i%2], cert.Leaf, ca.Certificate, time.Now())
		if err != nil || !s.accept(e, r, time.Now()) {
			t.Fatalf("swap %d: %v", i, err)
		}
	}
	close(stop)
	readers.Wait()
}
