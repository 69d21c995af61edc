package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// kept is a connection that outlives its listener.
type kept struct {
	do     func(*http.Request) (*http.Response, error)
	closed func() bool // no more requests, by the server's word
}

// keep opens a connection and makes a first request for a host on it.
func (p *proxy) keep(pool *x509.CertPool, proto, host string) kept {
	p.t.Helper()
	conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: host, RootCAs: pool, NextProtos: []string{proto}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	var k kept
	if proto == "h2" {
		protocols := new(http.Protocols)
		protocols.SetHTTP2(true)
		transport := &http.Transport{
			Protocols:      protocols,
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		}
		cc, err := transport.NewClientConn(p.t.Context(), "https", p.addr)
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { cc.Close() })
		k = kept{cc.RoundTrip, func() bool { return cc.Err() != nil || cc.Available() == 0 }}
	} else {
		in := bufio.NewReader(conn)
		k.do = func(r *http.Request) (*http.Response, error) {
			if err := r.Write(conn); err != nil {
				return nil, err
			}
			return http.ReadResponse(in, r)
		}
		k.closed = func() bool {
			_, err := in.ReadByte()
			return err == io.EOF
		}
	}
	if code, _ := k.get(p.t, host, "/first"); code != http.StatusOK {
		p.t.Fatalf("the first request for %s was answered with %d", host, code)
	}
	return k
}

// get makes a request and returns status and body.
func (k kept) get(t *testing.T, host, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("GET", "https://"+host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := k.do(r)
	if err != nil {
		t.Fatalf("%s%s: %v", host, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// departedConfig has a site that stays, one whose policy a reload changes, one
// that it removes, one that it splits off a wildcard, and one that only another
// listener serves.
const departedConfig = `
listeners:
  - address: "{{tls}}"
  - address: "OTHER"
access_log: {output: stdout}
certificates:
  - local: {hosts: [stays.test, stricter.test, removed.test, "*.wild.test", elsewhere.test]}
sites:
  - {hosts: [stays.test], listeners: ["{{tls}}"], routes: [{upstream: echo}]}
  - {hosts: [stricter.test], listeners: ["{{tls}}"], routes: [{upstream: echo}]}
  - {hosts: [removed.test], listeners: ["{{tls}}"], routes: [{upstream: echo}]}
  - {hosts: ["*.wild.test"], listeners: ["{{tls}}"], routes: [{upstream: echo}]}
  - {hosts: [elsewhere.test], listeners: ["OTHER"], routes: [{upstream: echo}]}
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// TestConnectionsOutliveTheirListener: a connection whose listener a reload
// moved gets one more answer, by the sites and policies in force, with a record
// and an ID as any other, and is told to go.
func TestConnectionsOutliveTheirListener(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		for _, reloads := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, reloads %d", proto, reloads), func(t *testing.T) { testDeparted(t, proto, reloads) })
		}
	}
}

func testDeparted(t *testing.T, proto string, reloads int) {
	config := strings.ReplaceAll(departedConfig, "OTHER", net.JoinHostPort("127.0.0.1", fmt.Sprint(testtool.FreePort(t))))
	p := startProxy(t, config)
	_, pool := p.devCA()
	tests := []struct {
		host, target string // of the connection, of the request after the reload
		want         int
	}{
		{"stays.test", "stays.test", 200},
		{"stricter.test", "stricter.test", 421},
		{"removed.test", "removed.test", 404},
		{"sub.wild.test", "sub.wild.test", 200},
		{"sub.wild.test", "split.wild.test", 421},
		{"stays.test", "elsewhere.test", 421},
	}
	conns := make([]kept, len(tests))
	for i, tt := range tests {
		conns[i] = p.keep(pool, proto, tt.host)
	}

	config = strings.Replace(config, "{hosts: [stricter.test],", `{hosts: [stricter.test], tls: {min_version: "1.3"},`, 1)
	config = strings.Replace(config, "{hosts: [removed.test],", "{hosts: [split.wild.test],", 1)
	for range reloads {
		p.addr = net.JoinHostPort("127.0.0.1", fmt.Sprint(testtool.FreePort(t)))
		p.writeConfig(config)
		p.mustReload()
	}
	for i, tt := range tests {
		path := fmt.Sprintf("/after/%d", i)
		code, body := conns[i].get(t, tt.target, path)
		if code != tt.want {
			t.Errorf("%s on the connection of %s: status %d, want %d", tt.target, tt.host, code, tt.want)
		}
		if !strings.Contains(strings.ToLower(body), "request") || !strings.Contains(body, path) && code == http.StatusOK {
			t.Errorf("%s on the connection of %s: no request ID in %q", tt.target, tt.host, body)
		}
		eventually(t, "the client is told to go", conns[i].closed)
	}
	for i := range tests { // the log is written in batches
		record := fmt.Sprintf(`"path":"/after/%d"`, i)
		eventually(t, "there is a record with "+record, func() bool { return strings.Contains(p.stdout.String(), record) })
	}
}
