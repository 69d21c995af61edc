package store

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

var bothVersions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

// trouble is something that happens to a server under a running fleet.
type trouble struct {
	name string
	// begin starts it and returns what ends it.
	begin func(t *testing.T, r *redisServer, link *link, password string) (end func())
	// keeps tells that what was shared before still resumes.
	keeps bool
}

func troubles() []trouble {
	return []trouble{
		{"killed", func(_ *testing.T, r *redisServer, _ *link, _ string) func() { r.kill(); return r.start }, false},
		{"stopped", func(_ *testing.T, r *redisServer, _ *link, _ string) func() { r.stop(); return r.cont }, false},
		{"5 s slow", func(_ *testing.T, _ *redisServer, l *link, _ string) func() {
			l.delay.Store(int64(5 * time.Second))
			return func() { l.delay.Store(0); l.drop() }
		}, false},
		{"200 ms slow", func(_ *testing.T, _ *redisServer, l *link, _ string) func() {
			l.delay.Store(int64(200 * time.Millisecond))
			return func() { l.delay.Store(0) }
		}, false},
		{"cut off", func(_ *testing.T, _ *redisServer, l *link, _ string) func() {
			l.refuse.Store(true)
			l.drop()
			return func() { l.refuse.Store(false) }
		}, false},
		{"another password", func(t *testing.T, r *redisServer, l *link, password string) func() {
			raw := redis.NewClient(&redis.Options{Addr: r.addr, Password: "any", MaintNotificationsConfig: noNotifications()})
			defer raw.Close()
			if err := raw.ConfigSet(t.Context(), "requirepass", "changed").Err(); err != nil {
				t.Fatal(err)
			}
			l.drop()
			return func() { writeKeys(t, password, "changed") } // the file is enough
		}, false},
		{"out of memory", func(t *testing.T, r *redisServer, _ *link, _ string) func() {
			raw := r.raw()
			raw.ConfigSet(t.Context(), "maxmemory", "1")
			return func() { raw.ConfigSet(t.Context(), "maxmemory", "0") }
		}, true},
	}
}

// Whatever happens to the server, every handshake succeeds; a bounded number
// of them waits for it, later ones do not; and when it is over, sessions are
// shared again without anybody's help.
func TestTroubles(t *testing.T) {
	for _, tt := range troubles() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startRedis(t, "--maxmemory-policy", "noeviction")
			l := newLink(t, r.addr)
			password := writeKeys(t, filepath.Join(t.TempDir(), "password"), "any")
			so := Options{Addresses: []string{l.addr}, Timeout: 100 * time.Millisecond}
			if tt.name == "another password" {
				so.PasswordFile = password
				if err := r.raw().ConfigSet(t.Context(), "requirepass", "any").Err(); err != nil {
					t.Fatal(err)
				}
				r.args = append(r.args, "--requirepass", "any")
			}
			a, b := newFleet(t, so, session.Options{})
			known := map[uint16]*tls.Config{}
			for _, v := range bothVersions {
				known[v] = a.shares(t, b, v)
			}
			a.flushed(t)
			b.flushed(t)
			b.Clear()
			end := tt.begin(t, r, l, password)
			tt.during(t, a, b, known)
			end()
			for _, v := range bothVersions {
				a.shares(t, b, v)
				b.shares(t, a, v)
			}
			if down := b.store.Stats().Down + a.store.Stats().Down; down != 0 {
				t.Errorf("%d servers are still taken for down", down)
			}
		})
	}
}

