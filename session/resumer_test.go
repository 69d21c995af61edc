package session

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"capacity", Options{Limits: Limits{Capacity: -1}}, "capacity"},
		{"lifetime", Options{Limits: Limits{Lifetime: 8 * 24 * time.Hour}}, "lifetime"},
		{"negative lifetime", Options{Limits: Limits{Lifetime: -1}}, "lifetime"},
		{"client lifetime", Options{Limits: Limits{ClientAuthLifetime: -1}}, "client certificates"},
		{"reuse window", Options{Limits: Limits{ReuseWindow: -3}}, "reuse window"},
		{"share", Options{Limits: Limits{ClientShare: 1.1}}, "share"},
		{"store timeout", Options{StoreTimeout: -1}, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

// The garbage collector has nothing to look at in an entry, whose size is what
// the sizing formula in docs/fleet.md says.
func TestEntryHoldsNoPointers(t *testing.T) {
	typ := reflect.TypeFor[entry]()
	for i := range typ.NumField() {
		switch f := typ.Field(i); f.Type.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.String, reflect.Map, reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("field %s is a %v", f.Name, f.Type)
		}
	}
	if size := unsafe.Sizeof(entry{}); size != 208 {
		t.Errorf("an entry takes %d bytes", size)
	}
}

// Sessions without client certificates fit into an entry; longer ones lie
// aside, resume all the same, and are given back.
func TestLongStates(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		p.full(t, client(version, "b.test"))
		if n := p.r.aside.len(); n != 0 {
			t.Errorf("%d sessions without client certificate lie aside", n)
		}
		ca := must(testCA().NewIntermediate(pki.CAOptions{NotBefore: notBefore, NotAfter: notAfter}))
		p.policy.clientAuth, p.policy.clientCAs = tls.RequireAndVerifyClientCert, testCA().Pool()
		c := client(version, "a.test")
		c.Certificates = []tls.Certificate{*clientCert(ca, "someone", notAfter)}
		before := p.r.cache.Bytes()
		p.full(t, c)
		if got := p.r.cache.Bytes() - before; got < 1500 {
			t.Errorf("a session with a chain weighs %d bytes", got)
		}
		for range 3 {
			o := p.connect(t, c)
			o.want(t, true, Hit)
			if len(o.server.VerifiedChains) != 1 || len(o.server.VerifiedChains[0]) != 3 {
				t.Errorf("the chain was lost: %v", o.server.VerifiedChains)
			}
		}
		accounts(t, p.r)
		p.r.Clear()
		accounts(t, p.r)
		if p.r.aside.len() != 0 || p.r.cache.Bytes() > 4096 {
			t.Errorf("%d states and %d bytes are left", p.r.aside.len(), p.r.cache.Bytes())
		}
	})
}

// What a client sends along with its certificate beyond reason is not stored.
func TestOversizedStateIsNotStored(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		p.policy.clientAuth = tls.RequireAnyClientCert
		cert := *clientCert(testCA(), "someone", notAfter)
		for len(cert.Certificate) < 30 {
			cert.Certificate = append(cert.Certificate, testCA().Certificate.Raw, cert.Leaf.Raw)
		}
		for len(slices.Concat(cert.Certificate...)) <= maxState {
			cert.Certificate = append(cert.Certificate, cert.Leaf.Raw)
		}
		c := client(version, "a.test")
		c.Certificates = []tls.Certificate{cert}
		p.full(t, c)
		p.connect(t, c).want(t, false, Malformed)
		p.wantEntries(t, 0)
		if n := p.r.Stats().NotStored[string(tooLarge)]; n != 2 {
			t.Errorf("%d sessions were too large, want 2", n)
		}
	})
}

// What the cache does not hold leaves nothing behind.
func TestNoRoom(t *testing.T) {
	p := newProxy(t, Options{MaxBytes: 10 << 10, Limits: Limits{ClientShare: 1}})
	e := entry{client: 1, stored: p.r.second(), deadline: time.Now().Add(time.Hour).UnixNano()}
	if why := p.r.put(newID(0), e, make([]byte, maxState)); why != noRoom {
		t.Errorf("%q, want %q", why, noRoom)
	}
	accounts(t, p.r)
}

