package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestAnyHost: a site for "*" gets what no other site has, under its own
// policy: one that demands client certificates demands them of every name.
func TestAnyHost(t *testing.T) {
	ca, clients := newCA(t), newCA(t)
	p := newProxy(t, `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
reject_unknown_sni: true
sites:
  - hosts: [open.test]
    routes: [{upstream: echo}]
  - hosts: ["*"]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem"}}
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`)
	p.issue(ca, "tls", pki.Request{Names: []string{"open.test", "any.test"}})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	p.start()
	p.waitReady()
	for name, version := range bothVersions {
		stranger, known := p.tlsClient(ca.Pool(), version), p.tlsClient(ca.Pool(), version, clientCert(t, clients, "known"))
		stranger.want(t, "TLS "+name+", an open site", "open.test", false)
		if _, err := stranger.request("any.test"); err == nil {
			t.Errorf("TLS %s: a client without certificate enters", name)
		}
		known.want(t, "TLS "+name+", a client with a certificate", "any.test", false)
		if _, err := known.request("unknown.test"); err == nil {
			t.Errorf("TLS %s: a name without a certificate is not refused", name)
		}
	}
	// A connection for the open site is none for the other.
	if got := misdirected(t, p, ca, "open.test", "any.test"); got != 421 {
		t.Errorf("a request for another site is answered with %d", got)
	}
}

// misdirected makes a request for a host on a connection for another name, and
// returns the status.
func misdirected(t *testing.T, p *proxy, ca *pki.CA, name, host string) int {
	t.Helper()
	conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: name, RootCAs: ca.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return statusOf(t, conn, host)
}

func statusOf(t *testing.T, conn *tls.Conn, host string) int {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
