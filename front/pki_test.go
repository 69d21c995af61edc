package front

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// serials are the numbers of CRLs.
var serials atomic.Int64

// identity is a certificate of the tests with its key.
type identity struct {
	ca   *pki.CA // nil: it issues none
	cert *x509.Certificate
	key  crypto.Signer
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// validity is so long that the clock of a synctest bubble (the year 2000) is
// inside.
func validity() (from, to time.Time) {
	return time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Now().Add(365 * 24 * time.Hour)
}

func newCA(t testing.TB, name string) *identity {
	t.Helper()
	from, to := validity()
	ca, err := pki.NewRoot(pki.CAOptions{Name: name, NotBefore: from, NotAfter: to})
	if err != nil {
		t.Fatal(err)
	}
	return &identity{ca: ca, cert: ca.Certificate, key: ca.Key}
}

func issue(t testing.TB, ca *identity, r pki.Request) *identity {
	t.Helper()
	r.NotBefore, r.NotAfter = validity()
	cert, err := ca.ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return &identity{cert: cert.Leaf, key: cert.PrivateKey.(crypto.Signer)}
}

func newServer(t testing.TB, ca *identity, key crypto.Signer, names ...string) *identity {
	t.Helper()
	return issue(t, ca, pki.Request{Names: names, Key: key})
}

func newClient(t testing.TB, ca *identity, name string) *identity {
	t.Helper()
	return issue(t, ca, pki.Request{Names: []string{name}, Client: true, Template: func(c *x509.Certificate) {
		c.Subject.OrganizationalUnit = []string{"clients"}
	}})
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
