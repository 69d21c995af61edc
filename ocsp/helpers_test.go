package ocsp

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const responderURL = "http://ocsp.test"

func newCA(t testing.TB, o pki.CAOptions) *pki.CA {
	t.Helper()
	ca, err := pki.NewRoot(o)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t testing.TB, ca *pki.CA, r pki.Request) *tls.Certificate {
	t.Helper()
	cert, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// serverCert issues a certificate for name with a responder.
func serverCert(t testing.TB, ca *pki.CA, name string) *tls.Certificate {
	t.Helper()
	return issue(t, ca, pki.Request{Names: []string{name}, OCSPServers: []string{responderURL}})
}

func delegate(t testing.TB, ca *pki.CA, r pki.Request) *tls.Certificate {
	t.Helper()
	r.CommonName, r.OCSPSigning = "ocsp signer", true
	return issue(t, ca, r)
}

func build(t testing.TB, s pki.ResponseSpec) []byte {
	t.Helper()
	der, err := s.Sign()
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// goodSpec is a plain good response of ca about leaf, valid from now-1h to
// now+1h.
func goodSpec(ca *pki.CA, leaf *x509.Certificate, now time.Time) pki.ResponseSpec {
	return pki.ResponseSpec{
		Singles: []pki.SingleSpec{{
			CertID:     pki.CertID{Serial: leaf.SerialNumber, Issuer: ca.Certificate},
			ThisUpdate: now.Add(-time.Hour),
			NextUpdate: now.Add(time.Hour),
			Reason:     -1,
		}},
		Signer: ca.Key, SignerCert: ca.Certificate,
	}
}

// signedBy makes cert the signer, embedded.
func signedBy(s pki.ResponseSpec, cert *tls.Certificate) pki.ResponseSpec {
	s.Signer, s.SignerCert = cert.PrivateKey.(crypto.Signer), cert.Leaf
	s.Certificates = append(s.Certificates, cert.Leaf)
	return s
}

func keyOf(cert *tls.Certificate) [32]byte { return sha256.Sum256(cert.Certificate[0]) }

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