// during makes handshakes while the trouble lasts.
func (tt *trouble) during(t *testing.T, a, b *replica, known map[uint16]*tls.Config) {
	before := b.store.Stats().Calls
	handshakes, tripped := uint64(0), false
	start := time.Now()
	// Long enough for several probes.
	for ; handshakes < 40 || time.Since(start) < 8*probeEvery; handshakes++ {
		i := handshakes
		if i >= 20 {
			pauseFor(t, 30*time.Millisecond)
		}
		v := bothVersions[i%2]
		resumed, result := b.connect(t, known[v])
		switch {
		case tt.keeps:
			if !resumed && result != session.StoreError { // a busy machine may miss a deadline
				t.Fatalf("handshake %d did not resume: %q", i, result)
			}
		case resumed:
			t.Fatalf("handshake %d resumed", i)
		case result != session.StoreError:
			t.Fatalf("handshake %d: %q", i, result)
		}
		a.connect(t, tlsClient(v, true)) // leaves something to write
		switch down := b.store.Stats().Down; {
		case down == 1:
			tripped = true
		case tripped:
			t.Fatalf("the server is asked again after %d handshakes, though the trouble lasts", i)
		}
	}
	st := b.store.Stats()
	waited := st.Calls["timeout"] - before["timeout"]
	failed := waited + st.Calls["error"] - before["error"]
	if tt.keeps {
		if st.Calls["unavailable"] > before["unavailable"]+handshakes/2 {
			t.Errorf("%d calls were not made though the server answers", st.Calls["unavailable"])
		}
		if a.store.Stats().Calls["ok"] == 0 || !refusesWrites(a.store) {
			t.Error("the refused writes do not show")
		}
		return
	}
	// The writes behind the handshakes may see the trouble as well, in each
	// of their lanes at a time.
	limit := uint64(tripAfter+8+1) + looks(start)
	if failed > limit {
		t.Errorf("%d of %d handshakes waited for the server or failed at it, want at most %d", failed, handshakes, limit)
	}
	if skipped := st.Calls["unavailable"] - before["unavailable"]; skipped < handshakes-limit {
		t.Errorf("%d calls were not made, want at least %d", skipped, handshakes-limit)
	}
	if st.Down != 1 {
		t.Errorf("%d servers are down", st.Down)
	}
}

// looks is how many looks at the revocations there may have been since start.
func looks(start time.Time) uint64 { return uint64(time.Since(start)/syncEvery) + 2 }

func refusesWrites(s *Store) bool {
	for _, srv := range s.Status().Servers {
		if srv.RefusesWrites {
			return true
		}
	}
	return false
}

// A server that hangs again and again is asked less and less; there is one
// line in the log for each change of state.
func TestOneLinePerChange(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	var log lockedBuffer
	a, b := newFleet(t, Options{Addresses: []string{r.addr}, Timeout: 100 * time.Millisecond, Logger: log.logger()}, session.Options{})
	client := a.shares(t, b, tls.VersionTLS13)
	b.Clear()
	log.take()
	r.stop()
	for range 50 {
		b.connect(t, client)
	}
	r.cont()
	testtool.Eventually(t, "the server is asked again", func() bool { return b.store.Stats().Down == 0 && a.store.Stats().Down == 0 })
	lines := log.take()
	if n := strings.Count(lines, "does not answer"); n < 1 || n > 2 { // one for each replica
		t.Errorf("%d lines of the outage:\n%s", n, lines)
	}
	if down, up := strings.Count(lines, "does not answer"), strings.Count(lines, "answers again"); down != up {
		t.Errorf("%d outages, %d recoveries:\n%s", down, up, lines)
	}
}

