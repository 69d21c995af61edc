package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// withTicket is the client's session under another handle.
func withTicket(t *testing.T, s *tls.ClientSessionState, change func(ticket []byte) []byte) *tls.ClientSessionState {
	t.Helper()
	ticket, state, err := s.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := state.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if state, err = tls.ParseSessionState(encoded); err != nil { // a copy, as it will hold the ticket
		t.Fatal(err)
	}
	changed, err := tls.NewResumptionState(change(bytes.Clone(ticket)), state)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// TestMalformedHandles offers handles of every wrong kind: each is a full
// handshake, and counted as malformed.
func TestMalformedHandles(t *testing.T) {
	t.Parallel()
	p, ca, _ := startBinding(t)
	another, _, _ := startBinding(t)
	random := func(n int) func([]byte) []byte {
		return func([]byte) []byte {
			b := make([]byte, n)
			rand.Read(b)
			return b
		}
	}
	type malformed struct {
		name   string
		change func([]byte) []byte
	}
	handles := []malformed{
		{"1 byte", random(1)}, {"31 bytes", random(31)}, {"32 random bytes", random(32)}, {"33 bytes", random(33)},
		{"16,000 bytes", random(16_000)}, {"60,000 bytes", random(60_000)},
		{"a byte short", func(b []byte) []byte { return b[:len(b)-1] }},
		{"a byte long", func(b []byte) []byte { return append(b, 0) }},
		{"twice", func(b []byte) []byte { return append(b, b...) }},
	}
	for bit := range 32 {
		handles = append(handles, malformed{fmt.Sprintf("a bit of byte %d", bit), func(b []byte) []byte {
			b[bit] ^= 1 << (bit % 8)
			return b
		}})
	}
	for name, version := range bothVersions {
		owner := p.tlsClient(ca.Pool(), version)
		owner.want(t, "first visit", "open.test", false)
		stranger := another.tlsClient(ca.Pool(), version)
		stranger.want(t, "first visit to another process", "open.test", false)
		foreign, _, err := stranger.session.ResumptionState()
		if err != nil {
			t.Fatal(err)
		}
		before := p.metric("tlsproxy_session_lookups_total", `result="malformed"`)
		for _, tt := range append(handles, malformed{"another process's", func([]byte) []byte { return foreign }}) {
			c := p.tlsClient(ca.Pool(), version)
			c.session = withTicket(t, owner.session, tt.change)
			c.want(t, "TLS "+name+", "+tt.name, "open.test", false)
		}
		if n := p.metric("tlsproxy_session_lookups_total", `result="malformed"`) - before; n != float64(len(handles)+1) {
			t.Errorf("TLS %s: %v lookups were malformed, want %d", name, n, len(handles)+1)
		}
		if version == tls.VersionTLS12 { // TLS 1.3 has no empty handles: RFC 8446, section 4.2.11
			c := p.tlsClient(ca.Pool(), version)
			c.session = withTicket(t, owner.session, random(0))
			c.want(t, "an empty handle", "open.test", false)
		}
		owner.want(t, "TLS "+name+": the session itself", "open.test", true)
	}
}

// TestAlteredOpenSSLSession alters a session file of openssl as a client would
// find it after a disk error.
func TestAlteredOpenSSLSession(t *testing.T) {
	t.Parallel()
	openssl := testtool.Require(t, "openssl", "openssl")
	p := startProxy(t, echoConfig)
	for _, version := range []string{"1.2", "1.3"} {
		file := filepath.Join(t.TempDir(), "session.pem")
		connect := func(flags ...string) string {
			args := append([]string{"s_client", "-connect", p.addr, "-servername", "localhost", "-ign_eof",
				"-tls" + strings.ReplaceAll(version, ".", "_")}, flags...)
			return mustRun(t, "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", openssl, args...)
		}
		connect("-sess_out", file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		if block == nil {
			t.Fatalf("no PEM in %q", text)
		}
		// The ticket is an OCTET STRING of 32 bytes behind the tag [10].
		at := bytes.Index(block.Bytes, []byte{0xaa, 0x22, 0x04, 0x20})
		if at < 0 {
			t.Fatalf("openssl's session holds no ticket of 32 bytes: %x", block.Bytes)
		}
		block.Bytes[at+4+20] ^= 0x10
		if err := os.WriteFile(file+".altered", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := connect("-sess_in", file+".altered"); !strings.Contains(out, "New, TLSv"+version) || !strings.Contains(out, "200 OK") {
			t.Errorf("an altered session was not a full handshake with an answer:\n%s", out)
		}
		if out := connect("-sess_in", file); !strings.Contains(out, "Reused, TLSv"+version) {
			t.Errorf("the session as it was did not resume:\n%s", out)
		}
	}
	if n := p.metric("tlsproxy_session_lookups_total", `result="malformed"`); n != 2 {
		t.Errorf("tlsproxy_session_lookups_total{result=malformed} = %v, want 2", n)
	}
}

// loopback is an address of loopback of its own for each client.
func loopback(i int) net.IP { return net.IPv4(127, 1, byte(i/250), byte(1+i%250)) }

// TestOneClientDoesNotPushOthersOut: a client that makes many more full
// handshakes than the cache holds costs 100 others none of their sessions.
func TestOneClientDoesNotPushOthersOut(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	p := newProxy(t, filesConfig+"\nsessions: {capacity: 500, client_share: 0.25}\n")
	p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
	p.start()
	p.waitReady()
	others := make([]*tlsClient, 100)
	for i := range others {
		others[i] = p.tlsClient(ca.Pool(), []uint16{tls.VersionTLS12, tls.VersionTLS13}[i%2])
		others[i].from = loopback(1 + i)
		others[i].want(t, "first visit", "localhost", false)
	}

	const flood = 3000
	var left atomic.Int64
	left.Store(flood)
	var flooding sync.WaitGroup
	for i := range 4 {
		flooding.Go(func() {
			c := p.tlsClient(ca.Pool(), []uint16{tls.VersionTLS12, tls.VersionTLS13}[i%2])
			c.from = loopback(0)
			for left.Add(-1) >= 0 {
				c.session = nil
				conn, err := c.dial("localhost")
				if err != nil {
					t.Error(err)
					return
				}
				conn.Close()
			}
		})
	}
	flooding.Wait()
	eventually(t, "the flood is counted", func() bool {
		return p.metric("tlsproxy_handshakes_total", `resumed="false"`) == flood+float64(len(others))
	})
	for i, c := range others {
		c.want(t, fmt.Sprintf("client %d after the flood", i), "localhost", true)
	}
	if n := p.metric("tlsproxy_session_share_limited_total"); n != flood-500/4 {
		t.Errorf("tlsproxy_session_share_limited_total = %v, want %d, all but a quarter of the cache", n, flood-500/4)
	}
	if n := p.metric("tlsproxy_session_clients"); n != float64(len(others)+1) {
		t.Errorf("tlsproxy_session_clients = %v, want %d", n, len(others)+1)
	}
	if n := p.metric("tlsproxy_cache_evictions_total", `cache="session"`, `reason="capacity"`); n != 0 {
		t.Errorf("%v sessions were evicted for room, want none", n)
	}
}

// TestHandshakeRate limits one address and not the others.
func TestHandshakeRate(t *testing.T) {
	t.Parallel()
	p := startProxy(t, echoConfig+"\nlimits: {handshake_rate: {per_second: 0.01, burst: 5}}\n")
	_, pool := p.devCA()
	greedy := p.tlsClient(pool, tls.VersionTLS13)
	greedy.from = loopback(0)
	for i := range 20 {
		// Resumed handshakes count like full ones.
		if _, err := greedy.request("localhost"); (err == nil) != (i < 5) {
			t.Errorf("handshake %d of an address with a burst of 5 ended with %v", i, err)
		}
	}
	modest := p.tlsClient(pool, tls.VersionTLS13)
	modest.from = loopback(1)
	modest.want(t, "another address", "localhost", false)
	eventually(t, "the refusals are counted", func() bool {
		return p.metric("tlsproxy_handshake_failures_total", `reason="rate_limited"`) == 15
	})
}

// TestReturningClients is the short form of the soak: every return resumes,
// and however often clients return, the cache holds two sessions of each at
// most.
func TestReturningClients(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	p := newProxy(t, filesConfig+"\nsessions: {reuse_window: 1s}\n")
	p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
	p.start()
	p.waitReady()
	const clients, returns = 100, 12
	var all []*tlsClient
	for i := range clients {
		c := p.tlsClient(ca.Pool(), []uint16{tls.VersionTLS12, tls.VersionTLS13}[i%2])
		c.from = loopback(i)
		c.want(t, "first visit", "localhost", false)
		all = append(all, c)
	}
	for range returns {
		for i, c := range all {
			if resumed, err := c.request("localhost"); err != nil || !resumed {
				t.Fatalf("client %d: resumed %v, %v", i, resumed, err)
			}
		}
		// docs/fleet.md: 380 bytes for each session.
		if n := p.metric("tlsproxy_cache_bytes", `cache="session"`); n > 2*clients*380 {
			t.Fatalf("the sessions of %d clients take %v bytes", clients, n)
		}
	}
	if n := p.metric("tlsproxy_cache_entries", `cache="session"`); n > 2*clients {
		t.Errorf("%v sessions are held of %d clients, want two each at most", n, clients)
	}
}

const matrixConfig = `
listeners:
  - address: "{{tls}}"
  - address: "{{http}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - hosts: [localhost]
    tls: {http2: on}
    routes: [{upstream: echo}]
  - name: off
    hosts: [off.test]
    tls: {resumption: off}
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// TestSessionsFollowTheirPolicy changes, under clients with sessions, what
// those are bound to: by files and by reloads. What decides who may come in
// ends them; what does not, does not; and what was changed back is as before.
func TestSessionsFollowTheirPolicy(t *testing.T) {
	t.Parallel()
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newCA(t)
			key, err := pki.GenerateKey(pki.ECDSAP256)
			if err != nil {
				t.Fatal(err)
			}
			names := []string{"localhost", "off.test"}
			p := newProxy(t, matrixConfig)
			p.issue(ca, "tls", pki.Request{Names: names, Key: key})
			p.start()
			p.waitReady()
			c := p.tlsClient(ca.Pool(), version)
			c.want(t, "first visit", "localhost", false)

			c.addr = p.http
			c.want(t, "another listener of the same policy", "localhost", true)
			c.addr = p.addr
			c.config.NextProtos = []string{"http/1.1"}
			c.want(t, "another ALPN of the client", "localhost", true)
			c.config.NextProtos = nil

			off := p.tlsClient(ca.Pool(), version)
			for range 2 {
				off.want(t, "a site without resumption", "off.test", false)
			}
			if off.session != nil {
				t.Error("a site without resumption sent a ticket")
			}

			swap := func(what string, r pki.Request, resumed bool) {
				t.Helper()
				cert := p.issue(ca, "tls", r)
				eventually(t, "the new certificate is served", func() bool {
					serial, err := p.servedSerial(ca.Pool(), "localhost")
					return err == nil && serial.Cmp(cert.Leaf.SerialNumber) == 0
				})
				c.want(t, what, "localhost", resumed)
			}
			swap("renewed with the same key", pki.Request{Names: names, Key: key}, true)
			before := p.metric("tlsproxy_session_lookups_total", `result="key"`)
			swap("with another key", pki.Request{Names: names}, false)
			if n := p.metric("tlsproxy_session_lookups_total", `result="key"`) - before; n != 1 {
				t.Errorf("tlsproxy_session_lookups_total{result=key} grew by %v, want 1", n)
			}
			c.want(t, "again under the new key", "localhost", true)

			reload := func(what, text string, resumed bool) {
				t.Helper()
				p.writeConfig(text)
				p.mustReload()
				c.want(t, what, "localhost", resumed)
			}
			saved := c.session
			reload("unchanged", matrixConfig, true)
			reload("HTTP/2 switched off", strings.Replace(matrixConfig, "http2: on", "http2: off", 1), false)
			c.session = saved
			reload("HTTP/2 as it was", matrixConfig, true)
			reload("routes and limits changed", strings.Replace(matrixConfig, "{upstream: echo}", "{path: /, upstream: echo, body: 1MiB}", 1)+
				"\ntimeouts: {idle: 1m}\n", true)
			reload("another site changed", strings.Replace(matrixConfig, "resumption: off", `min_version: "1.3"`, 1), true)
			reload("TLS version changed", strings.Replace(matrixConfig, "http2: on", `http2: on, max_version: "`+name+`"`, 1),
				name == "1.3") // 1.3 is the highest anyway
			c.addr = p.http
			reload("at a listener with PROXY headers", strings.Replace(matrixConfig, `"{{http}}"`, `"{{http}}"`+
				"\n    proxy_protocol: optional\n    trusted_proxies: [10.0.0.0/8]", 1), false)
		})
	}
}

// TestLifetimeEnds: a session ends with its lifetime, however often it was
// resumed.
func TestLifetimeEnds(t *testing.T) {
	t.Parallel()
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newCA(t)
			p := newProxy(t, filesConfig+"\nsessions: {lifetime: 3s, reuse_window: 1s}\n")
			p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
			p.start()
			p.waitReady()
			c := p.tlsClient(ca.Pool(), version)
			began := time.Now()
			c.want(t, "first visit", "localhost", false)
			authenticated := time.Now()
			for resumptions := 0; ; resumptions++ {
				before := time.Now()
				resumed, err := c.request("localhost")
				if err != nil {
					t.Fatal(err)
				}
				if !resumed {
					if since := time.Since(began); since < 3*time.Second {
						t.Errorf("the session ended after %v, want 3 s", since)
					}
					if resumptions == 0 {
						t.Error("the session never resumed")
					}
					break
				}
				if since := before.Sub(authenticated); since > 3*time.Second {
					t.Fatalf("resumed %v after the full handshake, want 3 s at most", since)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}

// TestRevocationWithoutAStore: records outlive a restart in state_dir, and a
// damaged file ends everything that was made before.
func TestRevocationWithoutAStore(t *testing.T) {
	t.Parallel()
	p, ca, _ := startBinding(t)
	for _, version := range bothVersions {
		c := p.tlsClient(ca.Pool(), version)
		c.want(t, "first visit", "open.test", false)
		saved := c.session
		mustRun(t, "", binary, "sessions", "revoke", "-admin", p.admin, "sni", "open.test")
		c.session = saved
		c.want(t, "right after the revocation", "open.test", false)
		c.want(t, "authenticated after it", "open.test", true)
	}
	if out, err := run(t, "", binary, "sessions", "revoke", "-admin", p.admin, "sni", "*.open.test"); err == nil || !strings.Contains(out, "revoke by site") {
		t.Errorf("revoking a pattern: %v, %s", err, out)
	}
	revocations := func() float64 { return p.metric("tlsproxy_session_revocations") }
	if n := revocations(); n != 1 {
		t.Errorf("tlsproxy_session_revocations = %v, want 1", n)
	}
	p.restart()
	if n := revocations(); n != 1 {
		t.Errorf("tlsproxy_session_revocations = %v after a restart, want 1", n)
	}
	p.write("state/session-revocations.json", "damaged")
	p.restart()
	if n := revocations(); n != 1 {
		t.Errorf("tlsproxy_session_revocations = %v after the file was damaged, want 1 for everything", n)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "state", "session-revocations.json.corrupt")); err != nil {
		t.Error(err)
	}
	if out, err := run(t, "", binary, "sessions", "revoke", "-admin", p.admin, "site", "nonsense"); err == nil || !strings.Contains(out, `revoked, but: site "nonsense" is unknown`) {
		t.Errorf("revoking an unknown site: %v, %s", err, out)
	}
	if !strings.Contains(p.stderr.String(), "session-revocations.json") {
		t.Errorf("the log does not speak of the damaged file:\n%s", p.stderr)
	}
}
