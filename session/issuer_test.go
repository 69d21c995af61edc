package session

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// An issuer is the same whether the log or OpenSSL wrote it, and whatever is in it.
func TestIssuersAsOpenSSLWritesThem(t *testing.T) {
	openssl := testtool.Require(t, "openssl", "openssl")
	for _, name := range []string{
		"/CN=plain",
		"/C=DE/O=Example/OU=one/OU=two/CN=Example CA",
		"/CN=ca/emailAddress=ca@example.test",
		"/DC=test/DC=example/UID=u1/CN=ca",
		"/O=Bücher, \"Inc\"; <a> \\\\ #1/CN=#hash ",
		"/CN=many+OU=in one+serialNumber=5/street=Some Street 1/postalCode=1",
		"/GN=Ann/SN=Other/title=Dr/initials=A/dnQualifier=q/businessCategory=b",
		"/CN==a\\=b",
	} {
		file := filepath.Join(t.TempDir(), "ca.pem")
		run := func(args ...string) string {
			t.Helper()
			var complaints strings.Builder
			cmd := exec.CommandContext(t.Context(), openssl, args...)
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, complaints.String())
			}
			return strings.TrimSuffix(string(out), "\n")
		}
		run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", os.DevNull,
			"-utf8", "-subj", name, "-out", file)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(b)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		shown := strings.TrimPrefix(run("x509", "-in", file, "-noout", "-issuer", "-nameopt", "rfc2253"), "issuer=")
		want := peerKey([]*x509.Certificate{cert})
		for _, issuer := range []string{shown, cert.Issuer.String()} {
			s, err := Subject{Kind: KindCertificate, Issuer: issuer, Serial: CertificateSubject(cert).Serial}.canonical()
			if err != nil {
				t.Errorf("%v", err)
			} else if s.key() != want {
				t.Errorf("%q is not taken for the issuer %s", issuer, cert.Issuer)
			}
		}
	}
}

func TestIssuersThatAreNone(t *testing.T) {
	for issuer, want := range map[string]string{
		"Example CA":    "is not a name such as",
		"CN=a,":         "is not a name such as",
		"CN=a,b":        "is not a name such as",
		"XX=a":          `unknown attribute "XX"`,
		`CN=a\`:         "in the middle of an escape",
		"CN=#zz":        "invalid byte",
		"2.5.4.3=#0c05": "no encoded value",
		"=a":            `unknown attribute ""`,
		`CN="Foo, Bar"`: "-nameopt rfc2253",
		"CN=a;O=b":      "-nameopt rfc2253",
	} {
		_, err := Subject{Kind: KindCertificate, Issuer: issuer, Serial: "1"}.canonical()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", issuer, err, want)
		}
	}
}

func FuzzParseIssuer(f *testing.F) {
	for _, s := range []string{"", "CN=a", `CN=a\,b+OU=\C3\BC,1.2.3=#0c0161`, "CN=\\", "CN=#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if issuer, err := parseIssuer(s); (issuer == "") == (err == nil) {
			t.Errorf("%q became %q, %v", s, issuer, err)
		}
	})
}
