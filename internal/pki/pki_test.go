package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

func TestIssueVerifies(t *testing.T) {
	for _, kt := range []KeyType{ECDSAP256, ECDSAP384, RSA2048, Ed25519} {
		t.Run(kt.String(), func(t *testing.T) {
			root, err := NewRoot(CAOptions{Name: "root", KeyType: kt})
			if err != nil {
				t.Fatal(err)
			}
			inter, err := root.NewIntermediate(CAOptions{Name: "intermediate", KeyType: kt})
			if err != nil {
				t.Fatal(err)
			}
			for _, ca := range []*CA{root, inter} {
				cert, err := ca.Issue(Request{Names: []string{"a.test", "127.0.0.1"}, KeyType: kt})
				if err != nil {
					t.Fatal(err)
				}
				pool := x509.NewCertPool()
				for _, der := range cert.Certificate[1:] {
					c, err := x509.ParseCertificate(der)
					if err != nil {
						t.Fatal(err)
					}
					pool.AddCert(c)
				}
				for _, name := range []string{"a.test", "127.0.0.1"} {
					if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: ca.Pool(), Intermediates: pool}); err != nil {
						t.Errorf("verify %s: %v", name, err)
					}
				}
				issuer, err := x509.ParseCertificate(cert.Certificate[1])
				if err != nil || !issuer.Equal(ca.Certificate) {
					t.Errorf("second certificate of the chain = %v, %v; want the issuer", issuer, err)
				}
			}
		})
	}
}

func TestIssueClientMustStapleAndPair(t *testing.T) {
	root, err := NewRoot(CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := root.Issue(Request{Names: []string{"c.test", "spiffe://a/b"}, Client: true, MustStaple: true, OCSPServers: []string{"http://o.test"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := cert.Leaf.ExtKeyUsage; len(got) != 1 || got[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("ExtKeyUsage = %v", got)
	}
	if got := cert.Leaf.URIs; len(got) != 1 || got[0].String() != "spiffe://a/b" {
		t.Errorf("URIs = %v", got)
	}
	found := false
	for _, e := range cert.Leaf.Extensions {
		found = found || e.Id.Equal(oidTLSFeature)
	}
	if !found {
		t.Error("no TLS feature extension")
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.crt"), filepath.Join(dir, "c.key")
	if err := WritePair(cert, certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Errorf("the written pair does not load: %v", err)
	}
	if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file mode = %v, %v; want 0600", info.Mode(), err)
	}
}

func TestLoadOrCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	cas := make([]*CA, 8)
	var wg sync.WaitGroup
	for i := range cas {
		wg.Go(func() {
			ca, err := LoadOrCreate(dir, CAOptions{Name: "dev"})
			if err != nil {
				t.Error(err)
			}
			cas[i] = ca
		})
	}
	wg.Wait()
	for _, ca := range cas {
		if !ca.Certificate.Equal(cas[0].Certificate) {
			t.Fatal("two concurrent callers got different CAs")
		}
	}
	if info, err := os.Stat(filepath.Join(dir, authorityFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key's file = %v, %v; want 0600", info.Mode(), err)
	}
	public, err := os.ReadFile(PublicFile(dir))
	if err != nil || string(public) != string(CertificatePEM(cas[0].Certificate)) {
		t.Errorf("public file = %q, %v; want the certificate alone", public, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".ca-*")); len(left) > 0 {
		t.Errorf("temporary files left behind: %v", left)
	}
}

func TestLoadOrCreateDamagedAndExpired(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, authorityFile)
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreate(dir, CAOptions{}); err == nil {
		t.Fatal("a damaged file was accepted or overwritten")
	}
	if got, _ := os.ReadFile(path); string(got) != "junk" {
		t.Fatal("the damaged file was overwritten")
	}
	dir = t.TempDir()
	old, err := LoadOrCreate(dir, CAOptions{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := LoadOrCreate(dir, CAOptions{})
	if err != nil || fresh.Certificate.Equal(old.Certificate) {
		t.Errorf("an expired CA was kept (%v)", err)
	}
	again, err := LoadOrCreate(dir, CAOptions{})
	if err != nil || !fresh.Certificate.Equal(again.Certificate) {
		t.Errorf("a fresh CA was not kept (%v)", err)
	}
}

// The response builder is checked by a parser that is not ours.
func TestResponderAgainstParser(t *testing.T) {
	for _, kt := range []KeyType{ECDSAP256, RSA2048} {
		ca, err := NewRoot(CAOptions{KeyType: kt})
		if err != nil {
			t.Fatal(err)
		}
		delegate, err := ca.Issue(Request{CommonName: "ocsp", OCSPSigning: true, KeyType: kt})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := ca.Issue(Request{Names: []string{"a.test"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, signer := range []*tls.Certificate{nil, delegate} {
			for _, status := range []Status{Good, Revoked, Unknown} {
				r := NewResponder(ca, ResponderOptions{Signer: signer})
				r.Set(leaf.Leaf.SerialNumber, status)
				req, err := ocsp.CreateRequest(leaf.Leaf, ca.Certificate, nil)
				if err != nil {
					t.Fatal(err)
				}
				der, err := r.Respond(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := ocsp.ParseResponseForCert(der, leaf.Leaf, ca.Certificate)
				if err != nil {
					t.Fatalf("%v, delegate %v, status %v: %v", kt, signer != nil, status, err)
				}
				if got.Status != int(status) {
					t.Errorf("status = %d; want %d", got.Status, status)
				}
			}
		}
	}
}
