package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// TestFleetBehindHAProxy is the set-up that docs/fleet.md describes: two
// replicas and a Redis behind a balancer that sends each connection to the
// next replica. At least 99 of 100 returning clients resume.
func TestFleetBehindHAProxy(t *testing.T) {
	t.Parallel()
	openssl := testtool.Require(t, "openssl", "openssl")
	f := startFleet(t, `"{{tls}}"`+"\n", `"{{tls}}"`+"\n    proxy_protocol: required\n    trusted_proxies: [127.0.0.1]\n")
	balancer := f.startHAProxy()
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			// With an odd number of clients each meets another replica each time.
			clients := make([]*tlsClient, 31)
			for i := range clients {
				clients[i] = f.client(version)
				clients[i].addr = balancer
				clients[i].want(t, "first visit", "open.test", false)
			}
			const rounds = 7
			resumed := 0
			for range rounds {
				f.a.queueEmpty()
				f.b.queueEmpty()
				for _, c := range clients {
					did, err := c.request("open.test")
					if err != nil {
						t.Fatal(err)
					}
					if did {
						resumed++
					}
				}
			}
			if all := rounds * len(clients); resumed*100 < all*99 {
				t.Errorf("%d of %d visits resumed, want 99 %%", resumed, all)
			}
			for _, p := range []*proxy{f.a, f.b} {
				if n := p.metric("tlsproxy_handshakes_total", fmt.Sprintf("version=%q", name), `resumed="true"`); n < float64(resumed)/3 {
					t.Errorf("a replica resumed %v of %d sessions: the balancer did not balance", n, resumed)
				}
			}

			session := filepath.Join(t.TempDir(), "session.pem")
			connect := func(flags ...string) string {
				args := append([]string{"s_client", "-connect", balancer, "-servername", "open.test", "-ign_eof",
					"-tls" + strings.ReplaceAll(name, ".", "_"), "-sess_out", session}, flags...)
				out := mustRun(t, "GET / HTTP/1.0\r\nHost: open.test\r\n\r\n", openssl, args...)
				f.a.queueEmpty()
				f.b.queueEmpty()
				return out
			}
			connect()
			for visit := range 4 {
				if out := connect("-sess_in", session); !strings.Contains(out, "Reused, TLSv"+name) {
					t.Errorf("visit %d of openssl did not resume:\n%s", visit, out)
				}
			}
		})
	}
	for _, p := range []*proxy{f.a, f.b} {
		if n := p.metric("tlsproxy_session_lookups_total", `result="hit_shared"`); n < 31 {
			t.Errorf("tlsproxy_session_lookups_total{result=hit_shared} = %v, want at least 31", n)
		}
	}
}

// hello returns the ClientHello with which c would resume, overheard on a
// connection that breaks.
func (f *fleet) hello(c *tlsClient, p *proxy, name string) []byte {
	f.t.Helper()
	raw, err := net.Dial("tcp", p.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	overheard := &cutConn{Conn: raw}
	config := c.config.Clone()
	config.ServerName = name
	if err := tls.Client(overheard, config).Handshake(); err == nil {
		f.t.Fatal("the handshake was to break")
	}
	return overheard.first
}

// replay sends a hello and waits for the server's answer.
func (p *proxy) replay(hello []byte) {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(hello); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		p.t.Fatalf("no answer to a hello: %v", err)
	}
}

// TestFleetSingleUse: a replayed hello does not use a handle up, the first
// completed resumption does, on every replica.
func TestFleetSingleUse(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "sessions: {}", "sessions: {reuse_window: single}")
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			c := f.client(version)
			eventually(t, "a session is shared", func() bool {
				c.session = nil
				f.visit(c, f.a, "open.test")
				f.a.queueEmpty()
				hello := f.hello(c, f.b, "open.test")
				for range 3 {
					f.a.replay(hello)
					f.b.replay(hello)
				}
				used := c.session
				if !f.visit(c, f.b, "open.test") {
					return false // it came before the session was in the store
				}
				for _, p := range []*proxy{f.a, f.b, f.a, f.b} {
					late := f.client(version)
					late.session = used
					if f.visit(late, p, "open.test") {
						t.Error("a handle that was used up resumed")
					}
				}
				return true
			})
			// The client itself goes on with the handle it was given.
			eventually(t, "the successor resumes on the other replica", func() bool {
				f.b.queueEmpty()
				f.a.queueEmpty()
				return f.visit(c, f.a, "open.test")
			})
		})
	}
}

