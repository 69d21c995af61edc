package ocsp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// bench is a directory with a CA as openssl wants it: PEM files and an index.
type bench struct {
	dir     string
	openssl string
	ca      *pki.CA
}

func newBench(t testing.TB, ca *pki.CA) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), openssl: testtool.Require(t, "openssl", "openssl"), ca: ca}
	b.write(t, "ca.pem", pki.CertificatePEM(ca.Certificate))
	key, err := pki.KeyPEM(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, "ca.key", key)
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(b.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) pair(t testing.TB, name string, cert *tls.Certificate) {
	t.Helper()
	if err := pki.WritePair(cert, b.path(name+".pem"), b.path(name+".key")); err != nil {
		t.Fatal(err)
	}
}

// index writes the database that `openssl ca` would keep: a status letter for
// each certificate; those left out are unknown.
func (b *bench) index(t testing.TB, letters map[*x509.Certificate]string) {
	t.Helper()
	var lines strings.Builder
	for cert, letter := range letters {
		revoked := ""
		if letter == "R" {
			revoked = time.Now().Add(-time.Hour).UTC().Format("060102150405Z") + ",keyCompromise"
		}
		serial := strings.ToUpper(cert.SerialNumber.Text(16))
		if len(serial)%2 == 1 {
			serial = "0" + serial
		}
		fmt.Fprintf(&lines, "%s\t%s\t%s\t%s\tunknown\t/CN=x\n", letter, cert.NotAfter.UTC().Format("060102150405Z"), revoked, serial)
	}
	b.write(t, "index.txt", []byte(lines.String()))
	b.write(t, "index.txt.attr", []byte("unique_subject = no\n"))
}

func (b *bench) run(t testing.TB, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.openssl, args...)
	cmd.Dir = b.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// respond lets openssl answer a request, offline.
func (b *bench) respond(t testing.TB, request []byte, args ...string) []byte {
	t.Helper()
	b.write(t, "req.der", request)
	_ = os.Remove(b.path("resp.der"))
	args = append([]string{"ocsp", "-index", "index.txt", "-CA", "ca.pem", "-reqin", "req.der", "-respout", "resp.der", "-noverify"}, args...)
	out, err := b.run(t, args...)
	if err != nil {
		t.Fatalf("openssl %v: %v\n%s", args, err, out)
	}
	der, err := os.ReadFile(b.path("resp.der"))
	if err != nil {
		t.Fatalf("openssl %v: %v\n%s", args, err, out)
	}
	return der
}

// judge asks openssl what a client makes of a response: good, revoked or
// unknown, or the empty string if it is refused.
func (b *bench) judge(t testing.TB, der []byte) (verdict, output string) {
	t.Helper()
	b.write(t, "judge.der", der)
	out, err := b.run(t, "ocsp", "-respin", "judge.der", "-issuer", "ca.pem", "-cert", "leaf.pem", "-CAfile", "ca.pem", "-no-CApath", "-no-CAstore", "-no_nonce")
	if err != nil || !strings.Contains(out, "Response verify OK") || strings.Contains(out, "WARNING") || strings.Contains(out, "ERROR") {
		return "", out
	}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "leaf.pem: "); ok {
			return rest, out
		}
	}
	return "", out
}

// Every kind of response that openssl makes is understood, and understood as
// the other parser understands it, where that one can.
func TestOpenSSLResponses(t *testing.T) {
	compared := 0
	for _, key := range []pki.KeyType{pki.RSA2048, pki.ECDSAP256, pki.Ed25519} {
		ca := newCA(t, pki.CAOptions{Name: "issuer", KeyType: key})
		signer := delegate(t, ca, pki.Request{KeyType: key})
		leaf := serverCert(t, ca, "a.test").Leaf
		revoked := serverCert(t, ca, "b.test").Leaf
		absent := serverCert(t, ca, "c.test").Leaf
		b := newBench(t, ca)
		b.pair(t, "signer", signer)
		b.index(t, map[*x509.Certificate]string{leaf: "V", revoked: "R"})
		signers := map[string][]string{
			"issuer":                    {"-rsigner", "ca.pem", "-rkey", "ca.key"},
			"issuer, not embedded":      {"-rsigner", "ca.pem", "-rkey", "ca.key", "-resp_no_certs"},
			"issuer, by key":            {"-rsigner", "ca.pem", "-rkey", "ca.key", "-resp_key_id"},
			"delegate":                  {"-rsigner", "signer.pem", "-rkey", "signer.key"},
			"delegate, others embedded": {"-rsigner", "signer.pem", "-rkey", "signer.key", "-rother", "ca.pem", "-resp_key_id"},
		}
		if key == pki.RSA2048 {
			signers["issuer, PSS"] = []string{"-rsigner", "ca.pem", "-rkey", "ca.key", "-rsigopt", "rsa_padding_mode:pss", "-rsigopt", "rsa_pss_saltlen:digest", "-rmd", "sha384"}
			signers["issuer, PSS, long salt"] = []string{"-rsigner", "ca.pem", "-rkey", "ca.key", "-rsigopt", "rsa_padding_mode:pss", "-rmd", "sha256"}
		}
		validities := map[string][]string{"two minutes": {"-nmin", "2"}, "ten minutes": {"-nmin", "10"}, "three days": {"-ndays", "3"}, "no end": nil}
		for signerName, signerArgs := range signers {
			for validity, validityArgs := range validities {
				for cert, want := range map[*x509.Certificate]Status{leaf: Good, revoked: Revoked, absent: Unknown} {
					request, err := xocsp.CreateRequest(cert, ca.Certificate, nil)
					if err != nil {
						t.Fatal(err)
					}
					der := b.respond(t, request, append(signerArgs, validityArgs...)...)
					r, err := Verify(der, cert, ca.Certificate, time.Now())
					if err != nil || r.Status != want {
						t.Errorf("%v, %s, %s: %+v, %v; want %v", key, signerName, validity, r, err, want)
						continue
					}
					if (validity == "no end") != r.NextUpdate.IsZero() || time.Until(r.End) < 100*time.Second {
						t.Errorf("%s: next update %v, end %v", validity, r.NextUpdate, r.End)
					}
					if compareParsers(t, r, der, cert, ca.Certificate) {
						compared++
					}
				}
			}
		}
	}
	// RSA and ECDSA, signed by the issuer without a certificate or by a delegate.
	if want := 2 * 2 * 4 * 3; compared < want {
		t.Errorf("%d responses were compared with the other parser; want %d", compared, want)
	}
}

