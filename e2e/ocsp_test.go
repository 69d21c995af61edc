package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// opensslResponder is a responder for one certificate by `openssl ocsp`, whose
// answers are valid for a number of minutes.
type opensslResponder struct {
	t    *testing.T
	dir  string
	port int
	cmd  *exec.Cmd
}

// startResponder writes the CA, its key and an index that calls the
// certificate good, and answers for it. It listens on every interface, so it
// needs a network of the test's own.
func startResponder(t *testing.T, ca *pki.CA, cert *tls.Certificate, port, minutes int) *opensslResponder {
	t.Helper()
	r := &opensslResponder{t: t, dir: t.TempDir(), port: port}
	key, err := pki.KeyPEM(ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprintf("V\t%s\t\t%X\tunknown\t/CN=localhost\n", cert.Leaf.NotAfter.UTC().Format("060102150405Z"), cert.Leaf.SerialNumber)
	for name, data := range map[string][]byte{"ca.pem": pki.CertificatePEM(ca.Certificate), "ca.key": key, "index": []byte(index)} {
		if err := os.WriteFile(filepath.Join(r.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.cmd = exec.Command(testtool.Require(t, "openssl", "openssl"), "ocsp", "-index", "index", "-port", fmt.Sprint(port),
		"-rsigner", "ca.pem", "-rkey", "ca.key", "-CA", "ca.pem", "-nmin", fmt.Sprint(minutes))
	r.cmd.Dir = r.dir
	r.cmd.Stderr = new(bytes.Buffer)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	return r
}

func (r *opensslResponder) kill() {
	r.cmd.Process.Kill()
	r.cmd.Wait()
}

// staple is the OCSP response that a new client sees, nil without one.
func (p *proxy) staple(ca *pki.CA, name string) []byte {
	p.t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", p.addr, &tls.Config{ServerName: name, RootCAs: ca.Pool()})
	if err != nil {
		p.t.Fatalf("handshake: %v", err)
	}
	defer conn.Close()
	return conn.ConnectionState().OCSPResponse
}

// TestStapleOfOpenSSLResponder follows one file certificate through the life
// of its responder: the staple appears without a restart once the responder
// answers, survives the responder's death and a restart of the proxy, and is
// never served once it has expired, while handshakes go on all the time.
func TestStapleOfOpenSSLResponder(t *testing.T) {
	t.Parallel() // it waits for a back-off and for an expiry
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t)
	port := testtool.FreePort(t)
	p := newProxy(t, filesConfig)
	cert := p.issue(ca, "tls", pki.Request{
		Names: []string{"localhost"}, OCSPServers: []string{fmt.Sprintf("http://127.0.0.1:%d/", port)},
	})
	p.start()
	p.waitReady() // with its responder down
	if p.staple(ca, "localhost") != nil {
		t.Fatal("a staple from a responder that is not there")
	}

	eventually(t, "the failed fetch is counted", func() bool {
		return p.metric("tlsproxy_ocsp_fetches_total", `result="network"`) > 0
	})

	responder := startResponder(t, ca, cert, port, 1)
	// The first fetch failed, so the next one comes after a back-off; a reload
	// or an operator does not wait for that.
	var raw []byte
	p.patiently(3*time.Minute, "the staple appears", func() bool {
		raw = p.staple(ca, "localhost")
		return raw != nil
	})
	response, err := ocsp.ParseResponseForCert(raw, cert.Leaf, ca.Certificate)
	if err != nil || response.Status != ocsp.Good {
		t.Fatalf("staple: %v, %+v", err, response)
	}

	responder.kill()
	if !bytes.Equal(p.staple(ca, "localhost"), raw) {
		t.Error("the staple went with its responder")
	}
	p.signal(15)
	p.wait()
	p.start()
	p.waitReady()
	if got := p.staple(ca, "localhost"); !bytes.Equal(got, raw) {
		t.Errorf("after a restart with the responder down the staple of %d bytes is one of %d", len(raw), len(got))
	}

	for {
		now := time.Now()
		got := p.staple(ca, "localhost")
		if got == nil {
			break
		}
		r, err := ocsp.ParseResponseForCert(got, cert.Leaf, ca.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if now.After(r.NextUpdate) {
			t.Fatalf("a staple that ended at %v was served at %v", r.NextUpdate, now)
		}
		if now.After(response.NextUpdate.Add(patience)) {
			t.Fatal("the staple is still served")
		}
		time.Sleep(500 * time.Millisecond)
	}
	if !strings.Contains(fmt.Sprint(p.status()["staples"]), "pending") {
		t.Errorf("/api/status says of the staple: %v", p.status()["staples"])
	}
}

// patiently is eventually with a bound of its own, for what a schedule decides.
func (p *proxy) patiently(bound time.Duration, what string, cond func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(bound); !cond(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("still not so after %v: %s", bound, what)
		}
	}
}