// certificateName is issuer and serial number of a certificate as OpenSSL
// shows them to the operator.
func certificateName(t *testing.T, cert tls.Certificate) (issuer, serial string) {
	t.Helper()
	openssl := testtool.Require(t, "openssl", "openssl")
	pem := string(pki.CertificatePEM(cert.Leaf))
	issuer = mustRun(t, pem, openssl, "x509", "-noout", "-issuer", "-nameopt", "rfc2253")
	serial = mustRun(t, pem, openssl, "x509", "-noout", "-serial")
	return strings.TrimPrefix(strings.TrimSpace(issuer), "issuer="), strings.TrimPrefix(strings.TrimSpace(serial), "serial=")
}

// visitor is a client with a session that both replicas know.
type visitor struct {
	label, name string
	version     uint16
	certs       []tls.Certificate
	session     *tls.ClientSessionState
}

// resumes offers the visitor's first session at a replica.
func (f *fleet) resumes(v *visitor, p *proxy) bool {
	f.t.Helper()
	c := p.tlsClient(f.ca.Pool(), v.version, v.certs...)
	c.session = v.session
	return f.visit(c, p, v.name)
}

// TestFleetRevocation ends sessions on one replica, by the API and by the
// command, and looks at both: what is covered resumes nowhere, neither at once
// nor after a restart, and everything else goes on.
func TestFleetRevocation(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "sessions: {}", "sessions: {reuse_window: unlimited}")
	alice, bob := clientCert(t, f.clients, "alice"), clientCert(t, f.clients, "bob")
	issuer, serial := certificateName(t, alice)

	var visitors []*visitor
	for name, version := range bothVersions {
		for _, v := range []visitor{
			{label: "alice", name: "closed.test", certs: []tls.Certificate{alice}},
			{label: "open.test", name: "open.test"},
			{label: "twin.test", name: "twin.test"},
			{label: "bob", name: "closed.test", certs: []tls.Certificate{bob}},
		} {
			v.version = version
			eventually(t, v.label+" of TLS "+name+" is known to both replicas", func() bool {
				c := f.a.tlsClient(f.ca.Pool(), version, v.certs...)
				f.visit(c, f.a, v.name)
				v.session = c.session
				f.a.queueEmpty()
				return f.resumes(&v, f.b)
			})
			visitors = append(visitors, &v)
		}
	}
	// Each revocation covers one more of the visitors.
	gone := map[string]bool{}
	for i, step := range []struct {
		what   string
		covers string
		revoke func()
	}{
		{"a certificate, by command", "alice", func() {
			mustRun(t, "", binary, "sessions", "revoke", "-admin", f.a.admin, "certificate", issuer, serial)
		}},
		{"a server name, by API", "open.test", func() {
			if code, answer := f.b.post("/api/sessions/revoke", `{"kind":"sni","value":"OPEN.test"}`); code != 200 {
				t.Fatalf("revoking answered %d: %s", code, answer)
			}
		}},
		{"a site, by command", "twin.test", func() {
			mustRun(t, "", binary, "sessions", "revoke", "-config", filepath.Join(f.a.dir, "config.yaml"), "site", "open")
		}},
		{"everything, by API", "bob", func() {
			if code, answer := f.b.post("/api/sessions/revoke", `{"kind":"all"}`); code != 200 {
				t.Fatalf("revoking answered %d: %s", code, answer)
			}
		}},
	} {
		for _, v := range visitors {
			if !gone[v.label] && !f.resumes(v, f.a) {
				t.Errorf("before revoking %s: the session of %s does not resume", step.what, v.label)
			}
		}
		step.revoke()
		gone[step.covers] = true
		inForce := float64(i + 1)
		if step.covers == "bob" {
			inForce = 1 // that of everything takes the place of the others
		}
		for _, p := range []*proxy{f.a, f.b} {
			eventually(t, "the revocation is known", func() bool { return p.metric("tlsproxy_session_revocations") == inForce })
			for _, v := range visitors {
				if got := f.resumes(v, p); got == gone[v.label] {
					t.Errorf("after revoking %s: the session of %s resumed %v", step.what, v.label, got)
				}
			}
		}
	}

	revoked := func(p *proxy, when string) {
		t.Helper()
		before := p.metric("tlsproxy_session_lookups_total", `result="revoked"`)
		for _, v := range visitors {
			if f.resumes(v, p) {
				t.Errorf("%s the session of %s resumed", when, v.label)
			}
		}
		if n := p.metric("tlsproxy_session_lookups_total", `result="revoked"`) - before; n != float64(len(visitors)) {
			t.Errorf("%s %v sessions were refused as revoked, want %d", when, n, len(visitors))
		}
	}
	f.b.restart()
	f.synced()
	revoked(f.b, "after a restart")

	// A replica without a record of its own learns from the store.
	f.b.signal(syscall.SIGTERM)
	f.b.wait()
	if err := os.RemoveAll(filepath.Join(f.b.dir, "state")); err != nil {
		t.Fatal(err)
	}
	f.b.start()
	f.b.waitReady()
	f.synced()
	revoked(f.b, "on a replica without state")

	// The replica's own record is enough, should the store forget.
	if err := f.redis.client.Del(t.Context(), "tlsproxy:{r}:records").Err(); err != nil {
		t.Fatal(err)
	}
	f.a.restart()
	f.synced()
	revoked(f.a, "after a restart with the store's records lost")
}

