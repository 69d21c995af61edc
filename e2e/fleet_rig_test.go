package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/store"
)

// redisServer is a real redis-server on loopback that a test may mistreat. The
// replicas reach it through a relay, which can be slow.
type redisServer struct {
	t      *testing.T
	port   int
	args   []string
	cmd    *exec.Cmd
	client *redis.Client // the operator's
	relay  *relay
}

// startRedis starts a server with a password.
func startRedis(t *testing.T, password string) *redisServer {
	t.Helper()
	r := &redisServer{t: t, port: testtool.FreePort(t)}
	r.args = []string{
		"--port", fmt.Sprint(r.port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--requirepass", password,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--loglevel", "warning",
	}
	r.start()
	t.Cleanup(r.kill)
	r.client = redis.NewClient(&redis.Options{Addr: r.addr(), Password: password, Protocol: 2})
	t.Cleanup(func() { r.client.Close() })
	r.relay = startRelay(t, r.addr())
	return r
}

func (r *redisServer) addr() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }

// start starts the server, again after kill, and waits until it answers.
func (r *redisServer) start() {
	r.t.Helper()
	r.cmd = exec.Command(testtool.Require(r.t, "redis-server", "redis-server"), r.args...)
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "redis-server answers", func() bool {
		conn, err := net.Dial("tcp", r.addr())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (r *redisServer) kill() {
	r.cmd.Process.Kill()
	r.cmd.Wait()
}

func (r *redisServer) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

func (r *redisServer) configSet(name, value string) {
	r.t.Helper()
	if err := r.client.ConfigSet(r.t.Context(), name, value).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// relay is a TCP relay that can hold answers back.
type relay struct {
	addr, target string
	delay        atomic.Int64 // of answers, in nanoseconds
	mu           sync.Mutex
	conns        []net.Conn
	closed       bool
}

func startRelay(t *testing.T, target string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: ln.Addr().String(), target: target}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.relay(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.drop()
		running.Wait()
	})
	return r
}

func (r *relay) relay(conn net.Conn) {
	defer conn.Close()
	up, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer up.Close()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.conns = append(r.conns, conn, up)
	r.mu.Unlock()
	go func() {
		defer up.Close()
		io.Copy(up, conn)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(r.delay.Load()))
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// drop closes every connection.
func (r *relay) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.Close()
	}
	r.conns = nil
}

// fleetConfig is the configuration of a replica: one open site under two
// names, one that requires client certificates. KEYS, REDIS and SHARED stand
// for the replica's key file, the store and the directory of what all have.
const fleetConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "SHARED/tls.crt", key: "SHARED/tls.key"}
sessions: {}
store:
  redis: {addresses: ["REDIS"], password_file: "SHARED/password"}
  key_file: "KEYS"
  timeout: 2s
sites:
  - name: open
    hosts: [open.test, twin.test]
    routes: [{upstream: echo}]
  - name: closed
    hosts: [closed.test]
    tls: {client_auth: {mode: require, ca_file: "SHARED/clients.pem"}}
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// fleet is two replicas that share one Redis.
type fleet struct {
	t       *testing.T
	redis   *redisServer
	shared  *proxy // not a proxy that runs, but a directory with files
	ca      *pki.CA
	clients *pki.CA
	a, b    *proxy

	activeKey any // as /api/status names it
}

// keyLines are those that were drawn so far.
var keyLines struct {
	sync.Mutex
	lines []string
}

// newKeyLine returns a line for a key file. Two keys in 256 have the same short
// name, which a file refuses, so such a one is drawn again.
func newKeyLine() string {
	keyLines.Lock()
	defer keyLines.Unlock()
	for {
		key := make([]byte, 32)
		rand.Read(key)
		all := append(slices.Clone(keyLines.lines), hex.EncodeToString(key))
		if _, err := store.ParseKeyring([]byte(strings.Join(all, "\n"))); err == nil {
			keyLines.lines = all
			return all[len(all)-1]
		}
	}
}

// startFleet starts Redis and two replicas with the same configuration, in
// which edits (pairs of old and new text) were made. Its deadline for the store
// is long, so that a busy machine is no slow store.
func startFleet(t *testing.T, edits ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: startRedis(t, "first"), shared: &proxy{t: t, dir: t.TempDir()}, ca: newCA(t), clients: newCA(t)}
	f.shared.issue(f.ca, "tls", pki.Request{Names: []string{"open.test", "twin.test", "closed.test"}})
	f.shared.write("clients.pem", string(pki.CertificatePEM(f.clients.Certificate)))
	f.shared.write("password", "first")
	key := newKeyLine() + "\n"
	for _, replica := range []**proxy{&f.a, &f.b} {
		p := newProxy(t, "")
		p.writeConfig(strings.NewReplacer(
			"SHARED", f.shared.dir, "REDIS", f.redis.relay.addr, "KEYS", p.write("store.keys", key),
		).Replace(strings.NewReplacer(edits...).Replace(fleetConfig)))
		p.start()
		*replica = p
	}
	f.a.waitReady()
	f.b.waitReady()
	f.synced()
	return f
}

// synced waits until both replicas know the revocations of the store, without
// which they use no session of it.
func (f *fleet) synced() {
	f.t.Helper()
	for _, p := range []*proxy{f.a, f.b} {
		eventually(f.t, "the replica knows the store's revocations", func() bool {
			return p.metric("tlsproxy_store_revocations_synced_timestamp_seconds") > 0
		})
	}
}

// other is the replica that p is not.
func (f *fleet) other(p *proxy) *proxy {
	if p == f.a {
		return f.b
	}
	return f.a
}

// client is a client with a session of its own for one version.
func (f *fleet) client(version uint16) *tlsClient { return f.a.tlsClient(f.ca.Pool(), version) }

// visit makes one request at a replica; it must succeed.
func (f *fleet) visit(c *tlsClient, p *proxy, name string) (resumed bool) {
	f.t.Helper()
	c.addr = p.addr
	resumed, err := c.request(name)
	if err != nil {
		f.t.Fatalf("a request at a replica: %v", err)
	}
	return resumed
}

// shares waits until a session that was made at one replica is good at the
// other: sessions are written behind the handshake, so that the first attempts
// may come too early.
func (f *fleet) shares(from *proxy, version uint16) *tlsClient {
	f.t.Helper()
	c := f.client(version)
	eventually(f.t, "a session is shared", func() bool {
		c.session = nil
		f.visit(c, from, "open.test")
		from.queueEmpty()
		return f.visit(c, f.other(from), "open.test")
	})
	return c
}

// queueEmpty waits until nothing waits to be written to the store.
func (p *proxy) queueEmpty() {
	p.t.Helper()
	eventually(p.t, "the write-behind queue is empty", func() bool {
		return p.metric("tlsproxy_session_store_queue_length") == 0
	})
}

// restart ends the proxy by SIGTERM and starts it again.
func (p *proxy) restart() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.t.Fatalf("exit status %d after SIGTERM", code)
	}
	p.start()
	p.waitReady()
}

// startHAProxy balances TCP connections over the replicas in turn and tells
// them the clients' addresses. It returns its address.
func (f *fleet) startHAProxy() string {
	f.t.Helper()
	address := testtool.FreeAddr(f.t)
	config := filepath.Join(f.t.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf(`defaults
  mode tcp
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen tls
  bind %s
  balance roundrobin
  server a %s send-proxy-v2
  server b %s send-proxy-v2
`, address, f.a.addr, f.b.addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	startProcess(f.t, testtool.Require(f.t, "haproxy", "haproxy"), "-db", "-f", config)
	eventually(f.t, "HAProxy listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return address
}
