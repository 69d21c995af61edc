package e2e

import (
	"crypto/tls"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// trouble is something that happens to the store under a running fleet.
type trouble struct {
	name string
	// begin starts it and returns what ends it.
	begin func(f *fleet) (end func())
	// answers: the server goes on answering, so that it is asked as before and
	// what was shared before still resumes.
	answers bool
}

var troubles = []trouble{
	{name: "killed", begin: func(f *fleet) func() {
		f.redis.kill()
		return f.redis.start
	}},
	{name: "hung", begin: func(f *fleet) func() {
		f.redis.signal(syscall.SIGSTOP)
		return func() { f.redis.signal(syscall.SIGCONT) }
	}},
	{name: "5 s slow", begin: func(f *fleet) func() {
		f.redis.relay.delay.Store(int64(5 * time.Second))
		return func() {
			f.redis.relay.delay.Store(0)
			f.redis.relay.drop()
		}
	}},
	{name: "password changed", begin: func(f *fleet) func() {
		f.redis.configSet("requirepass", "second")
		f.redis.relay.drop() // connections that are logged in stay so
		return func() { f.shared.write("password", "second") }
	}},
	{name: "out of memory", answers: true, begin: func(f *fleet) func() {
		f.redis.configSet("maxmemory", "1")
		return func() { f.redis.configSet("maxmemory", "0") }
	}},
}

// TestFleetSurvivesItsStore: whatever happens to Redis, every handshake
// succeeds. A server that does not answer costs a few handshakes their
// deadline and the others nothing, as they do not ask it. When it is back,
// sessions are shared again without anybody's help.
func TestFleetSurvivesItsStore(t *testing.T) {
	for _, tt := range troubles {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, "timeout: 2s", "timeout: 300ms")
			known := map[string]*visitor{} // to replica a and the store
			for name, version := range bothVersions {
				f.shares(f.a, version)
				f.shares(f.b, version)
				c := f.client(version)
				f.visit(c, f.a, "open.test")
				known[name] = &visitor{name: "open.test", version: version, session: c.session}
			}
			f.a.queueEmpty()
			f.b.queueEmpty()

			end := tt.begin(f)
			if tt.answers {
				f.storeAnswers(known)
			} else {
				f.storeIsSilent(known)
			}
			end()
			for _, version := range bothVersions {
				f.shares(f.a, version)
				f.shares(f.b, version)
			}
			for _, p := range []*proxy{f.a, f.b} {
				eventually(t, "the store is up and takes writes", func() bool {
					return p.metric("tlsproxy_store_servers", `state="down"`) == 0 && p.metric("tlsproxy_store_servers_refusing_writes") == 0
				})
				if text := p.stderr.String(); strings.Count(text, `"store does not answer`) != strings.Count(text, `"store answers again`) {
					t.Errorf("the log has not one line for each change of state:\n%s", text)
				}
			}
		})
	}
}

// storeIsSilent visits the replicas while the store does not answer.
func (f *fleet) storeIsSilent(known map[string]*visitor) {
	t := f.t
	t.Helper()
	failed := func(p *proxy) float64 {
		return p.metric("tlsproxy_store_calls_total", `result="timeout"`) + p.metric("tlsproxy_store_calls_total", `result="error"`)
	}
	before := map[*proxy]float64{f.a: failed(f.a), f.b: failed(f.b)}

	// Clients that change between the replicas: each visit offers a handle
	// that this replica does not know and would have to ask for.
	var clients []*tlsClient
	for _, version := range bothVersions {
		for range 4 {
			clients = append(clients, f.client(version))
		}
	}
	round := func(i int) {
		for j, c := range clients {
			f.visit(c, []*proxy{f.a, f.b}[(i+j)%2], "open.test")
		}
	}
	rounds := 0
	for ; f.a.metric("tlsproxy_store_servers", `state="down"`) == 0 || f.b.metric("tlsproxy_store_servers", `state="down"`) == 0; rounds++ {
		round(rounds)
		if rounds == 100 {
			t.Fatal("a store that does not answer is still asked")
		}
	}
	misses := func(p *proxy) float64 { return p.metric("tlsproxy_session_lookups_total", `result="store_error"`) }
	down := map[*proxy]float64{f.a: misses(f.a), f.b: misses(f.b)}
	for range 12 {
		round(rounds)
		rounds++
	}
	for _, p := range []*proxy{f.a, f.b} {
		// What had begun before the third failure: lookups, and a write in each
		// lane of the queue.
		if n := failed(p) - before[p]; n > 3+8+1 {
			t.Errorf("%v calls of a store that does not answer waited for it, want at most 12", n)
		}
		if n, visits := misses(p)-down[p], float64(12*len(clients)/2); n != visits {
			t.Errorf("tlsproxy_session_lookups_total{result=store_error} grew by %v in %v visits while the store was down", n, visits)
		}
		if n := p.metric("tlsproxy_store_calls_total", `result="unavailable"`); n < 1 {
			t.Errorf("tlsproxy_store_calls_total{result=unavailable} = %v while the store was down", n)
		}
	}
	for version, v := range known {
		if !f.resumes(v, f.a) {
			t.Errorf("TLS %s: a session that the replica knows itself does not resume while the store is down", version)
		}
	}
	if code, _ := f.a.adminGet("/readyz"); code != 200 {
		t.Errorf("/readyz answers %d while the store is down, want 200", code)
	}
}

