package certs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

func TestPairInAnyOrder(t *testing.T) {
	ca := newCA(t)
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	leaf, issuer, root := pki.CertificatePEM(cert.Leaf), pki.CertificatePEM(ca.Certificate), pki.CertificatePEM(ca.Root())
	stranger := pki.CertificatePEM(newCA(t).Certificate)
	key := keyPEM(t, cert)
	params := []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n")
	tests := []struct {
		name  string
		cert  [][]byte
		key   [][]byte
		chain int
	}{
		{"usual", [][]byte{leaf, issuer}, [][]byte{key}, 2},
		{"reversed, with root", [][]byte{root, issuer, leaf}, [][]byte{key}, 2},
		{"leaf in the middle", [][]byte{issuer, leaf, root}, [][]byte{key}, 2},
		{"twice", [][]byte{leaf, leaf, issuer, issuer}, [][]byte{key}, 2},
		{"with a stranger", [][]byte{stranger, leaf, issuer}, [][]byte{key}, 2},
		{"without issuer", [][]byte{leaf}, [][]byte{key}, 1},
		{"text around", [][]byte{[]byte("subject=a\n"), leaf, []byte("\nissuer=b\n"), issuer}, [][]byte{[]byte("Bag Attributes\n"), key}, 2},
		{"key with parameters", [][]byte{leaf, issuer}, [][]byte{params, key}, 2},
		{"key first, one file", [][]byte{key, leaf, issuer}, nil, 2},
		{"key last, one file", [][]byte{issuer, leaf, key}, nil, 2},
		{"CRLF", [][]byte{bytes.ReplaceAll(leaf, []byte("\n"), []byte("\r\n")), issuer}, [][]byte{key}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			f := &Files{Cert: filepath.Join(dir, "c")}
			writeFile(t, f.Cert, bytes.Join(tt.cert, nil))
			if tt.key != nil {
				f.Key = filepath.Join(dir, "k")
				writeFile(t, f.Key, bytes.Join(tt.key, nil))
			}
			s := newStore(t, Options{})
			load(t, s, Source{Files: f})
			got, err := s.GetCertificate(modern("a.test"))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Certificate) != tt.chain || !got.Leaf.Equal(cert.Leaf) || !bytes.Equal(got.Certificate[0], cert.Leaf.Raw) {
				t.Errorf("chain of %d, leaf %v; want %d, %v", len(got.Certificate), got.Leaf.Subject, tt.chain, cert.Leaf.Subject)
			}
			if tt.chain == 2 && !bytes.Equal(got.Certificate[1], ca.Certificate.Raw) {
				t.Error("the issuer does not follow the leaf")
			}
		})
	}
}