// compareParsers checks r against golang.org/x/crypto/ocsp, which refuses
// Ed25519, RSA-PSS and responses in which the issuer's own certificate, or
// more than the signer's, is embedded. It reports whether they could be compared.
func compareParsers(t *testing.T, r *Response, der []byte, leaf, issuer *x509.Certificate) bool {
	t.Helper()
	theirs, err := xocsp.ParseResponseForCert(der, leaf, issuer)
	if err != nil {
		return false
	}
	if int(r.Status)-1 != theirs.Status || !r.ThisUpdate.Equal(theirs.ThisUpdate) || !r.NextUpdate.Equal(theirs.NextUpdate) ||
		!r.ProducedAt.Equal(theirs.ProducedAt) || !r.RevokedAt.Equal(theirs.RevokedAt) {
		t.Errorf("ours: %+v\ntheirs: %+v", r, theirs)
	}
	if r.Status == Revoked && r.RevocationReason != theirs.RevocationReason {
		t.Errorf("reason %d; theirs %d", r.RevocationReason, theirs.RevocationReason)
	}
	return true
}

// What we refuse openssl refuses, and what we accept it accepts. Where the two
// differ on purpose, the reason is given.
func TestOpenSSLJudgesWrongAnswers(t *testing.T) {
	w := fixedWorldAt(t, time.Now().Truncate(time.Second))
	b := newBench(t, w.ca)
	b.pair(t, "leaf", w.cert)
	stricter := map[string]string{
		"about to expire": "it is valid now; to be stapled it must last a while",
		"trailing byte":   "openssl stops reading where the response ends",
		"never issued":    "openssl shows the plain revoked that RFC 6960 encodes it as",
	}
	answers := wrongAnswers(t, w, new(atomic.Int64))
	answers["good"] = wrongAnswer{write(build(t, w.good())), ResultGood}
	answers["good, delegate"] = wrongAnswer{write(build(t, signedBy(w.good(), w.delegate(t, w.ca, pki.Request{})))), ResultGood}
	judged := 0
	for name, answer := range answers {
		if answer.want == ReasonTimeout || answer.want == ReasonNetwork || answer.want == ReasonTooLarge || answer.want == ReasonContentEncoding {
			continue // not about the response
		}
		rec := &localWriter{header: make(http.Header), code: http.StatusOK}
		answer.serve(rec, &http.Request{Method: http.MethodPost, Body: http.NoBody})
		if rec.code != http.StatusOK {
			continue
		}
		judged++
		verdict, out := b.judge(t, rec.body.Bytes())
		ours := ""
		if r, err := Verify(rec.body.Bytes(), w.cert.Leaf, w.ca.Certificate, w.now); err == nil {
			ours = r.Status.String()
		}
		if _, expected := stricter[name]; !expected && verdict != ours {
			t.Errorf("%s: openssl says %q, we say %q\n%s", name, verdict, ours, out)
		}
	}
	if judged < 25 {
		t.Errorf("only %d responses were judged", judged)
	}
}

// Both parsers get the damaged forms of a response; ours must not accept what
// the other refuses.
func TestParsersAgreeOnDamage(t *testing.T) {
	w := newWorld(t)
	der := build(t, signedBy(w.good(), delegate(t, w.ca, pki.Request{})))
	for i := range der {
		for _, bit := range []byte{0x01, 0x20, 0x80} {
			damaged := bytes.Clone(der)
			damaged[i] ^= bit
			_, ours := Verify(damaged, w.cert.Leaf, w.ca.Certificate, now)
			_, theirs := xocsp.ParseResponseForCert(damaged, w.cert.Leaf, w.ca.Certificate)
			if ours == nil && theirs != nil {
				t.Errorf("byte %d, bit %#x: accepted; the other parser says: %v", i, bit, theirs)
			}
		}
	}
}