// TestFleetKeyRotation rotates the key file as the docs say, distribute, then
// promote, and loses no session; without the old key its sessions are gone,
// and that is all.
func TestFleetKeyRotation(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "sessions: {}", "sessions: {reuse_window: unlimited}")
	old, err := os.ReadFile(filepath.Join(f.a.dir, "store.keys"))
	if err != nil {
		t.Fatal(err)
	}
	fresh := newKeyLine() + "\n"
	keys := func(p *proxy, text string, n float64) {
		t.Helper()
		p.write("store.keys", text)
		p.signal(syscall.SIGHUP)
		eventually(t, "the key file is read", func() bool {
			details := p.status()["store"].(map[string]any)["details"].(map[string]any)
			return details["keys"] == n && strings.HasPrefix(text, fresh) == (details["active_key"] != f.activeKey)
		})
	}
	f.activeKey = f.a.status()["store"].(map[string]any)["details"].(map[string]any)["active_key"]

	before := &visitor{name: "open.test", version: tls.VersionTLS12, session: f.shares(f.a, tls.VersionTLS12).session}
	step := func(what string) {
		t.Helper()
		for _, p := range []*proxy{f.a, f.b} {
			for _, version := range bothVersions {
				f.shares(p, version)
			}
			if !f.resumes(before, p) {
				t.Errorf("%s: the session of before does not resume", what)
			}
		}
	}
	keys(f.a, string(old)+fresh, 2)
	step("distributed to one")
	keys(f.b, string(old)+fresh, 2)
	keys(f.a, fresh+string(old), 2)
	step("promoted on one")
	keys(f.b, fresh+string(old), 2)
	step("promoted on both")

	f.a.write("store.keys", "not a key\n")
	f.a.signal(syscall.SIGHUP)
	eventually(t, "the broken key file shows", func() bool { return f.a.metric("tlsproxy_store_key_file_failing") == 1 })
	step("with a broken key file")

	after := f.shares(f.a, tls.VersionTLS13)
	keys(f.a, fresh, 1)
	keys(f.b, fresh, 1)
	if n := f.a.metric("tlsproxy_store_key_file_failing"); n != 0 {
		t.Errorf("tlsproxy_store_key_file_failing = %v after the file was mended", n)
	}
	f.shares(f.a, tls.VersionTLS12)
	if f.resumes(before, f.a) {
		t.Error("a handle of the key that was taken away resumed")
	}
	if !f.visit(after, f.a, "open.test") {
		t.Error("a session of the new key did not survive the end of the old one")
	}
}