func TestRootStaysWhenItIsTheIssuer(t *testing.T) {
	root, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert := issue(t, root, pki.Request{Names: []string{"a.test"}})
	s := newStore(t, Options{})
	load(t, s, Source{Files: writePair(t, t.TempDir(), "a", cert)})
	got, err := s.GetCertificate(modern("a.test"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Certificate) != 2 {
		t.Errorf("chain of %d; want leaf and root", len(got.Certificate))
	}
	if issuer := s.Issuer(got.Leaf); issuer == nil || !issuer.Equal(root.Certificate) {
		t.Errorf("Issuer = %v", issuer)
	}
}

// TestIssuerFromAnotherSource: a file without its issuer is helped out by one
// that has it.
func TestIssuerFromAnotherSource(t *testing.T) {
	ca := newCA(t)
	alone, other := issue(t, ca, pki.Request{Names: []string{"a.test"}}), issue(t, ca, pki.Request{Names: []string{"b.test"}})
	alone.Certificate = alone.Certificate[:1]
	dir := t.TempDir()
	s := newStore(t, Options{})
	load(t, s, Source{Files: writePair(t, dir, "a", alone)})
	if got := s.Issuer(alone.Leaf); got != nil {
		t.Errorf("Issuer = %v; want none yet", got.Subject)
	}
	load(t, s, Source{Files: writePair(t, dir, "a", alone)}, Source{Files: writePair(t, dir, "b", other)})
	if got := s.Issuer(alone.Leaf); got == nil || !got.Equal(ca.Certificate) {
		t.Errorf("Issuer = %v", got)
	}
}

func TestEncryptedKeys(t *testing.T) {
	openssl := testtool.Require(t, "openssl", "openssl")
	ca := newCA(t)
	ec := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	rsa := issue(t, ca, pki.Request{Names: []string{"a.test"}, KeyType: pki.RSA2048})
	dir := t.TempDir()
	pass := filepath.Join(dir, "pass")
	writeFile(t, pass, []byte("s3cret pass\n"))

	own, err := pkcs8.MarshalPrivateKey(ec.PrivateKey, []byte("s3cret pass"), nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "own.key"), pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: own}))
	ecFiles, rsaFiles := writePair(t, dir, "ec", ec), writePair(t, dir, "rsa", rsa)
	converted := func(name, in string, args ...string) string {
		out := filepath.Join(dir, name)
		args = append(args, "-in", in, "-out", out)
		if msg, err := exec.CommandContext(t.Context(), openssl, args...).CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v\n%s", args, err, msg)
		}
		return out
	}
	tests := []struct {
		name string
		cert *Files
		key  string
	}{
		{"our library", ecFiles, filepath.Join(dir, "own.key")},
		{"openssl pkcs8 ec", ecFiles, converted("1", ecFiles.Key, "pkcs8", "-topk8", "-passout", "file:"+pass)},
		{"openssl pkcs8 rsa", rsaFiles, converted("2", rsaFiles.Key, "pkcs8", "-topk8", "-passout", "file:"+pass)},
		{"openssl pkcs8 scrypt", ecFiles, converted("3", ecFiles.Key, "pkcs8", "-topk8", "-scrypt", "-passout", "file:"+pass)},
		{"openssl traditional ec", ecFiles, converted("5", ecFiles.Key, "ec", "-aes256", "-passout", "file:"+pass)},
		{"openssl traditional rsa", rsaFiles, converted("6", rsaFiles.Key, "rsa", "-traditional", "-aes128", "-passout", "file:"+pass)},
	}
	wrong := filepath.Join(dir, "wrong")
	writeFile(t, wrong, []byte("not it"))
	unknown := Files{Cert: ecFiles.Cert, PassphraseFile: pass,
		Key: converted("4", ecFiles.Key, "pkcs8", "-topk8", "-v2prf", "hmacWithSHA512", "-passout", "file:"+pass)}
	if _, errs := unknown.load(); len(errs) != 1 || !errors.Is(errs[0].err, errEncryption) {
		t.Errorf("with an unknown function: %v", errs)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Files{Cert: tt.cert.Cert, Key: tt.key, PassphraseFile: pass}
			if _, errs := f.load(); len(errs) > 0 {
				t.Errorf("with the passphrase: %v", errs[0])
			}
			f.PassphraseFile = wrong
			if _, errs := f.load(); len(errs) != 1 || !errors.Is(errs[0].err, errWrongPassphrase) || errs[0].field != "key" {
				t.Errorf("with a wrong passphrase: %v", errs)
			}
			f.PassphraseFile = ""
			if _, errs := f.load(); len(errs) != 1 || !errors.Is(errs[0].err, errEncrypted) {
				t.Errorf("without passphrase: %v", errs)
			}
		})
	}
}