// A session that leaves the cache while the call that put it still runs is accounted
// for once, whatever made it go, and was no less stored for that.
func TestBooksOfShortStays(t *testing.T) {
	for _, tt := range []struct {
		name     string
		capacity int
		drop     func(*Resumer) // from another goroutine, again and again
	}{
		{"evicted", 16, func(r *Resumer) { r.Stats() }},
		{"shed", 2000, func(r *Resumer) { r.Shed(2000) }},
		{"cleared", 2000, (*Resumer).Clear},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, Options{Limits: Limits{Capacity: tt.capacity}})
			ctx, cancel := context.WithCancel(t.Context())
			var putting, dropping sync.WaitGroup
			dropping.Go(func() {
				for ctx.Err() == nil {
					tt.drop(p.r)
				}
			})
			for g := range 64 {
				putting.Go(func() {
					e := entry{deadline: time.Now().Add(time.Hour).UnixNano(), stored: p.r.second()}
					for i := range 500 {
						e.client = uint64(1000*g + i%50 + 1)
						if why := p.r.put(newID(0), e, make([]byte, 70)); why != "" {
							t.Errorf("not stored: %s", why)
						}
					}
				})
			}
			putting.Wait()
			cancel()
			dropping.Wait()
			accounts(t, p.r)
		})
	}
	t.Run("expired", func(t *testing.T) {
		p := newProxy(t, Options{})
		e := entry{stored: p.r.second(), client: 1}
		for i := range 2000 {
			now := time.Now().UnixNano()
			e.deadline, e.cut = now+int64(time.Hour), now+int64(i%20)*500
			if why := p.r.put(newID(0), e, make([]byte, 70)); why != "" && why != tooOld {
				t.Fatalf("not stored: %s", why)
			}
		}
		time.Sleep(time.Millisecond) // more than the longest of them had
		accounts(t, p.r)
	})
}

// Secrets are wiped when a session is dropped from beside the cache.
func TestAsideWipes(t *testing.T) {
	var a aside
	ref := a.put([]byte("secret"))
	s := &a.shards[ref%asideShards]
	kept := s.states[ref]
	copied, ok := a.get(ref)
	if !ok || string(copied) != "secret" {
		t.Fatalf("%q, %v", copied, ok)
	}
	a.drop(ref)
	a.drop(ref)
	if string(kept) != strings.Repeat("\x00", 6) {
		t.Errorf("%q is left in memory", kept)
	}
	if string(copied) != "secret" {
		t.Error("a reader's copy was wiped")
	}
	if _, ok := a.get(ref); ok {
		t.Error("a dropped state was found")
	}
}

// The staged session is wiped after commit and after failure.
func TestStagedBytesAreWiped(t *testing.T) {
	p := newProxy(t, Options{})
	ss := sessionState(t)
	for _, end := range []func(*Attempt){(*Attempt).Abandon, func(a *Attempt) { a.Commit(tls.ConnectionState{}) }} {
		a := p.r.Begin(Binding{})
		if _, err := a.Wrap(tls.ConnectionState{Version: tls.VersionTLS13}, ss); err != nil {
			t.Fatal(err)
		}
		staged := a.staged
		end(a)
		if strings.Trim(string(staged), "\x00") != "" || a.staged != nil {
			t.Errorf("%x is left", staged)
		}
		end(a) // a second call changes nothing
	}
}

// The ages tell whether the cache is large enough.
func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, Options{Limits: Limits{Capacity: 10, Lifetime: MaxLifetime, ClientShare: -1}})
		if s := p.r.Stats(); s.OldestAge != 0 || s.LastEvictedAge != 0 {
			t.Errorf("an empty cache: %v, %v", s.OldestAge, s.LastEvictedAge)
		}
		for range 10 {
			stuff(t, p, "192.0.2.1", 1)
			time.Sleep(time.Hour)
		}
		s := p.r.Stats()
		if d := s.OldestAge - 10*time.Hour; d < -ageStep*time.Second || d > ageStep*time.Second {
			t.Errorf("the oldest is %v old, want 10h", s.OldestAge)
		}
		stuff(t, p, "192.0.2.1", 1)
		if s = p.r.Stats(); s.LastEvictedAge != 10*time.Hour {
			t.Errorf("the evicted one was %v old, want 10h", s.LastEvictedAge)
		}
		if s.Evictions["capacity"] != 1 || s.Entries != 10 || s.Capacity != 10 {
			t.Errorf("%+v", s)
		}
		time.Sleep(MaxLifetime + time.Hour)
		stuff(t, p, "192.0.2.1", 1)
		p.r.Shed(0)
		if s = p.r.Stats(); s.OldestAge > ageStep*time.Second {
			t.Errorf("the oldest is %v old, want none", s.OldestAge)
		}
		accounts(t, p.r)
	})
}

