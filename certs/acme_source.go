package certs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/certmagic"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// acmeSource is a source whose certificates are obtained by ACME. It is kept
// over reloads as long as its configuration is the same.
type acmeSource struct {
	config   *ACME // canonical, defaults filled in
	def      bool
	identity string // equal for equal configurations, contents of files included
	storage  certmagic.Storage
	local    certmagic.Storage // the state directory, where storage is a shared one; nil: none
	issuers  []acmeIssuer
	dns      *dnsProvider // nil: no dns-01

	hosts []*acmeHost // guarded by Store.mu; those on demand last

	demand onDemand
	// magic is there while Run runs.
	magic atomic.Pointer[magic]
}

// acmeHost is one name with its certificate.
type acmeHost struct {
	source *acmeSource
	name   string
	slot   *slot         // guarded by Store.mu
	wake   chan struct{} // something about the host changed

	// asked says that a name on demand has just been allowed; the first attempt
	// uses that up. Set before the worker starts, then the worker's.
	asked bool

	// revoked is the certificate to be replaced at once; guarded by Store.mu.
	revoked *certificate
}

func (a *acmeSource) list() []*slot {
	slots := make([]*slot, len(a.hosts))
	for i, h := range a.hosts {
		slots[i] = h.slot
	}
	return slots
}

func (a *acmeSource) isDefault() bool { return a.def }

func newACMEHost(a *acmeSource, name string, onDemand bool) *acmeHost {
	label := name
	if onDemand {
		label = "on_demand"
	}
	return &acmeHost{
		source: a,
		name:   name,
		wake:   make(chan struct{}, 1),
		slot: &slot{
			label:  label,
			source: "acme",
			names:  []string{name},
			acme:   &ACMEStatus{State: ACMEPending, OnDemand: onDemand},
		},
	}
}

// host returns the host of a canonical name, or nil. The caller holds
// Store.mu.
func (a *acmeSource) host(name string) *acmeHost {
	i := slices.IndexFunc(a.hosts, func(h *acmeHost) bool { return h.name == name })
	if i < 0 {
		return nil
	}
	return a.hosts[i]
}

// mayBeChallenged reports whether a challenge for a name can be one of this
// source's orders, whichever replica placed it. The caller holds Store.mu.
func (a *acmeSource) mayBeChallenged(name string, c Challenge) bool {
	if !slices.Contains(a.config.Challenges, c) {
		return false
	}
	if a.host(name) != nil {
		return true
	}
	// TLS-ALPN challenges for an address carry its reverse name (RFC 8738,
	// section 6).
	if strings.HasSuffix(name, ".arpa") && slices.ContainsFunc(a.hosts, func(h *acmeHost) bool { return isIP(h.name) }) {
		return true
	}
	return a.config.OnDemand != nil && a.config.OnDemand.allows(name)
}

// acme loads an ACME source, with the certificates that the storage has.
func (l *loading) acme(ctx context.Context, i int, src *Source) provider {
	a, errs := l.store.newACMESource(src)
	l.fail(i, errs...)
	if len(errs) > 0 || l.check {
		return nil
	}
	for _, have := range providersOf[*acmeSource](l.old) {
		if have.identity == a.identity {
			return have
		}
	}
	for _, name := range a.config.Hosts {
		a.hosts = append(a.hosts, newACMEHost(a, name, false))
	}
	l.firstCertificates(ctx, a)
	return a
}

// firstCertificates gives hosts the certificates from the storage, or those
// that another source, as of a CA given up, has for them now or had before a
// restart. A storage that
// cannot be reached is no reason not to start: Run will try again.
func (l *loading) firstCertificates(ctx context.Context, a *acmeSource) {
	found := make([]*stored, len(a.hosts))
	errs := make([]error, len(a.hosts))
	var away atomic.Bool // the storage; asking for every name would take long
	var g errgroup.Group
	g.SetLimit(maxOrders)
	for i, h := range a.hosts {
		g.Go(func() error {
			if away.Load() {
				return nil
			}
			if found[i], errs[i] = a.load(ctx, h.name); errs[i] != nil && !errors.Is(errs[i], errDamaged) {
				away.Store(true)
			}
			return nil
		})
	}
	g.Wait()
	var places []place
	if !away.Load() {
		places = a.places(ctx)
	}
	for i, h := range a.hosts {
		if errs[i] != nil {
			l.store.log.Warn("stored certificate was not loaded", "name", h.name, "err", errs[i])
			h.slot.fail(errs[i], l.now)
		}
		if st := found[i]; st != nil {
			h.slot.cert = l.store.acquire(st.cert, h.name)
			h.slot.acme.State, h.slot.acme.Directory = ACMEValid, st.directory
		} else if h.slot.cert = l.inherited(h.name); h.slot.cert == nil {
			if c := a.former(ctx, h.name, places); c != nil {
				h.slot.cert = l.store.acquire(c, h.name)
			}
		}
	}
}

// inherited returns the certificate that an installed ACME source has for a
// name, held once more; nil if there is none.
func (l *loading) inherited(name string) *certificate {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for _, a := range providersOf[*acmeSource](l.old) {
		if h := a.host(name); h != nil && h.slot.cert != nil {
			held, _ := l.store.registry.acquire(h.slot.cert)
			return held
		}
	}
	return nil
}

// carryOnDemand takes the names that an installed source obtained on demand over
// into the sources that replace it, as far as their allow lists have them: a
// reload takes no certificate away that is served, whether or not the ask URL
// is there just now.
func (l *loading) carryOnDemand(set *Set) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	news := providersOf[*acmeSource](set)
	for _, old := range providersOf[*acmeSource](l.old) {
		if slices.Contains(news, old) {
			continue
		}
		for _, h := range old.hosts {
			if h.slot.acme.OnDemand && h.slot.cert != nil {
				l.carry(h, news)
			}
		}
	}
}

// carry gives a name on demand to the first source that may have it. The caller
// holds Store.mu.
func (l *loading) carry(h *acmeHost, sources []*acmeSource) {
	for _, a := range sources {
		if a.host(h.name) != nil {
			return
		}
	}
	for _, a := range sources {
		if slices.Contains(providersOf[*acmeSource](l.old), a) || a.config.OnDemand == nil || !a.config.OnDemand.allows(h.name) {
			continue
		}
		carried := newACMEHost(a, h.name, true)
		carried.slot.cert, _ = l.store.registry.acquire(h.slot.cert)
		carried.slot.acme.State, carried.slot.acme.Directory = ACMEValid, h.slot.acme.Directory
		a.hosts = append(a.hosts, carried)
		return
	}
}

// limiter bounds how many names are tried on demand.
func (o *OnDemand) limiter() *rate.Limiter {
	if o.Rate < 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	n := cmp.Or(o.Rate, defaultRate)
	return rate.NewLimiter(rate.Limit(float64(n)/cmp.Or(o.Window, defaultWindow).Seconds()), n)
}

// drop forgets a host that was obtained on demand, with its certificate.
func (s *Store) drop(a *acmeSource, h *acmeHost) {
	s.mu.Lock()
	a.remove(h)
	cert := h.slot.cert
	h.slot.cert = nil
	installed := s.installed(a)
	if installed {
		s.publish()
	}
	s.mu.Unlock()
	if cert != nil && installed {
		s.registry.release(cert) // else Install has done so
	}
}
