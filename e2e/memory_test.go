package e2e

import (
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestMemoryLimit fills a process under a memory limit with sessions that hold large
// client certificates: those used last stay, the others are dropped, and nobody is
// refused.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	const limit, sessions, workers = 40 << 20, 2500, 8
	ca, clients := newCA(t), newCA(t)
	p := newProxy(t, bindingConfig+"\nsessions: {capacity: 4000, max_bytes: 1GiB, client_share: off, reuse_window: unlimited}\n")
	p.issue(ca, "tls", pki.Request{Names: []string{"open.test", "twin.test", "closed.test"}})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	p.start("GOMEMLIMIT=40MiB")
	p.waitReady()
	if got := p.metric("tlsproxy_memory_limit_bytes"); got != limit {
		t.Fatalf("the limit is %v, want %d", got, limit)
	}
	// Some 14 kB of state each: the server keeps what the client sends.
	request := pki.Request{Client: true}
	for i := range 220 {
		request.Names = append(request.Names, fmt.Sprintf("%s-%d.test", strings.Repeat("x", 50), i))
	}
	cert, err := clients.Issue(request)
	if err != nil {
		t.Fatal(err)
	}
	visit := func() *tlsClient {
		c := p.tlsClient(ca.Pool(), tls.VersionTLS13, *cert)
		c.want(t, "a new client", "closed.test", false)
		return c
	}
	first, faithful := visit(), visit()
	var made atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for !t.Failed() && made.Add(1) <= sessions {
				visit()
				if w == 0 {
					faithful.want(t, "a client that comes again and again", "closed.test", true)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	first.want(t, "a client that was long gone", "closed.test", false)
	faithful.want(t, "a client that came again and again", "closed.test", true)

	held := p.metric("tlsproxy_cache_entries", `cache="session"`)
	shed := p.metric("tlsproxy_cache_evictions_total", `cache="session"`, `reason="shed"`)
	t.Logf("%v sessions held, %v shed", held, shed)
	if shed < sessions/4 || held < 20 {
		t.Errorf("%v sessions were shed, %v are held", shed, held)
	}
	if n := p.metric("tlsproxy_handshake_failures_total"); n != 0 {
		t.Errorf("%v handshakes failed", n)
	}
	eventually(t, "memory is no longer short", func() bool { return p.metric("tlsproxy_memory_short") == 0 })
	memory := p.status()["memory"].(map[string]any)
	if memory["limit"] != float64(limit) || memory["sheds"].(float64) < 1 || memory["freed"].(float64) < float64(limit)/10 ||
		memory["in_use"].(float64) > limit {
		t.Errorf("/api/status says %v", memory)
	}
	for _, line := range []string{"memory is short, dropping cached entries", "memory is no longer short"} {
		if !strings.Contains(p.stderr.String(), line) {
			t.Errorf("the log does not say %q", line)
		}
	}
	select {
	case <-p.exited:
		t.Error("the process has ended")
	default:
	}
}
