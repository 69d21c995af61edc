package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestRevokedIsReplaced: a certificate of an ACME CA that its responder calls
// revoked loses its staple and is replaced, with a new key, once: starts after
// that order nothing.
func TestRevokedIsReplaced(t *testing.T) {
	t.Parallel()
	var responder atomic.Pointer[pki.Responder]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { responder.Load().ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	p := newProxy(t, "")
	ca := startPebble(t, p, pebbleOptions{responder: server.URL})
	responder.Store(pki.NewResponder(ca.issuer(t), pki.ResponderOptions{}))
	p.writeConfig(strings.NewReplacer("DIRECTORY", ca.directory).Replace(`
listeners:
  - address: "{{tls}}"
http: {address: "{{http}}"}
certificates:
  - acme: {hosts: [one.test], directory: "DIRECTORY", ca_file: "{{dir}}/pebble.pem", reuse_key: true}
sites:
  - hosts: [one.test]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`))
	pool := ca.pool(t)
	look := func() (leaf *x509.Certificate, staple []byte) {
		conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "one.test", RootCAs: pool})
		if err != nil {
			return nil, nil
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0], conn.ConnectionState().OCSPResponse
	}
	p.start()
	p.waitReady()
	eventually(t, "the certificate is served with a staple", func() bool { _, staple := look(); return staple != nil })
	old, _ := look()

	// The next start finds a response whose time of refresh has come.
	p.stopWithOverdue(old)
	responder.Load().Revoke(old.SerialNumber, time.Now(), 1)
	p.start()
	p.waitReady()
	eventually(t, "another certificate is served with a staple", func() bool {
		leaf, staple := look()
		return leaf != nil && !leaf.Equal(old) && staple != nil
	})
	replaced, _ := look()
	if string(replaced.RawSubjectPublicKeyInfo) == string(old.RawSubjectPublicKeyInfo) {
		t.Error("the key of the revoked certificate is used again")
	}
	if n := p.count("certificate is revoked"); n != 1 {
		t.Errorf("the log says %d times that it is revoked", n)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
	p.start()
	p.waitReady()
	if leaf, staple := look(); leaf == nil || !leaf.Equal(replaced) || staple == nil {
		t.Error("after another start something else is served")
	}
	if n := ca.issued(); n != 2 {
		t.Errorf("%d certificates were issued; want 2", n)
	}
}

// stopWithOverdue stops the proxy and makes the stored response of a
// certificate look received so long ago that it is fetched anew at the start.
func (p *proxy) stopWithOverdue(leaf *x509.Certificate) {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.wait()
	past := time.Now().Add(-10 * time.Hour)
	if err := os.Chtimes(p.stapleFile(leaf, ".der"), past, past); err != nil {
		p.t.Fatal(err)
	}
}
