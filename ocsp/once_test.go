package ocsp

import (
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestFetchOnce(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test")
	n := newNetwork()
	n.set("other.test", pki.NewResponder(ca, pki.ResponderOptions{}))
	if _, err := Fetch(t.Context(), cert.Leaf, ca.Certificate, FetchOptions{Transport: n}); ReasonOf(err) != ReasonNetwork {
		t.Errorf("the certificate's own responder: %v; want %s", err, ReasonNetwork)
	}
	r, err := Fetch(t.Context(), cert.Leaf, ca.Certificate, FetchOptions{Transport: n, Responder: "http://other.test"})
	if err != nil || r.Status != Good {
		t.Errorf("another responder: %+v, %v", r, err)
	}
	if cert.Leaf.OCSPServer[0] != responderURL {
		t.Error("the certificate was changed")
	}
	if _, err := Fetch(t.Context(), cert.Leaf, ca.Certificate, FetchOptions{Responder: "file:///x"}); ReasonOf(err) != ReasonBadURL {
		t.Errorf("a bad URL: %v", err)
	}
	if _, err := Fetch(t.Context(), cert.Leaf, nil, FetchOptions{}); ReasonOf(err) != ReasonNoIssuer {
		t.Errorf("without an issuer: %v", err)
	}
}

func TestParseShowsEverything(t *testing.T) {
	w := newWorld(t)
	spec := signedBy(w.good(), delegate(t, w.ca, pki.Request{}))
	spec.ByName = true
	again := spec.Singles[0]
	again.Status, again.RevokedAt, again.Reason = pki.Revoked, time.Now(), 4
	spec.Singles = append(spec.Singles, again)
	c, err := Parse(build(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	if c.Responder != "CN=ocsp signer" || len(c.Certificates) != 1 || c.Signature != "ECDSA-SHA256" || len(c.Answers) != 2 {
		t.Errorf("contents = %+v", c)
	}
	if a := c.Answers[1]; a.Status != "revoked" || a.Reason != "superseded" || a.Hash != "SHA-1" || !strings.EqualFold(a.Serial, w.cert.Leaf.SerialNumber.Text(16)) {
		t.Errorf("answer = %+v", a)
	}
	if _, err := Parse([]byte("junk")); ReasonOf(err) != ReasonMalformed {
		t.Errorf("junk: %v", err)
	}
}
