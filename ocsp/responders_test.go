package ocsp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// program starts a program that listens on port and waits until it does. The
// returned function ends it.
func program(t *testing.T, dir, port string, args ...string) (stop func()) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	stop = func() {
		_ = cmd.Process.Kill()
		<-done
	}
	for deadline := time.Now().Add(20 * time.Second); !listening(t, port); {
		select {
		case <-done:
			t.Fatalf("%v ended: %s", args, out.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			stop()
			t.Fatalf("%v does not listen: %s", args, out.String())
		}
	}
	return stop
}

// listening reports whether somebody listens on a TCP port. It does not
// connect: `openssl ocsp` hangs for good after a connection without a request.
func listening(t *testing.T, port string) bool {
	t.Helper()
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", number)) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}

// real is a stapler with the real transport and a server that it staples for.
type real struct {
	*Stapler
	addr string
	cert *tls.Certificate
	ca   *pki.CA
}

func newReal(t *testing.T, ca *pki.CA, cert *tls.Certificate, o Options) *real {
	t.Helper()
	o.Logger = testLogger(t)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run(t, s))
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	return &real{Stapler: s, addr: tlsServer(t, s, cert), cert: cert, ca: ca}
}

// await waits until the last result is the one wanted.
func (r *real) await(t *testing.T, want Reason) CertificateStatus {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if r.Status()[0].LastResult == want {
			e := r.list()[0]
			e.fetch.Lock() // until what came of the result is done, too
			defer e.fetch.Unlock()
			return r.Status()[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("status = %+v; want %s", r.Status()[0], want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stapleSeen handshakes like a client that insists on a staple.
func (r *real) stapleSeen(t *testing.T) (*Response, error) {
	t.Helper()
	var seen *Response
	conn, err := tls.Dial("tcp", r.addr, &tls.Config{
		ServerName: r.cert.Leaf.DNSNames[0], RootCAs: r.ca.Pool(),
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.OCSPResponse == nil {
				return errors.New("no staple")
			}
			var err error
			seen, err = Verify(state.OCSPResponse, state.VerifiedChains[0][0], state.VerifiedChains[0][1], time.Now())
			return err
		},
	})
	if err == nil {
		_ = conn.Close()
	}
	return seen, err
}

// opensslSees returns what `openssl s_client -status` prints.
func (r *real) opensslSees(t *testing.T, b *bench, version string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.openssl, "s_client", "-connect", r.addr, "-servername", r.cert.Leaf.DNSNames[0], "-CAfile", "ca.pem", "-status", version)
	cmd.Dir = b.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("openssl s_client: %v\n%s", err, out)
	}
	return string(out)
}

const realPort = "8889"

// Against `openssl ocsp -port`: every status, signer and validity, by GET and
// by POST, and what clients see.
func TestOpenSSLResponder(t *testing.T) {
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t, pki.CAOptions{Name: "issuer", KeyType: pki.RSA2048})
	b := newBench(t, ca)
	b.pair(t, "signer", delegate(t, ca, pki.Request{KeyType: pki.RSA2048}))
	byIssuer := []string{"-rsigner", "ca.pem", "-rkey", "ca.key"}
	byDelegate := []string{"-rsigner", "signer.pem", "-rkey", "signer.key"}
	long := "/" + strings.Repeat("long", 60) // forces POST
	tests := []struct {
		name, letter, path string
		args               []string
		want               Reason
		life               time.Duration // of the staple, about
	}{
		{"good, two minutes", "V", "", append(byIssuer, "-nmin", "2"), ResultGood, 108 * time.Second},
		{"good, ten minutes, delegate", "V", "", append(byDelegate, "-nmin", "10"), ResultGood, 9 * time.Minute},
		{"good, no end", "V", "/", byIssuer, ResultGood, 10 * time.Minute},
		{"good, others embedded", "V", "", append(byDelegate, "-ndays", "1", "-rother", "ca.pem", "-resp_key_id"), ResultGood, 24*time.Hour - 5*time.Minute},
		{"good, nothing embedded", "V", "", append(byIssuer, "-resp_no_certs", "-nmin", "10"), ResultGood, 9 * time.Minute},
		{"good, by POST", "V", long, append(byDelegate, "-nmin", "10"), ResultGood, 9 * time.Minute},
		{"revoked", "R", "", append(byIssuer, "-nmin", "10"), ResultRevoked, 0},
		{"unknown", "", "", append(byDelegate, "-nmin", "10"), ResultUnknown, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{"http://127.0.0.1:" + realPort + test.path}})
			letters := map[*x509.Certificate]string{}
			if test.letter != "" {
				letters[cert.Leaf] = test.letter
			}
			b.index(t, letters)
			args := append([]string{b.openssl, "ocsp", "-port", realPort, "-index", "index.txt", "-CA", "ca.pem"}, test.args...)
			stop := program(t, b.dir, realPort, args...)
			defer stop()
			r := newReal(t, ca, cert, Options{})
			status := r.await(t, test.want)
			seen, err := r.stapleSeen(t)
			if test.want != ResultGood {
				if err == nil || !strings.Contains(err.Error(), "no staple") {
					t.Errorf("a client sees %+v, %v; want no staple", seen, err)
				}
				if out := r.opensslSees(t, b, "-tls1_3"); !strings.Contains(out, "OCSP response: no response sent") {
					t.Errorf("openssl sees a staple:\n%s", out)
				}
				return
			}
			if err != nil || seen.Status != Good {
				t.Fatalf("a client sees %+v, %v (%+v)", seen, err, status)
			}
			if left := time.Until(status.Expires); left > test.life || left < test.life-15*time.Second {
				t.Errorf("the staple lasts %v; want %v", left, test.life)
			}
			for _, version := range []string{"-tls1_2", "-tls1_3"} {
				out := r.opensslSees(t, b, version)
				if !strings.Contains(out, "OCSP Response Status: successful (0x0)") || !strings.Contains(out, "Cert Status: good") || !strings.Contains(out, "Verify return code: 0 (ok)") {
					t.Errorf("openssl %s sees\n%s", version, out)
				}
			}
		})
	}
}