// Corrupted and swapped values are full handshakes; a value brought back after
// its life does not outlive the lineage, and never a revocation.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		t.Run(fmt.Sprintf("%x", v), func(t *testing.T) {
			r := startRedis(t)
			raw := r.raw()
			a, b := newFleet(t, Options{Addresses: []string{r.addr}}, session.Options{
				Limits: session.Limits{Lifetime: 3 * time.Second},
			})
			one, two := tlsClient(v, false), tlsClient(v, false)
			a.connect(t, one)
			a.connect(t, two)
			a.flushed(t)
			var keys []string
			testtool.Eventually(t, "both sessions are shared", func() bool {
				keys = raw.Keys(t.Context(), "tlsproxy:s:*").Val()
				return len(keys) == 2
			})
			values := raw.MGet(t.Context(), keys...).Val()
			raw.MSet(t.Context(), keys[0], values[1], keys[1], values[0])
			for _, c := range []*tls.Config{one, two} {
				var resumed bool
				var result session.Result
				testtool.Eventually(t, "the revocations in the store are known", func() bool {
					resumed, result = b.connect(t, c)
					return result != session.StoreError
				})
				if resumed || result != session.Absent {
					t.Errorf("swapped: resumed %v, %q", resumed, result)
				}
			}
			for _, k := range keys {
				raw.Set(t.Context(), k, "corrupted", 0)
			}
			if resumed, _ := b.connect(t, one); resumed {
				t.Error("a corrupted session resumed")
			}
			testtool.Eventually(t, "the lineage ended", func() bool {
				raw.MSet(t.Context(), keys[0], values[0], keys[1], values[1]) // replayed
				b.Clear()
				resumed, result := b.connect(t, one)
				return !resumed && result == session.Lineage
			})
		})
	}
}

// A value that the operator brings back does not undo a revocation.
func TestReplayDoesNotUndoRevocation(t *testing.T) {
	r := startRedis(t)
	raw := r.raw()
	a, b := newFleet(t, Options{Addresses: []string{r.addr}}, session.Options{})
	client := a.shares(t, b, tls.VersionTLS12)
	a.flushed(t)
	key := raw.Keys(t.Context(), "tlsproxy:s:*").Val()
	saved := map[string]string{}
	for _, k := range key {
		saved[k] = raw.Get(t.Context(), k).Val()
	}
	if err := a.Revoke(t.Context(), session.Subject{Kind: session.KindSite, Value: "site"}); err != nil {
		t.Fatal(err)
	}
	for k, v := range saved {
		raw.Set(t.Context(), k, v, time.Hour)
	}
	testtool.Eventually(t, "the revocation reached the other replica", func() bool {
		b.Clear()
		resumed, result := b.connect(t, client)
		return !resumed && result == session.Revoked
	})
}

// A revocation that the server loses, by a restart from an older dump, is put
// there again by the replicas that know it: a new replica resumes nothing that
// it ended.
func TestLostRevocationIsSharedAgain(t *testing.T) {
	t.Parallel()
	for _, v := range bothVersions {
		t.Run(fmt.Sprintf("%x", v), func(t *testing.T) {
			r := startRedis(t)
			keys := writeKeys(t, "", newKey())
			o := Options{Addresses: []string{r.addr}, KeyFile: keys}
			unlimited := session.Options{Limits: session.Limits{ReuseWindow: session.Unlimited}}
			a, b := newFleet(t, o, unlimited)
			client := a.shares(t, b, v)
			a.flushed(t)
			b.flushed(t)
			raw := r.raw()
			if err := raw.Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := a.Revoke(t.Context(), session.Subject{Kind: session.KindAll}); err != nil {
				t.Fatal(err)
			}
			testtool.Eventually(t, "both replicas know the revocation", func() bool {
				return a.Stats().Revocations == 1 && b.Stats().Revocations == 1
			})
			r.kill()
			r.start()
			testtool.Eventually(t, "the server has the revocation again", func() bool {
				return raw.ZCard(t.Context(), "tlsproxy:{r}:records").Val() == 1
			})
			late := newReplica(t, o, unlimited)
			testtool.Eventually(t, "a new replica knows it", func() bool {
				resumed, result := late.connect(t, client)
				if resumed {
					t.Fatal("a revoked session resumed")
				}
				return result == session.Revoked
			})
		})
	}
}

