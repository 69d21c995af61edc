package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	xocsp "golang.org/x/crypto/ocsp"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// verifyForTest verifies staples with x/crypto/ocsp, which is enough for the
// plain responses of these tests.
func verifyForTest(raw []byte, leaf, issuer *x509.Certificate, now time.Time) (Staple, error) {
	r, err := xocsp.ParseResponseForCert(raw, leaf, issuer)
	if err != nil {
		return Staple{}, err
	}
	status := map[int]string{xocsp.Good: "good", xocsp.Revoked: "revoked", xocsp.Unknown: "unknown"}[r.Status]
	s := Staple{Status: status, ProducedAt: r.ProducedAt, ThisUpdate: r.ThisUpdate, NextUpdate: r.NextUpdate, Signer: "issuer"}
	if now.After(r.NextUpdate) {
		return s, errors.New("the response has expired")
	}
	return s, nil
}

// site is a CA and a certificate for localhost with their files.
type site struct {
	ca       *pki.CA
	cert     tls.Certificate
	dir      string
	caFile   string
	certFile string
	keyFile  string
}

func newSite(t *testing.T, req pki.Request) *site {
	t.Helper()
	ca, err := pki.NewRoot(pki.CAOptions{Name: "probe test CA"})
	if err != nil {
		t.Fatal(err)
	}
	if req.Names == nil {
		req.Names = []string{"localhost", "other.localhost", "127.0.0.1"}
	}
	cert, err := ca.Issue(req)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &site{ca: ca, cert: *cert, dir: dir, caFile: filepath.Join(dir, "ca.pem"),
		certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem")}
	writeFile(t, s.caFile, pki.CertificatePEM(ca.Certificate))
	if err := pki.WritePair(cert, s.certFile, s.keyFile); err != nil {
		t.Fatal(err)
	}
	return s
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// staple returns a response for the certificate.
func (s *site) staple(t *testing.T, cert tls.Certificate, o pki.ResponderOptions) []byte {
	t.Helper()
	req, err := xocsp.CreateRequest(cert.Leaf, s.ca.Certificate, nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := pki.NewResponder(s.ca, o).Respond(req)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// serve runs a Go HTTP server with the configuration until the test ends.
func serve(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.NextProtos == nil {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	srv := &http.Server{
		Handler:           http.NotFoundHandler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(tls.NewListener(ln, cfg))
	}()
	t.Cleanup(func() { srv.Close(); <-done })
	return atLocalhost(ln.Addr().String())
}

func atLocalhost(addr string) string { return strings.Replace(addr, "127.0.0.1", "localhost", 1) }

// outcome is what one run of the command did.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs the command for people.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status := Command{VerifyStaple: verifyForTest}.Run(ctx, args, &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// report runs the command for programs and decodes what it printed.
func report(t *testing.T, args ...string) (*Report, outcome) {
	t.Helper()
	out := run(t, append([]string{"-json"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(out.stdout))
	dec.DisallowUnknownFields()
	r := &Report{}
	if err := dec.Decode(r); err != nil {
		t.Fatalf("probe %q: status %d, stderr %q, stdout is no report: %v\n%s", args, out.status, out.stderr, err, out.stdout)
	}
	return r, out
}

func wantStatus(t *testing.T, out outcome, want int) {
	t.Helper()
	if out.status != want {
		t.Errorf("exit status = %d; want %d\nstderr: %s\nstdout: %s", out.status, want, out.stderr, out.stdout)
	}
}

func wantContains(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is missing in:\n%s", w, got)
		}
	}
}

// resumption returns the part of a report on one version.
func (r *Report) resumption(t *testing.T, version string) Resumption {
	t.Helper()
	for _, res := range r.Resumption {
		if res.Version == version {
			return res
		}
	}
	t.Fatalf("no resumption reported for TLS %s: %+v", version, r.Resumption)
	return Resumption{}
}

// acceptedVersions are the versions a report says are accepted.
func (r *Report) acceptedVersions() []string {
	var all []string
	for _, v := range r.Versions {
		if v.Accepted {
			all = append(all, v.Version)
		}
	}
	return all
}