func TestPKCS12(t *testing.T) {
	openssl := testtool.Require(t, "openssl", "openssl")
	ca := newCA(t)
	dir := t.TempDir()
	pass := filepath.Join(dir, "pass")
	writeFile(t, pass, []byte("s3cret"))
	for _, kt := range []pki.KeyType{pki.ECDSAP256, pki.RSA2048} {
		cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, KeyType: kt})
		pair := writePair(t, dir, "pair", cert)
		made := map[string]string{}
		for name, args := range map[string][]string{
			"openssl":        nil,
			"openssl legacy": {"-legacy"},
			"openssl sha512": {"-macalg", "sha512"},
		} {
			out := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".p12")
			args = append([]string{"pkcs12", "-export", "-in", pair.Cert, "-inkey", pair.Key, "-passout", "file:" + pass, "-out", out}, args...)
			if msg, err := exec.CommandContext(t.Context(), openssl, args...).CombinedOutput(); err != nil {
				t.Fatalf("openssl %v: %v\n%s", args, err, msg)
			}
			made[name] = out
		}
		data, err := pkcs12.Modern.WithRand(rand.Reader).Encode(cert.PrivateKey, cert.Leaf, []*x509.Certificate{ca.Certificate}, "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		made["our library"] = filepath.Join(dir, "own.pfx")
		writeFile(t, made["our library"], data)
		for name, file := range made {
			t.Run(kt.String()+" "+name, func(t *testing.T) {
				s := newStore(t, Options{})
				load(t, s, Source{Files: &Files{PKCS12: file, PassphraseFile: pass}})
				got, err := s.GetCertificate(modern("a.test"))
				if err != nil || !got.Leaf.Equal(cert.Leaf) || len(got.Certificate) != 2 {
					t.Errorf("served %v, %v", got, err)
				}
				if st := s.Status(); len(st) != 1 || st[0].Source != "pkcs12" || st[0].Name != file {
					t.Errorf("Status = %+v", st)
				}
				if _, errs := (&Files{PKCS12: file}).load(); len(errs) != 1 || !errors.Is(errs[0].err, errEncrypted) {
					t.Errorf("without passphrase: %v", errs)
				}
			})
		}
	}
}

