package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// ocspBench is a CA with a responder and files of both.
type ocspBench struct {
	dir       string
	ca        *pki.CA
	cert      *tls.Certificate
	responder *pki.Responder
}

func newOCSPBench(t *testing.T) *ocspBench {
	t.Helper()
	ca, err := pki.NewRoot(pki.CAOptions{Name: "issuer"})
	if err != nil {
		t.Fatal(err)
	}
	b := &ocspBench{dir: t.TempDir(), ca: ca, responder: pki.NewResponder(ca, pki.ResponderOptions{})}
	server := httptest.NewServer(b.responder)
	t.Cleanup(server.Close)
	b.cert, err = ca.Issue(pki.Request{Names: []string{"a.test"}, OCSPServers: []string{server.URL}, MustStaple: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.WritePair(b.cert, b.path("chain.pem"), b.path("key.pem")); err != nil {
		t.Fatal(err)
	}
	b.write(t, "leaf.pem", pki.CertificatePEM(b.cert.Leaf))
	b.write(t, "leaf.der", b.cert.Leaf.Raw)
	b.write(t, "ca.pem", pki.CertificatePEM(ca.Certificate))
	return b
}

func (b *ocspBench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *ocspBench) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(b.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ocspRun runs the command with file names in the bench's directory.
func (b *ocspBench) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for i, a := range args {
		if _, err := os.Stat(b.path(a)); err == nil || strings.HasSuffix(a, ".der") {
			args[i] = b.path(a)
		}
	}
	var out, errOut bytes.Buffer
	code = ocspCommand(t.Context(), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestOCSPFetchShowVerify(t *testing.T) {
	b := newOCSPBench(t)
	steps := []struct {
		args string
		code int
		want []string // in standard output
	}{
		{"fetch -out good.der chain.pem", exitOK, []string{"verdict:        good (the certificate is good)", "names:          a.test", "must-staple:    true", "stapled until:", "signed by:      the issuer"}},
		{"fetch -issuer ca.pem leaf.pem", exitOK, []string{"good"}},
		{"fetch -issuer ca.pem leaf.der", exitOK, []string{"good"}},
		{"show good.der", exitOK, []string{"unverified", "answer for:", "  status:", "good", "issuer name hash"}},
		{"verify -cert leaf.pem -issuer ca.pem good.der", exitOK, []string{"verdict:", "good"}},
		{"verify -cert chain.pem good.der", exitOK, []string{"good"}},
		{"verify -cert chain.pem -at 2001-01-01T00:00:00Z good.der", exitFailure, []string{"refused (the response is from the future"}},
		{"verify -cert chain.pem -at 2044-01-01T00:00:00Z good.der", exitFailure, []string{"refused (the response has expired"}},
		{"fetch ca.pem", exitFailure, []string{"names no OCSP responder"}}, // self-signed
		{"show ca.pem", exitFailure, []string{"refused (the answer is not an OCSP response"}},
		{"verify -cert chain.pem ca.pem", exitFailure, []string{"refused (the answer is not an OCSP response"}},
	}
	for _, step := range steps {
		code, stdout, stderr := b.run(t, strings.Fields(step.args)...)
		if code != step.code {
			t.Errorf("%s: exit %d; want %d\n%s%s", step.args, code, step.code, stdout, stderr)
		}
		for _, want := range step.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: no %q in\n%s%s", step.args, want, stdout, stderr)
			}
		}
	}
	b.responder.Revoke(b.cert.Leaf.SerialNumber, time.Now(), 1)
	code, stdout, _ := b.run(t, "fetch", "-json", "chain.pem")
	var report ocspReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if code != exitFailure || report.Verdict != "revoked" || report.Response.Reason != "keyCompromise" || report.Response.RevokedAt.IsZero() {
		t.Errorf("revoked: exit %d, %+v", code, report)
	}
	if code, stdout, _ := b.run(t, "fetch", "-url", "http://127.0.0.1:1/", "chain.pem"); code != exitFailure || !strings.Contains(stdout, "none (http://127.0.0.1:1/: the responder cannot be reached") {
		t.Errorf("nobody there: exit %d\n%s", code, stdout)
	}
	if code, stdout, _ := b.run(t, "fetch", "-out", "-", "chain.pem"); code != exitFailure || !strings.HasPrefix(stdout, "0\x82") {
		t.Errorf("-out -: exit %d, %q", code, stdout)
	}
}

func TestOCSPShowServer(t *testing.T) {
	b := newOCSPBench(t)
	request, _, _ := b.run(t, "fetch", "-out", "good.der", "chain.pem")
	if request != exitOK {
		t.Fatal("no response to staple")
	}
	staple, err := os.ReadFile(b.path("good.der"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := b.ca.Issue(pki.Request{Names: []string{"\x1b[31mred.test"}})
	if err != nil {
		t.Fatal(err)
	}
	alone := *b.cert
	alone.Certificate = alone.Certificate[:1]
	for name, test := range map[string]struct {
		cert   tls.Certificate
		staple []byte
		args   []string
		code   int
		want   string
	}{
		"good":               {*b.cert, staple, nil, exitOK, "good (the certificate is good)"},
		"good, issuer given": {alone, staple, []string{"-issuer", "ca.pem"}, exitOK, "good"},
		"none":               {*b.cert, nil, nil, exitFailure, "none (the server staples no response, although the certificate demands one"},
		"nothing to staple":  {*plain, nil, nil, exitFailure, "names no responder, so there is nothing to staple"},
		"of another":         {*plain, staple, nil, exitFailure, "refused (the response is about another certificate"},
		"junk":               {*b.cert, []byte("junk"), nil, exitFailure, "refused (the answer is not an OCSP response"},
	} {
		t.Run(name, func(t *testing.T) {
			cert := test.cert
			cert.OCSPStaple = test.staple
			server := httptest.NewUnstartedServer(nil)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			server.StartTLS()
			defer server.Close()
			args := append([]string{"show"}, test.args...)
			code, stdout, stderr := b.run(t, append(args, server.Listener.Addr().String())...)
			if code != test.code || !strings.Contains(stdout, test.want) || strings.Contains(stdout, "\x1b") {
				t.Errorf("exit %d; want %d and %q in\n%s%s", code, test.code, test.want, stdout, stderr)
			}
		})
	}
}

// TestOCSPVerifyNearTheEnd: what the proxy would not staple any more is not
// called good, and times are told as of the moment asked about.
func TestOCSPVerifyNearTheEnd(t *testing.T) {
	b := newOCSPBench(t)
	if code, stdout, stderr := b.run(t, "fetch", "-out", "good.der", "chain.pem"); code != exitOK {
		t.Fatal(stdout, stderr)
	}
	code, stdout, _ := b.run(t, "verify", "-json", "-cert", "chain.pem", "good.der")
	var report ocspReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v in %s", code, err, stdout)
	}
	end := report.Response.StapledTo
	for at, want := range map[time.Time]struct {
		code int
		text []string
	}{
		end.Add(-time.Minute):                            {exitOK, []string{"good", "stapled until:  " + end.UTC().Format(time.RFC3339) + " (in 1m0s)"}},
		end.Add(time.Second):                             {exitFailure, []string{"refused (the response has expired: it is relied on until " + end.UTC().Format(time.RFC3339)}},
		report.Response.NextUpdate.Add(-time.Second * 2): {exitFailure, []string{"refused", "next update:", "(in 2s)"}},
	} {
		code, stdout, _ := b.run(t, "verify", "-cert", "chain.pem", "-at", at.UTC().Format(time.RFC3339), "good.der")
		if code != want.code {
			t.Errorf("at %v: exit %d; want %d\n%s", at, code, want.code, stdout)
		}
		for _, text := range want.text {
			if !strings.Contains(stdout, text) {
				t.Errorf("at %v: no %q in\n%s", at, text, stdout)
			}
		}
	}
}

// TestOCSPShowServerForClients: the staple of a server that demands client
// certificates is shown, in every version of TLS.
func TestOCSPShowServerForClients(t *testing.T) {
	b := newOCSPBench(t)
	if code, stdout, stderr := b.run(t, "fetch", "-out", "good.der", "chain.pem"); code != exitOK {
		t.Fatal(stdout, stderr)
	}
	staple, err := os.ReadFile(b.path("good.der"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cert := *b.cert
		cert.OCSPStaple = staple
		server := httptest.NewUnstartedServer(nil)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version, ClientAuth: tls.RequireAnyClientCert}
		server.StartTLS()
		code, stdout, stderr := b.run(t, "show", server.Listener.Addr().String())
		if code != exitOK || !strings.Contains(stdout, "good (the certificate is good)") {
			t.Errorf("%s: exit %d\n%s%s", tls.VersionName(version), code, stdout, stderr)
		}
		server.Close()
	}
}

func TestOCSPUsage(t *testing.T) {
	b := newOCSPBench(t)
	b.write(t, "empty.pem", []byte("-----BEGIN NOTHING-----\n"))
	b.write(t, "huge.pem", make([]byte, maxOCSPFile+1))
	for args, want := range map[string]struct {
		code   int
		stderr string
	}{
		"":                                {exitUsage, "usage:"},
		"frobnicate":                      {exitUsage, `unknown command "frobnicate"`},
		"fetch":                           {exitUsage, "takes one argument"},
		"fetch -h":                        {exitOK, "usage:"},
		"help":                            {exitOK, ""},
		"fetch -nonsense x":               {exitUsage, "-nonsense"},
		"fetch nowhere.pem":               {exitFailure, "nowhere.pem"},
		"fetch empty.pem":                 {exitFailure, "no CERTIFICATE block"},
		"fetch huge.pem":                  {exitFailure, "larger than"},
		"fetch leaf.pem":                  {exitFailure, "-issuer FILE"},
		"fetch -issuer leaf.pem leaf.pem": {exitFailure, "signed that of"},
		"show nowhere":                    {exitFailure, "neither a file nor HOST:PORT"},
		"show 127.0.0.1:1":                {exitFailure, "127.0.0.1:1"},
		"verify leaf.der":                 {exitFailure, "-cert is missing"},
		"verify -cert chain.pem -at noon leaf.der": {exitFailure, `"noon"`},
	} {
		code, stdout, stderr := b.run(t, strings.Fields(args)...)
		if code != want.code || !strings.Contains(stderr, want.stderr) {
			t.Errorf("ocsp %s: exit %d; want %d and %q in\n%s%s", args, code, want.code, want.stderr, stdout, stderr)
		}
	}
}
