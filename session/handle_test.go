package session

import (
	"bytes"
	"crypto/tls"
	"slices"
	"testing"
)

// Whatever is not a handle of ours is a miss before the cache is touched, and
// the handshake succeeds.
func TestMalformedHandles(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		handle := ticketOf(t, c)
		if len(handle) != handleLen || handleLen != 32 {
			t.Fatalf("a handle of %d bytes", len(handle))
		}
		bad := map[string][]byte{
			"1 byte": handle[:1], "31 bytes": handle[:31], "33 bytes": append(bytes.Clone(handle), 0),
			"60 kB": bytes.Repeat(handle, 1900), "zeros": make([]byte, 32),
			"another process's": ticketOf(t, otherProcess(t, version)),
		}
		if version == tls.VersionTLS12 {
			bad["0 bytes"] = nil
		}
		for bit := range 8 * len(handle) {
			flipped := bytes.Clone(handle)
			flipped[bit/8] ^= 1 << (bit % 8)
			bad["bit "+string(rune('0'+bit%8))+string(rune('A'+bit/8))] = flipped
		}
		for name, h := range bad {
			before := p.r.cache.Stats()
			want := Malformed
			if len(h) == 0 {
				want = None
			}
			o := p.connect(t, withTicket(t, c, h))
			o.want(t, false, want)
			after := p.r.cache.Stats()
			if after.Hits != before.Hits || after.Misses != before.Misses {
				t.Errorf("%s: the cache was asked", name)
			}
		}
		p.connect(t, c).want(t, true, Hit)
	})
}

// A client can send up to 65,535 bytes; the hook is given them directly since
// a hello of that size does not fit crypto/tls's own limit.
func TestLongestHandle(t *testing.T) {
	p := newProxy(t, Options{})
	for _, n := range []int{0, 1, 31, 33, 65535} {
		ss, err := p.r.Begin(Binding{}).Unwrap(make([]byte, n), tls.ConnectionState{Version: tls.VersionTLS13})
		if ss != nil || err != nil {
			t.Errorf("%d bytes: %v, %v", n, ss, err)
		}
	}
	if n := p.r.Stats().Lookups[Malformed]; n != 4 {
		t.Errorf("%d malformed, want 4: an empty one is none", n)
	}
}

func otherProcess(t *testing.T, version uint16) *tls.Config {
	c := client(version, "a.test")
	newProxy(t, Options{}).full(t, c)
	return c
}

// Several identities in one TLS 1.3 hello are looked at in turn; the last one
// returned is the one resumed.
func TestSeveralHandles(t *testing.T) {
	p := newProxy(t, Options{})
	c := client(tls.VersionTLS13, "a.test")
	p.full(t, c)
	good := ticketOf(t, c)
	a := p.r.Begin(Binding{
		Scope: p.policy.scope, Site: "site", ServerName: "a.test", Keys: [][32]byte{keyID(defaultCert())},
	})
	cs := tls.ConnectionState{Version: tls.VersionTLS13}
	for _, h := range [][]byte{[]byte("junk"), good, good} {
		if _, err := a.Unwrap(h, cs); err != nil {
			t.Fatal(err)
		}
	}
	a.Abandon()
	l := p.r.Stats().Lookups
	if l[Malformed] != 1 || l[Declined] != 1 || l[Unfinished] != 1 || l[Hit] != 0 {
		t.Errorf("lookups: %v", l)
	}
}

func FuzzUnwrap(f *testing.F) {
	p := newProxy(f, Options{})
	f.Add([]byte{})
	f.Add(make([]byte, 32))
	f.Add(slices.Concat([]byte{handleFormat}, make([]byte, 31)))
	f.Add(bytes.Repeat([]byte{1}, 65535))
	id := newID(0)
	handle, _ := p.r.handle(id)
	f.Add(handle)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range versions {
			a := p.r.Begin(Binding{ServerName: "a.test"})
			ss, err := a.Unwrap(b, tls.ConnectionState{Version: v.id})
			if ss != nil || err != nil {
				t.Fatalf("%x: %v, %v", b, ss, err)
			}
			if len(b) > 0 && a.Result() != Malformed && !bytes.Equal(b, handle) {
				t.Fatalf("%x passed for a handle: %q", b, a.Result())
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	e := entry{auth: 1, deadline: 2, site: 3}
	f.Add(e.encode([]byte("state")))
	f.Add([]byte{})
	f.Add(make([]byte, wireHeader))
	f.Add(make([]byte, wireHeader+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, state, err := decode(b)
		if err != nil {
			return
		}
		if got := e.encode(state); !bytes.Equal(got, b) {
			t.Fatalf("%x became %x", b, got)
		}
	})
}

// No two different contents have one encoding.
func TestScopeIsUnambiguous(t *testing.T) {
	scopes := []Scope{
		NewScope().Sum(),
		NewScope().Add("").Sum(),
		NewScope().Add("a").Sum(),
		NewScope().Add("a", "").Sum(),
		NewScope().Add("a", "b").Sum(),
		NewScope().Add("ab").Sum(),
		NewScope().Add("a").Add("b").Sum(),
		NewScope().Add("b").Add("a").Sum(),
		NewScope().Add("a", "b", "c").Sum(),
		NewScope().Add("a", "b").Add("c").Sum(),
		NewScope().Add("a", "bc").Sum(),
	}
	for i, s := range scopes {
		if slices.Contains(scopes[:i], s) {
			t.Errorf("scope %d is not unique", i)
		}
	}
	if again := NewScope().Add("a", "b").Sum(); NewScope().Add("a", "b").Sum() != again {
		t.Error("equal content, different scopes")
	}
}
