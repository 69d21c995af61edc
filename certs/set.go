package certs

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"
)

// Set is a loaded list of sources, ready to be installed once.
type Set struct {
	// RejectUnknownSNI refuses handshakes for names that no certificate
	// carries, instead of serving the default one. Set it before Install. A
	// client that sends no name gets the default certificate all the same.
	RejectUnknownSNI bool

	providers []provider // one for each source, in order
	done      bool       // installed or discarded
}

// provider is the running form of a source.
type provider interface {
	// list returns its slots in order. The caller holds the store's lock.
	list() []*slot
	// isDefault reports whether it was configured as the default.
	isDefault() bool
}

// slot is the place of one certificate: what is served, and what is wrong with
// its successor. The store's lock guards it.
type slot struct {
	label  string       // for metrics
	source string       // kind of source
	cert   *certificate // nil: none yet
	err    error        // why cert is not newer; nil: it is as it should be
	errAt  time.Time
	next   string // what happens next, and when
	nextAt time.Time
	acme   *ACMEStatus // nil unless ACME
	names  []string    // of the configuration, shown while there is no certificate

	logged   string    // the error that was logged last
	reminded time.Time // when the end of cert was last logged
}

// fail notes an error.
func (sl *slot) fail(err error, now time.Time) { sl.err, sl.errAt = err, now }

// slots returns all slots of a set in order.
func (set *Set) slots() []*slot {
	var slots []*slot
	for _, p := range set.providers {
		slots = append(slots, p.list()...)
	}
	return slots
}

// providersOf returns the providers of one kind in a set, which may be nil.
func providersOf[P provider](set *Set) []P {
	if set == nil {
		return nil
	}
	var all []P
	for _, p := range set.providers {
		if one, ok := p.(P); ok {
			all = append(all, one)
		}
	}
	return all
}

// certificates returns all certificates of a set in order.
func (set *Set) certificates() []*certificate {
	var certs []*certificate
	for _, sl := range set.slots() {
		if sl.cert != nil {
			certs = append(certs, sl.cert)
		}
	}
	return certs
}

// defaultSlot is the slot of the default certificate, nil if there is none.
func (set *Set) defaultSlot() *slot {
	for _, marked := range []bool{true, false} {
		for _, p := range set.providers {
			if marked && !p.isDefault() {
				continue
			}
			for _, sl := range p.list() {
				if sl.cert != nil && (sl.acme == nil || !sl.acme.OnDemand) {
					return sl
				}
			}
		}
	}
	return nil
}

// Install makes set the one that is served from now on.
func (s *Store) Install(set *Set) {
	s.mu.Lock()
	old := s.set
	s.set = set
	set.done = true
	s.publish()
	var gone []*certificate
	if old != nil {
		gone = dropped(old, set)
	}
	s.mu.Unlock()
	s.releaseAll(gone)
	s.wake()
}

// Discard gives up a set that was loaded but not installed.
func (s *Store) Discard(set *Set) {
	if set == nil {
		return
	}
	s.mu.Lock()
	if set.done {
		s.mu.Unlock()
		return
	}
	set.done = true
	gone := dropped(set, s.set)
	s.mu.Unlock()
	s.releaseAll(gone)
}

// dropped returns the certificates of the old set's own providers: those that
// went over into the new set as they are keep theirs.
func dropped(old, kept *Set) []*certificate {
	var certs []*certificate
	for _, p := range old.providers {
		if kept != nil && slices.Contains(kept.providers, p) {
			continue
		}
		for _, sl := range p.list() {
			if sl.cert != nil {
				certs = append(certs, sl.cert)
			}
		}
	}
	return certs
}

func (s *Store) releaseAll(certs []*certificate) {
	for _, c := range certs {
		s.registry.release(c)
	}
}

// publish makes the index of the installed set anew. The caller holds s.mu.
func (s *Store) publish() {
	now := time.Now()
	certs := s.set.certificates()
	var def *certificate
	if sl := s.set.defaultSlot(); sl != nil {
		def = sl.cert
	}
	ix := newIndex(certs, def, now)
	ix.reject = s.set.RejectUnknownSNI
	for _, a := range providersOf[*acmeSource](s.set) {
		if a.config.OnDemand != nil {
			ix.demand = append(ix.demand, a)
		}
	}
	s.index.Store(ix)
}

// replace puts a certificate, already acquired, into a slot and publishes it
// once it is prepared. It reports whether the provider is still installed; the
// certificate is released if not.
func (s *Store) replace(ctx context.Context, p provider, sl *slot, c *certificate) bool {
	s.registry.prepareAll(ctx, []*certificate{c})
	s.mu.Lock()
	if !s.installed(p) {
		s.mu.Unlock()
		s.registry.release(c)
		return false
	}
	old := sl.cert
	sl.cert, sl.err = c, nil
	s.publish()
	s.mu.Unlock()
	if old != nil {
		s.registry.release(old)
	}
	return true
}

// installed reports whether a provider is part of the installed set. The
// caller holds s.mu.
func (s *Store) installed(p provider) bool {
	return s.set != nil && slices.Contains(s.set.providers, p)
}

// Status describes every certificate in the order of the sources.
func (s *Store) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		return nil
	}
	var out []Status
	def := s.set.defaultSlot()
	now := time.Now()
	for i, p := range s.set.providers {
		for _, sl := range p.list() {
			st := sl.status(now)
			st.SourceIndex = i
			st.Default = sl == def
			out = append(out, st)
		}
	}
	return out
}

func (sl *slot) status(now time.Time) Status {
	st := Status{
		Name:         sl.label,
		Source:       sl.source,
		Names:        sl.names,
		NextAction:   sl.next,
		NextActionAt: sl.nextAt,
	}
	if sl.err != nil {
		st.LastError = sl.err.Error()
		st.LastErrorTime = sl.errAt
	}
	if sl.acme != nil {
		copied := *sl.acme
		st.ACME = &copied
	}
	if sl.cert != nil {
		sl.cert.describe(&st, now)
	}
	return st
}

// describe fills in what the certificate itself says.
func (c *certificate) describe(st *Status, now time.Time) {
	leaf := c.tls.Leaf
	st.Names = slices.Clone(c.names)
	for _, ip := range c.ips {
		st.Names = append(st.Names, ip.String())
	}
	st.NotBefore, st.NotAfter = leaf.NotBefore, leaf.NotAfter
	st.KeyType = keyTypeName(leaf.PublicKey)
	st.Issuer = cmp.Or(leaf.Issuer.CommonName, leaf.Issuer.String())
	st.Serial = leaf.SerialNumber.Text(16)
	st.Fingerprint = hex.EncodeToString(c.id[:])
	st.MustStaple = mustStaple(leaf)
	st.Responder = len(leaf.OCSPServer) > 0
	st.Warnings = slices.Clone(c.warnings)
	if w := c.dateWarning(now); w != "" {
		st.Warnings = append(st.Warnings, w)
	}
}
