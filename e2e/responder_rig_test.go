package e2e

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ocsp"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// gatedResponder is an OCSP responder that can hold its answers back.
type gatedResponder struct {
	*pki.Responder
	url    string
	asked  atomic.Int64
	mu     sync.Mutex
	closed chan struct{} // nil: answers at once
}

func startGated(t *testing.T, ca *pki.CA, o pki.ResponderOptions) *gatedResponder {
	t.Helper()
	r := &gatedResponder{Responder: pki.NewResponder(ca, o)}
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		r.open()
		server.CloseClientConnections()
		server.Close()
	})
	r.url = server.URL
	return r
}

// hold makes the responder silent until open is called.
func (r *gatedResponder) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = make(chan struct{})
}

func (r *gatedResponder) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		close(r.closed)
		r.closed = nil
	}
}

func (r *gatedResponder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.asked.Add(1)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed != nil {
		select {
		case <-closed:
		case <-req.Context().Done():
			return
		}
	}
	r.Responder.ServeHTTP(w, req)
}

// seen is what one new client sees of a certificate and its staple.
type seen struct {
	leaf   *x509.Certificate
	staple []byte
}

// look makes one handshake. The staple, if there is one, must be a good and
// current one for the very certificate it comes with.
func (p *proxy) look(ca *pki.CA, name string) seen {
	p.t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", p.addr, &tls.Config{ServerName: name, RootCAs: ca.Pool()})
	if err != nil {
		p.t.Fatalf("handshake for %q: %v", name, err)
	}
	defer conn.Close()
	state := conn.ConnectionState()
	s := seen{state.PeerCertificates[0], state.OCSPResponse}
	if s.staple != nil {
		response, err := ocsp.ParseResponseForCert(s.staple, s.leaf, ca.Certificate)
		if err != nil || response.Status != ocsp.Good {
			p.t.Fatalf("staple of %q: %v, %+v", name, err, response)
		}
	}
	return s
}

// stapleFile is where the state directory keeps a certificate's response.
func (p *proxy) stapleFile(leaf *x509.Certificate, suffix string) string {
	sum := sha256.Sum256(leaf.Raw)
	return filepath.Join(p.dir, "state", "ocsp", hex.EncodeToString(sum[:])+suffix)
}

// count is how many lines of the log have all the parts.
func (p *proxy) count(parts ...string) int {
	n := 0
lines:
	for line := range strings.Lines(p.stderr.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// opensslIndex is a responder by `openssl ocsp` for any certificates of one CA.
// It listens on every interface, so it needs a network of the test's own.
type opensslIndex struct {
	t    *testing.T
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startOpenSSL writes the CA and its key and answers by the index.
func startOpenSSL(t *testing.T, ca *pki.CA, port int, args ...string) *opensslIndex {
	t.Helper()
	r := &opensslIndex{t: t, dir: t.TempDir()}
	key, err := pki.KeyPEM(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"ca.pem": pki.CertificatePEM(ca.Certificate), "ca.key": key, "index": nil} {
		if err := os.WriteFile(filepath.Join(r.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.args = append([]string{"ocsp", "-index", "index", "-port", fmt.Sprint(port),
		"-rsigner", "ca.pem", "-rkey", "ca.key", "-CA", "ca.pem"}, args...)
	t.Cleanup(r.kill)
	return r
}

// serve starts the responder anew with an index of good and revoked
// certificates. Requests that come too early are refused connections.
func (r *opensslIndex) serve(good, revoked []*x509.Certificate) {
	r.t.Helper()
	r.kill()
	var index strings.Builder
	const stamp = "060102150405Z"
	for _, c := range good {
		fmt.Fprintf(&index, "V\t%s\t\t%X\tunknown\t/CN=x\n", c.NotAfter.UTC().Format(stamp), c.SerialNumber)
	}
	for _, c := range revoked {
		fmt.Fprintf(&index, "R\t%s\t%s,keyCompromise\t%X\tunknown\t/CN=x\n", c.NotAfter.UTC().Format(stamp), c.NotBefore.UTC().Format(stamp), c.SerialNumber)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "index"), []byte(index.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.cmd = exec.Command(testtool.Require(r.t, "openssl", "openssl"), r.args...)
	r.cmd.Dir = r.dir
	out := new(logBuffer)
	r.cmd.Stdout, r.cmd.Stderr = out, out
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "openssl ocsp listens", func() bool { return strings.Contains(out.String(), "waiting for") || listens(r.t, r.args[4]) })
}

func (r *opensslIndex) kill() {
	if r.cmd != nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		r.cmd = nil
	}
}

// listens reports whether a socket listens on a port, without connecting to it:
// `openssl ocsp` would wait for a request on that connection alone.
func listens(t *testing.T, port string) bool {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), fmt.Sprintf(":%04X ", n)) {
			return true
		}
	}
	return false
}