// TestExcessiveKDF: a damaged or malicious file must not keep us busy.
func TestExcessiveKDF(t *testing.T) {
	ca := newCA(t)
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	encrypted, err := pkcs8.MarshalPrivateKey(cert.PrivateKey, []byte("x"), &pkcs8.Opts{
		Cipher: pkcs8.AES256CBC, KDFOpts: pkcs8.PBKDF2Opts{SaltSize: 8, IterationCount: 0x12345, HMACHash: 5}})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKDF(encrypted, 0x12345); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := checkKDF(encrypted, 0x12344); err == nil {
		t.Error("above the limit: no error")
	}
	scrypt, err := pkcs8.MarshalPrivateKey(cert.PrivateKey, []byte("x"), &pkcs8.Opts{
		Cipher: pkcs8.AES256CBC, KDFOpts: pkcs8.ScryptOpts{SaltSize: 8, CostParameter: 1 << 14, BlockSize: 8, ParallelizationParameter: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKDF(scrypt, maxIterations); err != nil {
		t.Errorf("usual scrypt: %v", err)
	}
	i := bytes.Index(scrypt, []byte{2, 2, 0x40, 0x00})
	scrypt[i+2] = 0x7f
	scrypt[i+6] = 0x7f // block size
	start := time.Now()
	_, err = parseKey(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: scrypt}), []byte("x"))
	if err == nil || !strings.Contains(err.Error(), "too much memory") || time.Since(start) > time.Second {
		t.Errorf("excessive scrypt: %v after %v", err, time.Since(start))
	}
	p12, err := pkcs12.Modern.WithIterations(0x12345).Encode(cert.PrivateKey, cert.Leaf, nil, "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKDF(p12, 0x12344); err == nil {
		t.Error("PKCS#12 above the limit: no error")
	}
	// Inside the file, under a cheap MAC.
	dir := t.TempDir()
	pair, inner := writePair(t, dir, "a", cert), filepath.Join(dir, "a.p12")
	out, err := exec.CommandContext(t.Context(), testtool.Require(t, "openssl", "openssl"), "pkcs12", "-export", "-iter", "74565", "-nomaciter",
		"-in", pair.Cert, "-inkey", pair.Key, "-passout", "pass:x", "-out", inner).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	if p12, err = os.ReadFile(inner); err != nil {
		t.Fatal(err)
	}
	if err := checkKDF(p12, 74565); err != nil {
		t.Errorf("PKCS#12 of OpenSSL at the limit: %v", err)
	}
	if err := checkKDF(p12, 74564); err == nil {
		t.Error("PKCS#12 of OpenSSL above the limit: no error")
	}
}

func TestLoadReportsEverything(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	a, b := issue(t, ca, pki.Request{Names: []string{"a.test"}}), issue(t, ca, pki.Request{Names: []string{"b.test"}})
	fa, fb := writePair(t, dir, "a", a), writePair(t, dir, "b", b)
	junk := filepath.Join(dir, "junk.txt")
	writeFile(t, junk, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	tiny := filepath.Join(dir, "tiny.key")
	writeFile(t, tiny, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: smallRSA(t)}))
	pairs := t.TempDir()
	writePair(t, pairs, "good", a)
	writeFile(t, filepath.Join(pairs, "lonely.key"), keyPEM(t, b))
	writeFile(t, filepath.Join(pairs, "orphan.crt"), pki.ChainPEM(b))
	writeFile(t, filepath.Join(pairs, "ca.crt"), pki.CertificatePEM(ca.Certificate))

	sources := []Source{
		0:  {Files: fa},
		1:  {Files: &Files{Cert: fa.Cert, Key: fb.Key}},
		2:  {Files: &Files{Cert: junk, Key: filepath.Join(dir, "missing.key")}},
		3:  {},
		4:  {Files: fa, Directory: &Directory{Path: dir}},
		5:  {Files: &Files{Cert: fa.Cert}},
		6:  {Files: &Files{Cert: fa.Cert, Key: fa.Key, PKCS12: "x"}},
		7:  {Files: &Files{Cert: dir, Key: fa.Key}},
		8:  {Files: &Files{Cert: fa.Cert, Key: tiny}},
		9:  {Directory: &Directory{Path: pairs}},
		10: {Directory: &Directory{Path: filepath.Join(dir, "nowhere")}},
		11: {Local: &Local{Hosts: []string{"a b", "localhost", "LOCALHOST."}}},
		12: {Files: &Files{Cert: fa.Cert, Key: fa.Key, PassphraseFile: filepath.Join(dir, "no-pass")}},
		13: {Files: &Files{PKCS12: junk}},
		14: {Files: &Files{}},
	}
	want := []string{
		"1.key " + fb.Key + " belongs to none",
		"2.cert " + junk + " certificate 1:",
		"2.key " + filepath.Join(dir, "missing.key") + " no such file",
		"3.  exactly one",
		"4.  exactly one",
		"5.cert " + fa.Cert + " no private key in it: set key",
		"6.pkcs12  takes the place",
		"7.cert " + dir + " not a regular file",
		"8.key " + tiny + " too short",
		"9.directory " + filepath.Join(pairs, "orphan.crt") + " expected orphan.key",
		"9.directory " + filepath.Join(pairs, "lonely.key") + " no certificate for this key",
		"10.directory " + filepath.Join(dir, "nowhere") + " no such file",
		"11.local.hosts[0]  not a host name",
		"11.local.hosts[2]  twice",
		"11.local  state directory",
		"12.passphrase_file " + filepath.Join(dir, "no-pass") + " no such file",
		"13.pkcs12 " + junk + " ",
		"14.cert  missing",
	}
	s := newStore(t, Options{})
	for name, call := range map[string]func() error{
		"Load":  func() error { _, err := s.Load(t.Context(), sources); return err },
		"Check": func() error { return s.Check(t.Context(), sources) },
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			all, ok := errors.AsType[SourceErrors](err)
			if !ok {
				t.Fatalf("error is %T: %v", err, err)
			}
			if len(all) != len(want) {
				t.Errorf("%d errors; want %d:\n%v", len(all), len(want), err)
			}
			for i, e := range all[:min(len(all), len(want))] {
				place, rest, _ := strings.Cut(want[i], " ")
				file, reason, _ := strings.Cut(rest, " ")
				index, field, _ := strings.Cut(place, ".")
				if strings.TrimPrefix(e.Error(), "certificates["+index+"]") == e.Error() || e.Field != field || e.File != file || !strings.Contains(e.Error(), reason) {
					t.Errorf("error %d = %v\n  want %s", i, e, want[i])
				}
			}
		})
	}
	if len(s.registry.held) != 0 {
		t.Errorf("%d certificates are still held after failed loads", len(s.registry.held))
	}
}

