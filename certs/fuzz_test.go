package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// fuzzIterations keeps inputs that ask for much work out of the fuzzers: that
// they are refused has a test of its own.
const fuzzIterations = 5000

// FuzzPEM: whatever is in the files, loading does not panic, and what loads is
// a pair that belongs together.
func FuzzPEM(f *testing.F) {
	ca := newCA(f)
	for _, kt := range []pki.KeyType{pki.ECDSAP256, pki.RSA2048, pki.Ed25519} {
		cert := issue(f, ca, pki.Request{Names: []string{"a.test"}, KeyType: kt})
		f.Add(pki.ChainPEM(cert), keyPEM(f, cert))
		f.Add(append(keyPEM(f, cert), pki.ChainPEM(cert)...), []byte(nil))
		encrypted, err := pkcs8.MarshalPrivateKey(cert.PrivateKey, []byte("x"), &pkcs8.Opts{
			Cipher: pkcs8.AES256CBC, KDFOpts: pkcs8.PBKDF2Opts{SaltSize: 8, IterationCount: 10, HMACHash: 5}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pki.CertificatePEM(cert.Leaf), pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: encrypted}))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
		[]byte("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, chain, key []byte) {
		if cheap(key) != nil {
			return
		}
		certs, err := parseCertificates(chain)
		signer, keyErr := parseKey(key, []byte("x"))
		if err != nil || keyErr != nil {
			return
		}
		checkPair(t, func() (*certificate, error) { return newCertificate(signer, certs) })
	})
}

// cheap tells whether the key would take long to derive.
func cheap(key []byte) error {
	for {
		var block *pem.Block
		if block, key = pem.Decode(key); block == nil {
			return nil
		}
		if err := checkKDF(block.Bytes, fuzzIterations); err != nil {
			return err
		}
	}
}

// FuzzPKCS12 does the same for PKCS#12.
func FuzzPKCS12(f *testing.F) {
	ca := newCA(f)
	cert := issue(f, ca, pki.Request{Names: []string{"a.test"}})
	for _, enc := range []*pkcs12.Encoder{pkcs12.Modern, pkcs12.LegacyDES, pkcs12.LegacyRC2, pkcs12.Passwordless} {
		password := "x"
		if enc == pkcs12.Passwordless {
			password = ""
		}
		data, err := enc.WithIterations(10).Encode(cert.PrivateKey, cert.Leaf, []*x509.Certificate{ca.Certificate}, password)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte(password))
	}
	f.Fuzz(func(t *testing.T, data, passphrase []byte) {
		if len(data) > 64<<10 || checkKDF(data, fuzzIterations) != nil {
			return
		}
		checkPair(t, func() (*certificate, error) { return parsePKCS12(data, passphrase) })
	})
}

// checkPair checks what every loaded certificate is: a chain that begins with
// the leaf of the key.
func checkPair(t *testing.T, loaded func() (*certificate, error)) {
	t.Helper()
	c, err := loaded()
	if err != nil {
		return
	}
	if len(c.tls.Certificate) == 0 || !bytes.Equal(c.tls.Certificate[0], c.tls.Leaf.Raw) {
		t.Fatal("the chain does not begin with the leaf")
	}
	newIndex([]*certificate{c}, c, c.tls.Leaf.NotBefore)
	var st Status
	c.describe(&st, c.tls.Leaf.NotAfter)
}

// FuzzName: a canonical name is its own canonical form, and names that differ
// in case alone are the same.
func FuzzName(f *testing.F) {
	for _, name := range []string{"a.test", "A.Test.", "bücher.test", "xn--bcher-kva.test", "*.a.test", "192.0.2.1", "[::1]", "a b", "", ".", "..", "-a.test", "a_b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		canonical, ok := canonicalName(name)
		if !ok {
			return
		}
		if again, ok := canonicalName(canonical); !ok && canonical != "" || again != canonical && again+"." != canonical {
			t.Fatalf("canonicalName(%q) = %q, of that %q, %v", name, canonical, again, ok)
		}
		if host, ok := canonicalHost(name); ok {
			if again, ok := canonicalHost(host); !ok || again != host {
				t.Fatalf("canonicalHost(%q) = %q, of that %q, %v", name, host, again, ok)
			}
		}
	})
}
