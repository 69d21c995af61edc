package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

const bindingConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - name: open
    hosts: [open.test, twin.test]
    routes: [{upstream: echo}]
  - name: closed
    hosts: [closed.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem"}}
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// tlsClient is a TLS client that keeps its sessions in a cache under its
// control: crypto/tls keys them by server name, this one by nothing, so that a
// session can be offered where it does not belong.
type tlsClient struct {
	addr    string
	from    net.IP // of loopback; nil: any
	config  *tls.Config
	session *tls.ClientSessionState
}

// Get offers the one session there is, whatever the name.
func (c *tlsClient) Get(string) (*tls.ClientSessionState, bool) { return c.session, c.session != nil }

// Put keeps the latest session.
func (c *tlsClient) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		c.session = s
	}
}

func (p *proxy) tlsClient(pool *x509.CertPool, version uint16, certs ...tls.Certificate) *tlsClient {
	c := &tlsClient{addr: p.addr}
	c.config = &tls.Config{
		RootCAs: pool, MinVersion: version, MaxVersion: version, Certificates: certs, ClientSessionCache: c,
		// The session carries the name of the server it was made with; here it
		// is to be offered to another.
		InsecureSkipVerify: true,
	}
	return c
}

// dial makes a handshake under a server name. The connection is bounded in time.
func (c *tlsClient) dial(name string) (*tls.Conn, error) {
	config := c.config.Clone()
	config.ServerName = name
	dialer := &net.Dialer{Timeout: patience}
	if c.from != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: c.from}
	}
	conn, err := tls.DialWithDialer(dialer, "tcp", c.addr, config)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, err
}

// request makes one request under a server name and reports whether its
// connection resumed.
func (c *tlsClient) request(name string) (resumed bool, err error) {
	conn, err := c.dial(name)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", name)
	answer, err := io.ReadAll(conn)
	if err != nil {
		return false, err
	}
	if !strings.HasPrefix(string(answer), "HTTP/1.0 200") && !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		return false, fmt.Errorf("answer %q", firstLine(string(answer)))
	}
	return conn.ConnectionState().DidResume, nil
}

// want makes a request and fails the test unless it ends as it should.
func (c *tlsClient) want(t *testing.T, what, name string, resumed bool) {
	t.Helper()
	got, err := c.request(name)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if got != resumed {
		t.Errorf("%s: resumed %v, want %v", what, got, resumed)
	}
}

func startBinding(t *testing.T) (p *proxy, ca *pki.CA, clients *pki.CA) {
	t.Helper()
	ca, clients = newCA(t), newCA(t)
	p = newProxy(t, bindingConfig)
	p.issue(ca, "tls", pki.Request{Names: []string{"open.test", "twin.test", "closed.test"}})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	p.start()
	p.waitReady()
	return p, ca, clients
}

func clientCert(t *testing.T, ca *pki.CA, name string) tls.Certificate {
	t.Helper()
	cert, err := ca.Issue(pki.Request{Names: []string{name}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	return *cert
}

var bothVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// TestSessionsAreBound: a session resumes under its own name and site alone,
// opens no door, and its loss never costs more than a full handshake.
func TestSessionsAreBound(t *testing.T) {
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			p, ca, clients := startBinding(t)
			anonymous := p.tlsClient(ca.Pool(), version)
			anonymous.want(t, "first", "open.test", false)
			anonymous.want(t, "same name", "open.test", true)
			anonymous.want(t, "same name in other letters", "OPEN.test", true)
			anonymous.want(t, "other name of the same site", "twin.test", false)
			anonymous.want(t, "back under the first name", "open.test", false)
			if _, err := anonymous.request("closed.test"); err == nil {
				t.Error("a session without a client certificate entered a site that requires one")
			}
			anonymous.want(t, "after the refusal", "open.test", true)

			known := p.tlsClient(ca.Pool(), version, clientCert(t, clients, "alice"))
			known.want(t, "first with a certificate", "closed.test", false)
			known.want(t, "resumed with a certificate", "closed.test", true)
			withoutCert := p.tlsClient(ca.Pool(), version)
			withoutCert.session = known.session
			withoutCert.want(t, "session of the closed site at the open one", "open.test", false)

			if n := p.metric("tlsproxy_session_lookups_total", `result="sni"`); n < 2 {
				t.Errorf("tlsproxy_session_lookups_total{result=sni} = %v, want at least 2", n)
			}
		})
	}
}

// TestCAChangeEndsSessions: the file of client CAs is followed; sessions made
// under the old one end, and clients of the old CA stay out.
func TestCAChangeEndsSessions(t *testing.T) {
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			p, ca, clients := startBinding(t)
			alice := p.tlsClient(ca.Pool(), version, clientCert(t, clients, "alice"))
			alice.want(t, "first", "closed.test", false)
			alice.want(t, "second", "closed.test", true)

			others := newCA(t)
			replace(t, filepath.Join(p.dir, "clients.pem"), pki.CertificatePEM(others.Certificate))
			eventually(t, "clients of the old CA stay out", func() bool {
				_, err := alice.request("closed.test")
				return err != nil
			})
			bob := p.tlsClient(ca.Pool(), version, clientCert(t, others, "bob"))
			bob.want(t, "client of the new CA", "closed.test", false)

			// Both CAs: alice may come in again, by a full handshake.
			replace(t, filepath.Join(p.dir, "clients.pem"), pki.CertificatePEM(others.Certificate, clients.Certificate))
			eventually(t, "the old CA is back", func() bool {
				resumed, err := alice.request("closed.test")
				if err == nil && resumed {
					t.Error("a session made under another set of CAs resumed")
				}
				return err == nil
			})

			// A broken file closes the site, and no other.
			replace(t, filepath.Join(p.dir, "clients.pem"), []byte("not a certificate\n"))
			eventually(t, "the site with the broken file is closed", func() bool {
				_, err := alice.request("closed.test")
				return err != nil
			})
			p.tlsClient(ca.Pool(), version).want(t, "the open site beside it", "open.test", false)
			if n := p.metric("tlsproxy_handshake_failures_total", `reason="client_auth_unavailable"`); n < 1 {
				t.Errorf("tlsproxy_handshake_failures_total{reason=client_auth_unavailable} = %v", n)
			}
		})
	}
}