func smallRSA(t *testing.T) []byte {
	t.Helper()
	openssl := testtool.Require(t, "openssl", "openssl")
	out, err := exec.CommandContext(t.Context(), openssl, "genrsa", "-traditional", "512").Output()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(out)
	return block.Bytes
}

func TestCheckWritesNothing(t *testing.T) {
	dir := t.TempDir()
	cert := issue(t, newCA(t), pki.Request{Names: []string{"a.test"}})
	prepared := 0
	s := newStore(t, Options{
		StateDir: filepath.Join(dir, "state"),
		Prepare:  func(context.Context, *tls.Certificate) error { prepared++; return nil },
	})
	err := s.Check(t.Context(), []Source{
		{Files: writePair(t, dir, "a", cert)},
		{Local: &Local{Hosts: []string{"localhost"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); !os.IsNotExist(err) {
		t.Errorf("the state directory was made: %v", err)
	}
	if prepared != 0 || s.LocalCA() != nil || len(s.registry.held) != 0 {
		t.Error("Check left traces")
	}
}

func TestDirectory(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	cert := func(name string) *tls.Certificate { return issue(t, ca, pki.Request{Names: []string{name}}) }
	put := func(c *tls.Certificate, certFile, keyFile string) {
		writeFile(t, filepath.Join(dir, certFile), pki.ChainPEM(c))
		writeFile(t, filepath.Join(dir, keyFile), keyPEM(t, c))
	}
	put(cert("plain.test"), "plain.crt", "plain.key")
	put(cert("mkcert.test"), "mkcert.test.pem", "mkcert.test-key.pem")
	put(cert("certbot.test"), "certbot.test/fullchain.pem", "certbot.test/privkey.pem")
	put(cert("k8s.test"), "secret/tls.crt", "secret/tls.key")
	put(cert("split.test"), "split.pem", "split.pem.key")
	sh := cert("acmesh.test")
	put(sh, "acmesh.test_ecc/fullchain.cer", "acmesh.test_ecc/acmesh.test.key")
	writeFile(t, filepath.Join(dir, "acmesh.test_ecc", "acmesh.test.cer"), pki.CertificatePEM(sh.Leaf))
	writeFile(t, filepath.Join(dir, "acmesh.test_ecc", "ca.cer"), pki.CertificatePEM(ca.Certificate))
	c := cert("haproxy.test")
	writeFile(t, filepath.Join(dir, "haproxy.pem"), append(pki.ChainPEM(c), keyPEM(t, c)...))
	// What lies beside pairs without being one.
	writeFile(t, filepath.Join(dir, "certbot.test", "cert.pem"), pki.CertificatePEM(cert("certbot.test").Leaf))
	writeFile(t, filepath.Join(dir, "certbot.test", "chain.pem"), pki.CertificatePEM(ca.Certificate))
	writeFile(t, filepath.Join(dir, "secret", "ca.crt"), pki.CertificatePEM(ca.Root()))
	writeFile(t, filepath.Join(dir, "README"), []byte("text"))
	writeFile(t, filepath.Join(dir, ".hidden.crt"), []byte("junk"))
	writeFile(t, filepath.Join(dir, "a", "b", "deep.crt"), []byte("junk"))
	p12, err := pkcs12.Modern.Encode(c.PrivateKey, c.Leaf, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "store.p12"), p12)

	s := newStore(t, Options{})
	load(t, s, Source{Directory: &Directory{Path: dir}})
	for _, name := range []string{"plain.test", "mkcert.test", "certbot.test", "k8s.test", "haproxy.test", "split.test", "acmesh.test"} {
		leaf := served(s, name)
		if leaf == nil || leaf.Subject.CommonName != name {
			t.Errorf("%s is not served", name)
		}
	}
	if got := len(s.Status()); got != 8 {
		t.Errorf("%d certificates; want 8", got)
	}
	if cert, err := s.GetCertificate(modern("acmesh.test")); err != nil || len(cert.Certificate) != 2 {
		t.Errorf("the chain of acme.sh is not served: %v", err)
	}
}