// The staple outlives its responder.
func TestOpenSSLResponderDies(t *testing.T) {
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t, pki.CAOptions{Name: "issuer"})
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{"http://127.0.0.1:" + realPort}, MustStaple: true})
	b := newBench(t, ca)
	b.index(t, map[*x509.Certificate]string{cert.Leaf: "V"})
	dir := t.TempDir()
	args := []string{b.openssl, "ocsp", "-port", realPort, "-index", "index.txt", "-CA", "ca.pem", "-rsigner", "ca.pem", "-rkey", "ca.key", "-nmin", "2"}
	stop := program(t, b.dir, realPort, args...)
	r := newReal(t, ca, cert, Options{StateDir: dir})
	r.await(t, ResultGood)
	stop()
	if _, err := r.stapleSeen(t); err != nil {
		t.Errorf("after the responder's death: %v", err)
	}
	// So it does after a restart of ours, until its end, which comes by the wall
	// clock.
	ahead := time.Duration(0)
	again, err := New(Options{StateDir: dir, Logger: testLogger(t), Now: func() time.Time { return time.Now().Add(ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	if again.served(t, cert) == nil {
		t.Error("a new process does not staple what is stored")
	}
	ahead = 109 * time.Second
	if again.served(t, cert) != nil {
		t.Error("stapled beyond its end")
	}
}

// CFSSL's responder serves responses made beforehand, and answers GET in a way
// of its own.
func TestCFSSLResponder(t *testing.T) {
	if !testtool.Isolated(t) {
		return
	}
	cfssl := testtool.Require(t, "cfssl", "golang-cfssl")
	ca := newCA(t, pki.CAOptions{Name: "issuer", KeyType: pki.RSA2048})
	b := newBench(t, ca)
	signer := delegate(t, ca, pki.Request{KeyType: pki.RSA2048})
	b.pair(t, "signer", signer)
	b.write(t, "signer.pem", pki.CertificatePEM(signer.Leaf)) // it reads one certificate a file
	certs := make(map[string]*tls.Certificate)
	var responses bytes.Buffer
	for _, status := range []string{"good", "revoked", "unknown"} {
		cert := issue(t, ca, pki.Request{Names: []string{status + ".test"}, OCSPServers: []string{"http://127.0.0.1:" + realPort}})
		certs[status] = cert
		b.pair(t, status, cert)
		b.write(t, "one.pem", pki.CertificatePEM(cert.Leaf))
		responses.Write(cfsslSign(t, cfssl, b, status))
		responses.WriteByte('\n')
	}
	b.write(t, "responses", responses.Bytes())
	stop := program(t, b.dir, realPort, cfssl, "ocspserve", "-address=127.0.0.1", "-port="+realPort, "-responses=responses", "-loglevel=0")
	defer stop()
	for status, cert := range certs {
		r := newReal(t, ca, cert, Options{})
		got := r.await(t, Reason(status))
		if status == "revoked" && got.RevokedAt.IsZero() {
			t.Error("no time of revocation")
		}
		_, err := r.stapleSeen(t)
		if (err == nil) != (status == "good") {
			t.Errorf("%s: a client says %v", status, err)
		}
		t.Logf("%s: %v", status, r.Stats().Fetches)
	}
	absent := issue(t, ca, pki.Request{Names: []string{"absent.test"}, OCSPServers: []string{"http://127.0.0.1:" + realPort}})
	r := newReal(t, ca, absent, Options{})
	r.await(t, ReasonUnauthorized)
}

// cfsslSign makes a response with cfssl and returns it in base64.
func cfsslSign(t *testing.T, cfssl string, b *bench, status string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cfssl, "ocspsign", "-ca", "ca.pem", "-responder", "signer.pem", "-responder-key", "signer.key", "-cert", "one.pem", "-status", status, "-reason", "keycompromise", "-loglevel=4")
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("cfssl ocspsign: %v\n%s%s", err, out, exit.Stderr)
	}
	// The answer is JSON with the base64 in it, or bare base64 in old versions.
	for field := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return strings.ContainsRune("\"{}:,\n ", r) }) {
		if _, err := base64.StdEncoding.DecodeString(field); err == nil && len(field) > 200 {
			return []byte(field)
		}
	}
	t.Fatalf("cfssl ocspsign says %s", out)
	return nil
}

