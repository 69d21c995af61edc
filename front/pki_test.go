package front

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

var serials atomic.Int64

// identity is a certificate of the tests with its key.
type identity struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate of a template, signed by parent or by itself.
func issue(t testing.TB, parent *identity, template *x509.Certificate, key crypto.Signer) *identity {
	t.Helper()
	template.SerialNumber = big.NewInt(1000 + serials.Add(1))
	if template.NotBefore.IsZero() {
		// Long, so that the clock of a synctest bubble (the year 2000) is inside.
		template.NotBefore = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(365 * 24 * time.Hour)
	}
	signer, issuer := key, template
	if parent != nil {
		signer, issuer = parent.key, parent.cert
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &identity{cert: cert, key: key}
}

func newCA(t testing.TB, name string) *identity {
	t.Helper()
	return issue(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, newKey(t))
}

func newServer(t testing.TB, ca *identity, key crypto.Signer, names ...string) *identity {
	t.Helper()
	return issue(t, ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key)
}

func newClient(t testing.TB, ca *identity, name string) *identity {
	t.Helper()
	return issue(t, ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{"clients"}}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, newKey(t))
}

func (i *identity) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key, Leaf: i.cert}
}

func (i *identity) keyID() [32]byte { return sha256.Sum256(i.cert.RawSubjectPublicKeyInfo) }

func (i *identity) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(i.cert)
	return p
}

func (i *identity) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

func write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