// A revocation under a key that a replica lacks ends what it covers there as
// well: at first since nothing of before is taken from the store, and once the
// replica has the key as a revocation like any other.
func TestRevocationUnderAKeyThatIsNotHeld(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	lines := newKeys(2)
	ahead, behind := writeKeys(t, "", lines[0]), writeKeys(t, "", lines[0])
	unlimited := session.Options{Limits: session.Limits{ReuseWindow: session.Unlimited}}
	a := newReplica(t, Options{Addresses: []string{r.addr}, KeyFile: ahead}, unlimited)
	b := newReplica(t, Options{Addresses: []string{r.addr}, KeyFile: behind}, unlimited)
	client := a.shares(t, b, tls.VersionTLS12)
	a.flushed(t)
	writeKeys(t, ahead, lines[1], lines[0]) // promoted without having been distributed
	if err := a.store.ReloadKeys(); err != nil {
		t.Fatal(err)
	}
	if err := a.Revoke(t.Context(), session.Subject{Kind: session.KindAll}); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "b says that it cannot read it", func() bool {
		return strings.Contains(b.store.Status().RevocationsError, "do not open")
	})
	synced := b.store.Status().RevocationsSynced
	b.Clear()
	if resumed, result := b.connect(t, client); resumed || result != session.StoreError {
		t.Errorf("resumed %v, %q", resumed, result)
	}
	if got := b.store.Status().RevocationsSynced; !got.Equal(synced) {
		t.Error("the revocations are taken for complete")
	}
	writeKeys(t, behind, lines[0], lines[1])
	if err := b.store.ReloadKeys(); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "b has read it", func() bool { return b.store.Status().RevocationsError == "" })
	if resumed, result := b.connect(t, client); resumed || result != session.Revoked {
		t.Errorf("with the key: resumed %v, %q", resumed, result)
	}
	if n := b.Stats().Revocations; n != 1 {
		t.Errorf("%d revocations are in force", n)
	}
}

