package ocsp

import (
	"crypto/tls"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// BenchmarkServe is what stapling adds to a full handshake.
func BenchmarkServe(b *testing.B) {
	ca := newCA(b, pki.CAOptions{})
	cert := issue(b, ca, pki.Request{Names: []string{"a.test"}})
	s, err := New(Options{Local: local(pki.NewResponder(ca, pki.ResponderOptions{})), Logger: testLogger(b)})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Prepare(b.Context(), cert); err != nil {
		b.Fatal(err)
	}
	get := s.GetCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })
	b.ReportAllocs()
	for b.Loop() {
		if c, _ := get(nil); c.OCSPStaple == nil {
			b.Fatal("not stapled")
		}
	}
}

// BenchmarkVerify is what one fetched response costs, by kind of signature.
func BenchmarkVerify(b *testing.B) {
	for _, key := range []pki.KeyType{pki.ECDSAP256, pki.RSA2048, pki.Ed25519} {
		b.Run(key.String(), func(b *testing.B) {
			ca := newCA(b, pki.CAOptions{KeyType: key})
			cert := serverCert(b, ca, "a.test")
			der := build(b, signedBy(goodSpec(ca, cert.Leaf, now), delegate(b, ca, pki.Request{KeyType: key})))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Verify(der, cert.Leaf, ca.Certificate, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
