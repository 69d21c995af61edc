package session

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuff makes n full handshakes' sessions of one client address.
func stuff(t testing.TB, p *proxy, addr string, n int) {
	t.Helper()
	ss := sessionState(t)
	for range n {
		a := p.r.Begin(Binding{Scope: p.policy.scope, Client: netip.MustParseAddr(addr)})
		a.Served([32]byte{1})
		if _, err := a.Wrap(tls.ConnectionState{Version: tls.VersionTLS13}, ss); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(tls.ConnectionState{Version: tls.VersionTLS13}); err != nil {
			t.Fatal(err)
		}
	}
}

// One client that makes 100,000 full handshakes (10,000 under the race detector) and never resumes does not
// cost the others their sessions, from IPv4 nor from all of an IPv6 /64.
func TestOneClientDoesNotPushOthersOut(t *testing.T) {
	for _, flood := range []string{"198.51.100.7", "2001:db8:1:2::%d"} {
		t.Run(flood, func(t *testing.T) {
			p := newProxy(t, Options{Limits: Limits{Capacity: 2000}})
			clients := make([]*tls.Config, 100)
			for i := range clients {
				clients[i] = client(tls.VersionTLS13, "a.test")
				p.addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
				p.full(t, clients[i])
			}
			for i := range 100 {
				addr := flood
				if strings.Contains(flood, "%d") {
					addr = fmt.Sprintf(flood, i)
				}
				stuff(t, p, addr, flooding/100)
			}
			if n, limit := p.r.cache.Len(), 2000/4+len(clients); n != limit {
				t.Errorf("%d sessions are held, want %d: the share and the others'", n, limit)
			}
			if n := p.r.Stats().ShareLimited; n != flooding-500 {
				t.Errorf("%d sessions went for the share", n)
			}
			for i, c := range clients {
				p.addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
				p.connect(t, c).want(t, true, Hit)
			}
			accounts(t, p.r)
			listed := 0
			for i := range p.r.shares.shards {
				for _, l := range p.r.shares.shards[i].recent {
					listed += cap(l.ids)
				}
			}
			if listed > 2*2000 {
				t.Errorf("the lists have grown to %d", listed)
			}
		})
	}
}

// A client at its share loses its own oldest session, so that what it made
// last still resumes: a balancer that hides its clients is one client.
func TestShareKeepsTheNewest(t *testing.T) {
	p := newProxy(t, Options{Limits: Limits{Capacity: 400}})
	p.addr = netip.MustParseAddr("192.0.2.1")
	stuff(t, p, "192.0.2.1", 1000)
	c := client(tls.VersionTLS13, "a.test")
	p.full(t, c)
	stuff(t, p, "192.0.2.1", 40)
	p.connect(t, c).want(t, true, Hit)
	stuff(t, p, "192.0.2.1", 60)
	p.connect(t, c).want(t, false, Absent)
	accounts(t, p.r)
}

// A client at its share holds no more in the store than here, though with single use
// nobody looks at what is held here.
func TestShareHoldsInTheStore(t *testing.T) {
	for _, window := range []time.Duration{0, SingleUse} {
		synctest.Test(t, func(t *testing.T) {
			p, _, s := fleet(t, Options{Limits: Limits{Capacity: 400, ReuseWindow: window}})
			c := client(tls.VersionTLS13, "a.test")
			p.addr = netip.MustParseAddr("192.0.2.1")
			p.full(t, c)
			for range 30 {
				stuff(t, p, "198.51.100.7", 100)
				synctest.Wait() // the queue is bounded
			}
			if n := s.live(); n != 101 {
				t.Errorf("window %v: the store holds %d sessions; want the share of 100 and another's one", window, n)
			}
			p.r.Clear()
			p.connect(t, c).want(t, true, HitShared)
			synctest.Wait()
			accounts(t, p.r)
		})
	}
}

// The share bounds bytes as well as entries.
func TestShareOfBytes(t *testing.T) {
	p := newProxy(t, Options{MaxBytes: 4 << 20})
	l := p.r.limits.Load().shareLimit(p.r.maxBytes)
	a := entry{client: p.r.shares.keyOf(netip.MustParseAddr("192.0.2.1")), deadline: time.Now().Add(time.Hour).UnixNano()}
	for range 1000 {
		p.r.put(newID(0), a, make([]byte, maxState))
	}
	if got := p.r.cache.Bytes(); got > l.bytes+l.bytes/10 {
		t.Errorf("one client takes %d bytes, its share is %d", got, l.bytes)
	}
	if p.r.cache.Len() < 50 {
		t.Errorf("only %d sessions are held", p.r.cache.Len())
	}
	accounts(t, p.r)
}

// A share that is off, and an address that is not known, are not limited.
func TestNoShare(t *testing.T) {
	for _, tt := range []struct {
		name  string
		share float64
		addr  netip.Addr
	}{{"off", -1, netip.MustParseAddr("192.0.2.1")}, {"unknown address", 0, netip.Addr{}}} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, Options{Limits: Limits{Capacity: 200, ClientShare: tt.share}})
			e := entry{client: p.r.shares.keyOf(tt.addr), deadline: time.Now().Add(time.Hour).UnixNano()}
			for range 1000 {
				p.r.put(newID(0), e, []byte("state"))
			}
			if n := p.r.cache.Len(); n != 200 {
				t.Errorf("%d sessions are held, want all 200", n)
			}
			if n := p.r.shares.clients(); n != 0 {
				t.Errorf("%d clients are counted", n)
			}
		})
	}
}

func TestClientKeys(t *testing.T) {
	s := newShares()
	same := func(a, b string) bool {
		return s.keyOf(netip.MustParseAddr(a)) == s.keyOf(netip.MustParseAddr(b))
	}
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		if same(tt.a, tt.b) != tt.same {
			t.Errorf("%s and %s count as one: %v", tt.a, tt.b, !tt.same)
		}
	}
	if s.keyOf(netip.Addr{}) != 0 {
		t.Error("an unknown address has a share")
	}
}