// The proxy that is configured is used, and else the one of the environment,
// which the net/http package reads once in a process: hence one of its own.
func TestProxy(t *testing.T) {
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t, pki.CAOptions{})
	cert := serverCert(t, ca, "a.test") // its responder does not exist
	seen := make(chan string, 8)
	responder := pki.NewResponder(ca, pki.ResponderOptions{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.Host
		responder.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	// net/http asks no proxy of the environment for loopback addresses, but
	// ocsp.test is none.
	t.Setenv("HTTP_PROXY", proxy.URL)
	for name, option := range map[string]func(*http.Request) (*url.URL, error){"environment": nil, "option": http.ProxyURL(address)} {
		r := newReal(t, ca, cert, Options{Proxy: option})
		r.await(t, ResultGood)
		if host := <-seen; host != "ocsp.test" {
			t.Errorf("%s: the proxy was asked for %q", name, host)
		}
	}
}

// A full and a read-only disk, real ones.
func TestFullAndReadOnlyDisk(t *testing.T) {
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t, pki.CAOptions{})
	full := t.TempDir()
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "filler"), make([]byte, 16<<10), 0o600); err == nil {
		t.Log("the filler fits exactly")
	}
	readOnly := t.TempDir()
	if err := syscall.Mount("tmpfs", readOnly, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"full": full, "read-only": readOnly} {
		t.Run(name, func(t *testing.T) { servesOnWithOneWarning(t, ca, dir) })
	}
	if left, _ := filepath.Glob(filepath.Join(full, "ocsp", tempPrefix+"*")); len(left) > 0 {
		t.Errorf("half-written files fill the disk further: %v", left)
	}
	for _, dir := range []string{full, readOnly} {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(fmt.Errorf("unmount: %w", err))
		}
	}
}
