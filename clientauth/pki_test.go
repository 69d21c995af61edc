package clientauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

var serials atomic.Int64

// authority is a CA of the tests.
type authority struct {
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

// issue makes a certificate of a template with fresh serial number and key,
// signed by parent or, without one, by itself.
func issue(t testing.TB, parent *authority, template *x509.Certificate) *authority {
	t.Helper()
	key := newKey(t)
	template.SerialNumber = big.NewInt(1000 + serials.Add(1))
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	signer, issuer := crypto.Signer(key), template
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
	return &authority{cert: cert, key: key}
}

func newCA(t testing.TB, parent *authority, name string) *authority {
	t.Helper()
	return issue(t, parent, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	})
}

func newClient(t testing.TB, ca *authority, name string) *authority {
	t.Helper()
	return issue(t, ca, clientTemplate(name))
}

func clientTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, OrganizationalUnit: []string{"clients"}},
		DNSNames:    []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature,
	}
}

// tls is the certificate with those of its chain that are sent along.
func (a *authority) tls(chain ...*authority) tls.Certificate {
	c := tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key, Leaf: a.cert}
	for _, up := range chain {
		c.Certificate = append(c.Certificate, up.cert.Raw)
	}
	return c
}

// crlOptions describe a list of the tests.
type crlOptions struct {
	number     int64
	base       int64 // of a delta
	this, next time.Time
	revoked    []*authority
	removed    []*authority // of a delta: off the list again
	extensions []pkix.Extension
	entryExt   []pkix.Extension
}

func (a *authority) crl(t testing.TB, o crlOptions) []byte {
	t.Helper()
	if o.number == 0 {
		o.number = 1
	}
	if o.this.IsZero() {
		o.this = time.Now().Add(-time.Minute)
	}
	if o.next.IsZero() {
		o.next = time.Now().Add(time.Hour)
	}
	list := &x509.RevocationList{Number: big.NewInt(o.number), ThisUpdate: o.this, NextUpdate: o.next, ExtraExtensions: o.extensions}
	for _, c := range o.revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: c.cert.SerialNumber, RevocationTime: o.this, ExtraExtensions: o.entryExt,
		})
	}
	for _, c := range o.removed {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: c.cert.SerialNumber, RevocationTime: o.this, ReasonCode: reasonRemoveFromCRL,
		})
	}
	if o.base != 0 {
		value, err := asn1.Marshal(big.NewInt(o.base))
		if err != nil {
			t.Fatal(err)
		}
		list.ExtraExtensions = append(list.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: value})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func pemOf(kind string, ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	return out
}

func bundle(authorities ...*authority) []byte {
	var out []byte
	for _, a := range authorities {
		out = append(out, pemOf("CERTIFICATE", a.cert.Raw)...)
	}
	return out
}

func write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