// storeAnswers visits the replicas while the store takes no writes.
func (f *fleet) storeAnswers(known map[string]*visitor) {
	t := f.t
	t.Helper()
	for version, v := range known {
		if !f.resumes(v, f.b) {
			t.Errorf("TLS %s: what is stored does not resume while the store is full", version)
		}
	}
	for range 10 {
		for _, version := range bothVersions {
			f.visit(f.client(version), f.a, "open.test")
			f.visit(f.client(version), f.b, "open.test")
		}
	}
	for _, p := range []*proxy{f.a, f.b} {
		eventually(t, "the refusal shows", func() bool {
			return p.metric("tlsproxy_store_servers_refusing_writes") == 1 && p.metric("tlsproxy_store_calls_total", `result="refused"`) > 0
		})
		if n := p.metric("tlsproxy_session_store_lost_total", `reason="store"`); n < 1 {
			t.Errorf("tlsproxy_session_store_lost_total{reason=store} = %v though the store took nothing", n)
		}
		if n := p.metric("tlsproxy_store_servers", `state="down"`); n != 0 {
			t.Errorf("%v servers are taken for down, though they answer", n)
		}
	}
}

// TestFleetWithALyingStore: values that were exchanged, damaged, cut short or
// made up open nothing and break nothing.
func TestFleetWithALyingStore(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	ctx := t.Context()
	sessions := func() map[string]string {
		values := map[string]string{}
		for _, key := range f.redis.client.Keys(ctx, "tlsproxy:s:*").Val() {
			values[key] = f.redis.client.Get(ctx, key).Val()
		}
		return values
	}
	for name, change := range map[string]func(i int, keys []string, old map[string]string) string{
		"exchanged":  func(i int, keys []string, old map[string]string) string { return old[keys[(i+1)%len(keys)]] },
		"a bit":      func(i int, keys []string, old map[string]string) string { return flip(old[keys[i]]) },
		"cut short":  func(i int, keys []string, old map[string]string) string { return old[keys[i]][:20] },
		"empty":      func(int, []string, map[string]string) string { return "" },
		"made up":    func(int, []string, map[string]string) string { return strings.Repeat("x", 400) },
		"very large": func(int, []string, map[string]string) string { return strings.Repeat("x", 8<<20) },
	} {
		f.redis.client.FlushAll(ctx)
		clients := map[string]*tlsClient{}
		for version, v := range bothVersions {
			clients[version] = f.client(v)
			f.visit(clients[version], f.a, "open.test")
		}
		eventually(t, "both sessions are in the store", func() bool { return len(sessions()) == 2 })
		old := sessions()
		keys := slices.Sorted(maps.Keys(old))
		for i, key := range keys {
			if err := f.redis.client.SetArgs(ctx, key, change(i, keys, old), redis.SetArgs{KeepTTL: true}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		before := f.b.metric("tlsproxy_store_calls_total", `result="corrupt"`)
		for version, c := range clients {
			if f.visit(c, f.b, "open.test") {
				t.Errorf("%s, TLS %s: the session resumed", name, version)
			}
		}
		if n := f.b.metric("tlsproxy_store_calls_total", `result="corrupt"`) - before; n != 2 {
			t.Errorf("%s: tlsproxy_store_calls_total{result=corrupt} grew by %v, want 2", name, n)
		}
		// They are written behind the handshakes, and must not arrive among
		// those of the next round.
		eventually(t, "the sessions of the full handshakes are in the store too", func() bool { return len(sessions()) == 4 })
	}
	f.shares(f.a, tls.VersionTLS13)
}

func flip(s string) string {
	b := []byte(s)
	b[len(b)/2] ^= 1
	return string(b)
}

// TestFleetForgedHandles listens to what Redis is asked: nothing, for handles
// that no replica made.
func TestFleetForgedHandles(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	owners := map[string]*tlsClient{}
	for name, version := range bothVersions {
		owners[name] = f.shares(f.a, version)
	}
	cli := exec.CommandContext(t.Context(), testtool.Require(t, "redis-cli", "redis-tools"), "-p", fmt.Sprint(f.redis.port), "-a", "first", "monitor")
	heard := new(logBuffer)
	cli.Stdout = heard
	if err := cli.Start(); err != nil {
		t.Fatal(err)
	}
	defer cli.Wait()
	defer cli.Process.Kill()
	eventually(t, "the monitor runs", func() bool { return strings.HasPrefix(heard.String(), "OK") })

	for name, version := range bothVersions {
		for bit := 1; bit < 32*8; bit += 5 {
			c := f.client(version)
			c.session = withTicket(t, owners[name].session, func(b []byte) []byte {
				b[bit/8] ^= 1 << (bit % 8)
				return b
			})
			if f.visit(c, f.b, "open.test") {
				t.Errorf("TLS %s: a handle with bit %d turned resumed", name, bit)
			}
		}
	}
	asked := func() int { return strings.Count(strings.ToLower(heard.String()), `"get" "tlsproxy:s:`) }
	if n := asked(); n != 0 {
		t.Errorf("%d forged handles reached the store", n)
	}
	f.shares(f.a, tls.VersionTLS13)
	eventually(t, "the monitor hears a true handle", func() bool { return asked() > 0 })
}
