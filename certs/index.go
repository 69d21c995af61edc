package certs

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// index finds the certificates for a name. It is immutable and replaced as a
// whole.
type index struct {
	exact  map[string]*entry
	wild   map[string]*entry // "*.example.com" under ".example.com"
	ips    map[netip.Addr]*entry
	def    *entry     // nil: none
	noName [][32]byte // keys that a hello without a server name may get
	reject bool
	demand []*acmeSource // sources that obtain further names on demand
}

// entry is what one name is served with: at most one certificate of each kind
// of key, in the order of preference.
type entry struct {
	certs []*certificate
	keys  [][32]byte
}

// newIndex makes an index of certificates in the order of the configuration;
// def is the default one, or nil. Of two certificates with the same name and
// kind of key the earlier one is served, unless only the later one is in its
// validity.
func newIndex(certs []*certificate, def *certificate, now time.Time) *index {
	ix := &index{
		exact: make(map[string]*entry),
		wild:  make(map[string]*entry),
		ips:   make(map[netip.Addr]*entry),
	}
	for _, c := range certs {
		for _, name := range c.names {
			if suffix, ok := strings.CutPrefix(name, "*"); ok {
				add(ix.wild, suffix, c, now)
			} else {
				add(ix.exact, name, c, now)
			}
		}
		for _, ip := range c.ips {
			add(ix.ips, ip, c, now)
		}
	}
	for _, m := range []map[string]*entry{ix.exact, ix.wild} {
		for _, e := range m {
			e.finish(now)
		}
	}
	for _, e := range ix.ips {
		e.finish(now)
		ix.noName = append(ix.noName, e.keys...)
	}
	if def != nil {
		ix.def = defaultEntry(certs, def, now)
		ix.noName = append(ix.noName, ix.def.keys...)
	}
	return ix
}

// defaultEntry is the default certificate together with those of other kinds
// that carry the same names.
func defaultEntry(certs []*certificate, def *certificate, now time.Time) *entry {
	e := &entry{certs: []*certificate{def}}
	for _, c := range certs {
		if slices.Equal(c.names, def.names) && slices.Equal(c.ips, def.ips) {
			e.add(c, now)
		}
	}
	e.finish(now)
	return e
}

func add[K comparable](m map[K]*entry, key K, c *certificate, now time.Time) {
	e := m[key]
	if e == nil {
		e = new(entry)
		m[key] = e
	}
	e.add(c, now)
}

func (e *entry) add(c *certificate, now time.Time) {
	i := slices.IndexFunc(e.certs, func(have *certificate) bool { return have.kind == c.kind })
	switch {
	case i < 0:
		e.certs = append(e.certs, c)
	case !e.certs[i].current(now) && c.current(now):
		e.certs[i] = c
	}
}

// finish sorts by preference, those outside their validity last.
func (e *entry) finish(now time.Time) {
	slices.SortStableFunc(e.certs, func(a, b *certificate) int {
		if ca, cb := a.current(now), b.current(now); ca != cb {
			if ca {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.kind, b.kind)
	})
	e.keys = e.keys[:0]
	for _, c := range e.certs {
		if !slices.Contains(e.keys, c.key) {
			e.keys = append(e.keys, c.key)
		}
	}
}

// find returns the entry for a canonical name, or nil.
func (ix *index) find(name string) *entry {
	if e := ix.exact[name]; e != nil {
		return e
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		return ix.wild[name[i:]]
	}
	return nil
}

// findIP returns the entry for the address that a client without a server
// name connected to, or nil.
func (ix *index) findIP(conn net.Conn) *entry {
	if len(ix.ips) == 0 || conn == nil {
		return nil
	}
	if tcp, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return ix.ips[tcp.AddrPort().Addr().Unmap().WithZone("")]
	}
	return nil
}

// pick chooses by what the client supports. When it supports none, the last
// one is as good as any: the handshake fails with the alert that says so.
func (e *entry) pick(hello *tls.ClientHelloInfo) *tls.Certificate {
	last := len(e.certs) - 1
	for _, c := range e.certs[:last] {
		if c.kind.supportedBy(hello) {
			return c.tls
		}
	}
	return e.certs[last].tls
}