// replace writes a file by rename.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".next", data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
}

// cutConn ends a handshake before the client's Finished: it lets the first
// write through, which is the hello, and breaks at the second.
type cutConn struct {
	net.Conn
	writes int
	first  []byte
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.writes++; c.writes > 1 {
		c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	c.first = append(c.first, b...)
	return c.Conn.Write(b)
}

// TestUnfinishedHandshakesStoreNothing: a TLS 1.3 server sends its ticket
// before the client has proved anything.
func TestUnfinishedHandshakesStoreNothing(t *testing.T) {
	p, ca, _ := startBinding(t)
	for range 5 {
		raw, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(&cutConn{Conn: raw}, &tls.Config{ServerName: "open.test", RootCAs: ca.Pool(), MinVersion: tls.VersionTLS13})
		if err := conn.Handshake(); err == nil {
			t.Fatal("the handshake was to break")
		}
	}
	eventually(t, "five failures are counted", func() bool {
		return p.metric("tlsproxy_handshake_failures_total", `reason="eof"`) == 5
	})
	if n := p.metric("tlsproxy_cache_entries", `cache="session"`); n != 0 {
		t.Errorf("%v sessions are stored, want none", n)
	}
}

// TestReplayedHelloTakesNothingAway sends a captured ClientHello again: the
// session that it offers stays good for its owner.
func TestReplayedHelloTakesNothingAway(t *testing.T) {
	p, ca, _ := startBinding(t)
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			victim := p.tlsClient(ca.Pool(), version)
			victim.want(t, "first", "open.test", false)

			// The victim's next hello, overheard on a connection that breaks.
			raw, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			overheard := &cutConn{Conn: raw}
			config := victim.config.Clone()
			config.ServerName = "open.test"
			tls.Client(overheard, config).Handshake()
			for range 3 {
				conn, err := net.Dial("tcp", p.addr)
				if err != nil {
					t.Fatal(err)
				}
				conn.Write(overheard.first)
				conn.SetReadDeadline(time.Now().Add(patience))
				io.ReadFull(conn, make([]byte, 5)) // the server has answered
				conn.Close()
			}
			victim.want(t, "after the replays", "open.test", true)
		})
	}
}

// TestMisdirected: a request for a host of another policy than the
// connection's is refused with 421, so that client authentication cannot be
// walked around by the Host header.
func TestMisdirected(t *testing.T) {
	curl := testtool.Require(t, "curl", "curl")
	p, _, _ := startBinding(t)
	_, port, _ := net.SplitHostPort(p.addr)
	for host, want := range map[string]string{"open.test": "200", "twin.test": "200", "closed.test": "421", "unknown.test": "404"} {
		for _, proto := range []string{"--http1.1", "--http2"} {
			out := mustRun(t, "", curl, "-sk", proto, "--resolve", "open.test:"+port+":127.0.0.1", "-o", os.DevNull,
				"-w", "%{http_code}", "-H", "Host: "+host, "https://open.test:"+port+"/")
			if out != want {
				t.Errorf("curl %s with Host %s on a connection for open.test: %s, want %s", proto, host, out, want)
			}
		}
	}
}

// TestStricterRulesReachOpenConnections: a connection that was made under laxer rules
// for client certificates gets 421 after a reload and is closed, and the next one is
// judged by the new rules; rules that stay what they are close nothing.
func TestStricterRulesReachOpenConnections(t *testing.T) {
	const strict = "mode: require"
	for name, test := range map[string]struct{ before, after string }{
		"a certificate is required":    {"mode: verify_if_given", strict},
		"alice is on no list any more": {strict, strict + ", allow: ['cn:bob']"},
	} {
		t.Run(name, func(t *testing.T) {
			p, ca, clients := startBinding(t)
			set := func(rules string) {
				p.writeConfig(strings.Replace(bindingConfig, strict, rules, 1))
				p.mustReload()
			}
			set(test.before)
			for _, h2 := range []bool{false, true} {
				client := p.client(ca.Pool(), h2)
				if strings.Contains(test.before, strict) {
					client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{clientCert(t, clients, "alice")}
				}
				get := func() (int, error) {
					res, err := client.Get("https://closed.test/")
					if err != nil {
						return 0, err
					}
					defer res.Body.Close()
					_, err = io.Copy(io.Discard, res.Body)
					return res.StatusCode, err
				}
				wantStatus := func(want int) {
					t.Helper()
					if status, err := get(); status != want || err != nil {
						t.Errorf("HTTP/2 %v: %d, %v; want %d", h2, status, err, want)
					}
				}
				wantStatus(200)
				set(test.before)
				opened := p.metric("tlsproxy_handshakes_total")
				wantStatus(200)
				if now := p.metric("tlsproxy_handshakes_total"); now != opened {
					t.Errorf("HTTP/2 %v: a reload without a change cost the client its connection", h2)
				}
				set(test.after)
				wantStatus(421)
				if status, err := get(); err == nil {
					t.Errorf("HTTP/2 %v: the next connection was let in: %d", h2, status)
				}
				set(test.before)
			}
		})
	}
}