// A user who loses the right to read shows in the log, once, in the status and in
// the counters, whichever right it is; handshakes go on without the store.
func TestLostReadRights(t *testing.T) {
	t.Parallel()
	const unknown = "revocations in the store are not known"
	rights := []struct{ name, old, new, line string }{
		{"the version", "+get ", "", unknown},
		{"the records", "+zrangebyscore ", "", unknown},
		{"the sessions", "~tlsproxy:* ", "~tlsproxy:{r}:* ", "store refuses reads"},
	}
	for _, right := range rights {
		t.Run(right.name, func(t *testing.T) {
			r := startRedis(t)
			raw := r.raw()
			allow := func(rule string) {
				t.Helper()
				args := append([]any{"acl", "setuser", "tlsproxy", "reset", "on", ">secret"}, toAny(strings.Fields(rule))...)
				if err := raw.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			allow(ACLRule)
			var log lockedBuffer
			o := Options{
				Addresses: []string{r.addr}, Username: "tlsproxy", PasswordFile: writeKeys(t, filepath.Join(t.TempDir(), "password"), "secret"),
				KeyFile: writeKeys(t, "", newKey()), Logger: log.logger(),
			}
			unlimited := session.Options{Limits: session.Limits{ReuseWindow: session.Unlimited}, Logger: log.logger()}
			b := newReplica(t, o, unlimited)
			o.Logger, unlimited.Logger = nil, nil
			a := newReplica(t, o, unlimited)
			client := a.shares(t, b, tls.VersionTLS12)
			a.flushed(t)
			b.flushed(t)
			log.take()
			allow(strings.Replace(ACLRule, right.old, right.new, 1))
			raw.Incr(t.Context(), "tlsproxy:{r}:version") // there is something to read
			lines := ""
			named := func() bool {
				b.Clear()
				b.connect(t, client)
				lines += log.take()
				return strings.Contains(lines, right.line)
			}
			testtool.Eventually(t, "the log names it", named)
			refusals := b.store.Stats().Calls["refused"]
			testtool.Eventually(t, "it lasts", func() bool { return named() && b.store.Stats().Calls["refused"] > refusals+2 })
			if n := strings.Count(lines, right.line); n != 1 || !strings.Contains(lines, "level=ERROR") || !strings.Contains(lines, "NOPERM") {
				t.Errorf("%d lines, want one error of %q:\n%s", n, right.line, lines)
			}
			b.Clear()
			if resumed, result := b.connect(t, client); resumed || result != session.StoreError {
				t.Errorf("resumed %v, %q", resumed, result)
			}
			st := b.store.Status()
			if shown := right.line == unknown && strings.Contains(st.RevocationsError, "NOPERM") || right.line != unknown && st.Servers[0].RefusesReads; !shown {
				t.Errorf("the status says %+v", st)
			}
			allow(ACLRule)
			testtool.Eventually(t, "sessions of the store resume again", func() bool {
				b.Clear()
				resumed, _ := b.connect(t, client)
				return resumed
			})
			testtool.Eventually(t, "the log and the status say that it is over", func() bool {
				lines += log.take()
				st := b.store.Status()
				return strings.Contains(lines, "again") && st.RevocationsError == "" && !st.Servers[0].RefusesReads
			})
		})
	}
}

// With single use on two replicas, after one completed resumption the handle
// resumes nowhere.
func TestSingleUseOnTwoReplicas(t *testing.T) {
	for _, v := range bothVersions {
		t.Run(fmt.Sprintf("%x", v), func(t *testing.T) {
			r := startRedis(t)
			a, b := newFleet(t, Options{Addresses: []string{r.addr}}, session.Options{
				Limits: session.Limits{ReuseWindow: session.SingleUse},
			})
			used := a.shares(t, b, v)
			for range 3 {
				for _, replica := range []*replica{a, b} {
					if resumed, result := replica.connect(t, used); resumed || result != session.Absent {
						t.Errorf("resumed %v, %q", resumed, result)
					}
				}
			}
		})
	}
}

// Returning clients resume on whichever replica a balancer sends them to.
func TestReturningClientsResumeAnywhere(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	a, b := newFleet(t, Options{Addresses: []string{r.addr}}, session.Options{})
	replicas := []*replica{a, b}
	const clients, visits = 40, 10
	configs := make([]*tls.Config, clients)
	for i := range configs {
		configs[i] = tlsClient(bothVersions[i%2], true)
		replicas[i/2%2].connect(t, configs[i])
	}
	resumed := 0
	for visit := range visits {
		a.flushed(t)
		b.flushed(t)
		for i, c := range configs {
			if ok, _ := replicas[(i+visit)%2].connect(t, c); ok {
				resumed++
			}
		}
	}
	if resumed < clients*visits*99/100 {
		t.Errorf("%d of %d visits resumed", resumed, clients*visits)
	}
}

// link is a TCP proxy in front of a server that can be slow or cut.
type link struct {
	t      testing.TB
	addr   string
	target string
	delay  atomic.Int64 // of answers, in nanoseconds
	refuse atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, addr: ln.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() { l.accept(ln, &wg) })
	t.Cleanup(func() {
		ln.Close()
		l.drop()
		wg.Wait()
	})
	return l
}

func (l *link) accept(ln net.Listener, wg *sync.WaitGroup) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		if l.refuse.Load() {
			c.Close()
			continue
		}
		up, err := net.Dial("tcp", l.target)
		if err != nil {
			c.Close()
			continue
		}
		l.mu.Lock()
		l.conns[c], l.conns[up] = true, true
		l.mu.Unlock()
		wg.Go(func() { defer up.Close(); io.Copy(up, c) })
		wg.Go(func() { defer c.Close(); l.answer(c, up) })
	}
}

// answer copies answers, each after the delay.
func (l *link) answer(c, up net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if n > 0 {
			if d := time.Duration(l.delay.Load()); d > 0 {
				pause(l.t.Context(), d)
			}
			if _, werr := c.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drop closes every connection.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
		delete(l.conns, c)
	}
}