// Reload changes the limits and keeps the sessions.
func TestSetLimits(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		if err := p.r.SetLimits(Limits{Capacity: 40, Lifetime: time.Minute}); err != nil {
			t.Fatal(err)
		}
		p.connect(t, c).want(t, true, Hit)
		time.Sleep(time.Minute)
		p.connect(t, c).want(t, false, Lineage)
		if err := p.r.SetLimits(Limits{Capacity: -1}); err == nil {
			t.Error("a negative capacity was taken")
		}
		if s := p.r.Status(); s.Lifetime != time.Minute || s.Capacity != 40 || s.ReuseWindow != "10s" {
			t.Errorf("%+v", s)
		}
		for range 80 {
			p.full(t, client(version, "a.test"))
		}
		if n := p.r.cache.Len(); n > 40 {
			t.Errorf("%d sessions are held, want at most 40", n)
		}
	})
}

// Status is what /api/status shows; it holds no handle and no secret.
func TestStatus(t *testing.T) {
	p := newProxy(t, Options{Limits: Limits{ReuseWindow: SingleUse}})
	if err := p.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: "x"}); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p.r.Status())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"reuse_window":"single"`, `"kind":"site"`, `"hit_shared":0`, `"oldest_age_ns":0`, `"no_room":0`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is missing in %s", want, b)
		}
	}
	p.r.SetLimits(Limits{ReuseWindow: Unlimited})
	if got := p.r.Status().ReuseWindow; got != "unlimited" {
		t.Errorf("reuse window %q", got)
	}
}

// A panic in a hook is a full handshake and a line in the log.
func TestHooksSurvivePanics(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		p.r.keys = brokenKeys{p.r.keys}
		p.connect(t, c).want(t, false, None)
	})
}

type brokenKeys struct{ authenticator }

func (brokenKeys) MAC(ID) (MAC, bool) { panic("broken") }

// Keys that are gone from the store cost full handshakes.
func TestKeysGone(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		p.r.keys = noKeys{p.r.keys}
		p.connect(t, c).want(t, false, Malformed)
		p.connect(t, c).want(t, false, Malformed)
	})
}

type noKeys struct{ authenticator }

func (noKeys) MAC(ID) (MAC, bool) { return MAC{}, false }

// Many connections at once, revocations, limits and pressure: the books agree
// in the end. Run with -race.
func TestConcurrentUse(t *testing.T) {
	store := newFakeStore()
	p := newProxy(t, Options{Limits: Limits{Capacity: 50}, Store: store})
	p.policy.clientAuth, p.policy.clientCAs = tls.VerifyClientCertIfGiven, testCA().Pool()
	ctx, cancel := context.WithCancel(t.Context())
	var background, clients sync.WaitGroup
	background.Go(func() { p.r.Run(ctx) })
	background.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p.r.Stats()
			p.r.Status()
			if i%50 == 0 {
				p.r.Revoke(ctx, Subject{Kind: KindSite, Value: "nothing"})
				p.r.SetLimits(Limits{Capacity: 20 + i%40})
				p.r.Shed(1)
			}
			runtime.Gosched()
		}
	})
	cert := clientCert(testCA(), "someone", notAfter)
	for i := range 8 {
		clients.Go(func() {
			q := *p // its own attempt
			q.addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			c := client(versions[i%2].id, "a.test")
			if i%3 == 0 {
				c.Certificates = []tls.Certificate{*cert}
			}
			for range 60 {
				if o := q.try(c); o.serverErr != nil || o.clientErr != nil {
					t.Errorf("server: %v, client: %v", o.serverErr, o.clientErr)
				}
			}
		})
	}
	clients.Wait()
	cancel()
	background.Wait()
	p.r.SetLimits(Limits{})
	accounts(t, p.r)
}

// Whatever is put, replaced, taken, evicted and expires, the books agree.
func TestAccountsModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			p := newProxy(t, Options{Limits: Limits{Capacity: 100}, MaxBytes: 300 << 10})
			var ids []ID
			for range 2000 {
				e := entry{
					stored: p.r.second(), client: uint64(rnd.IntN(4)),
					deadline: time.Now().Add(time.Duration(rnd.IntN(300)) * time.Second).UnixNano(),
				}
				size := rnd.IntN(100)
				if rnd.IntN(20) == 0 {
					size = rnd.IntN(maxState)
				}
				switch op := rnd.IntN(20); {
				case op < 10 || len(ids) == 0:
					ids = append(ids, newID(0))
					p.r.put(ids[len(ids)-1], e, make([]byte, size))
				case op < 14:
					id := ids[rnd.IntN(len(ids))]
					if old, ok := p.r.cache.Get(id); ok {
						old.cut = time.Now().Add(time.Duration(rnd.IntN(20)) * time.Second).UnixNano()
						p.r.replace(id, old, make([]byte, size))
					}
				case op < 16:
					p.r.forget(ids[rnd.IntN(len(ids))])
				case op < 17:
					if e, ok := p.r.cache.Take(ids[rnd.IntN(len(ids))]); ok {
						p.r.left(&e)
					}
				case op < 18:
					p.r.Shed(rnd.IntN(5))
				default:
					time.Sleep(time.Duration(rnd.IntN(30)) * time.Second)
				}
			}
			accounts(t, p.r)
		})
	}
}

// The work of a resumption beside crypto/tls stays small.
func TestAllocations(t *testing.T) {
	p := newProxy(t, Options{})
	c := client(tls.VersionTLS13, "a.test")
	p.full(t, c)
	handle := ticketOf(t, c)
	b := Binding{Scope: p.policy.scope, Site: "site", ServerName: "a.test", Keys: [][32]byte{keyID(defaultCert())}, Started: time.Now()}
	cs := tls.ConnectionState{Version: tls.VersionTLS13}
	if n := testing.AllocsPerRun(100, func() {
		a := p.r.Begin(b)
		if ss, err := a.Unwrap(handle, cs); ss == nil || err != nil {
			t.Fatal("missed")
		}
		a.Abandon()
	}); n > 14 {
		t.Errorf("a lookup makes %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		p.r.Begin(b).Unwrap(handle[:31], cs)
	}); n > 2 {
		t.Errorf("a malformed handle makes %v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	p := newProxy(b, Options{})
	c := client(tls.VersionTLS13, "a.test")
	p.full(b, c)
	handle := ticketOf(b, c)
	binding := Binding{Scope: p.policy.scope, Site: "site", ServerName: "a.test", Keys: [][32]byte{keyID(defaultCert())}, Started: time.Now()}
	cs := tls.ConnectionState{Version: tls.VersionTLS13}
	b.ReportAllocs()
	for b.Loop() {
		a := p.r.Begin(binding)
		if ss, _ := a.Unwrap(handle, cs); ss == nil {
			b.Fatal("missed")
		}
		a.Abandon()
	}
}

func BenchmarkStore(b *testing.B) {
	p := newProxy(b, Options{})
	ss := sessionState(b)
	binding := Binding{Scope: p.policy.scope, Site: "site", ServerName: "a.test", Client: netip.MustParseAddr("192.0.2.1"), Started: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		a := p.r.Begin(binding)
		a.Served([32]byte{1})
		a.Wrap(tls.ConnectionState{Version: tls.VersionTLS13}, ss)
		a.Commit(tls.ConnectionState{Version: tls.VersionTLS13})
	}
}

// ExampleResumer is in the package comment; this one shows a scope.
func ExampleScopeHash() {
	scope := NewScope().
		Add("site", "app").
		Add("client_auth", "require").
		Add("protocols", "h2", "http/1.1").
		Sum()
	fmt.Println(len(scope))
	// Output: 32
}
