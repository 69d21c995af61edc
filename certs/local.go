package certs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// localLifetime is the validity of certificates of the development CA. They
// are replaced when a third of it is left.
const localLifetime = 90 * 24 * time.Hour

// localSource is a certificate of the development CA.
type localSource struct {
	hosts []string
	def   bool
	slot  *slot
}

func (l *localSource) list() []*slot   { return []*slot{l.slot} }
func (l *localSource) isDefault() bool { return l.def }

// local loads a source of the development CA: it keeps the certificate that an
// unchanged source has.
func (l *loading) local(i int, src *Source) provider {
	hosts, errs := canonicalHosts("local.hosts", src.Local.Hosts)
	if len(hosts) == 0 && len(errs) == 0 {
		errs = append(errs, &fieldError{field: "local.hosts", err: errors.New("at least one name is needed")})
	}
	if l.store.options.StateDir == "" {
		errs = append(errs, &fieldError{field: "local", err: errors.New("a state directory is needed to keep the development CA in")})
	}
	if len(errs) == 0 && l.check {
		if err := pki.Check(l.store.localDir()); err != nil {
			errs = append(errs, &fieldError{field: "local", err: fmt.Errorf("development CA: %w", err)})
		}
	}
	l.fail(i, errs...)
	if len(errs) > 0 || l.check {
		return nil
	}
	for _, have := range providersOf[*localSource](l.old) {
		if slices.Equal(have.hosts, hosts) && have.def == src.Default {
			return have
		}
	}
	c, err := l.store.issueLocal(hosts)
	if err != nil {
		l.fail(i, &fieldError{field: "local", err: fmt.Errorf("development CA: %w", err)})
		return nil
	}
	c = l.store.acquire(c, hosts[0])
	return &localSource{
		hosts: hosts,
		def:   src.Default,
		slot:  &slot{label: hosts[0], source: "local", cert: c, next: "renewal", nextAt: renewLocalAt(c)},
	}
}

// canonicalHosts returns the names of a list in canonical form.
func canonicalHosts(field string, hosts []string) (names []string, errs []*fieldError) {
	for i, host := range hosts {
		at := fmt.Sprintf("%s[%d]", field, i)
		name, ok := canonicalHost(host)
		switch {
		case !ok:
			errs = append(errs, &fieldError{field: at, err: fmt.Errorf("%q is not a host name, wildcard or IP address", host)})
		case slices.Contains(names, name):
			errs = append(errs, &fieldError{field: at, err: fmt.Errorf("%q is there twice", host)})
		default:
			names = append(names, name)
		}
	}
	return names, errs
}

// issueLocal makes a certificate, and the CA if there is none yet.
func (s *Store) issueLocal(hosts []string) (*certificate, error) {
	ca, err := pki.LoadOrCreate(s.localDir(), pki.CAOptions{Name: "tlsproxy development CA"})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.local == nil || !s.local.Certificate.Equal(ca.Certificate) {
		s.local = ca
	}
	s.mu.Unlock()
	req := pki.Request{Names: hosts, NotBefore: time.Now().Add(-time.Hour)}
	req.NotAfter = req.NotBefore.Add(localLifetime)
	if end := ca.Certificate.NotAfter; req.NotAfter.After(end) {
		req.NotAfter = end
	}
	if s.options.LocalResponder != "" {
		req.OCSPServers = []string{s.options.LocalResponder}
	}
	cert, err := ca.Issue(req)
	if err != nil {
		return nil, err
	}
	return fromTLS(cert)
}

func renewLocalAt(c *certificate) time.Time {
	leaf := c.tls.Leaf
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// renewLocal replaces those certificates of the development CA that are due,
// and returns when to look again.
func (s *Store) renewLocal(ctx context.Context, now time.Time) (next time.Time) {
	s.mu.Lock()
	var due []*localSource
	for _, l := range providersOf[*localSource](s.set) {
		switch {
		case !now.Before(l.slot.nextAt):
			due = append(due, l)
		case next.IsZero() || l.slot.nextAt.Before(next):
			next = l.slot.nextAt
		}
	}
	s.mu.Unlock()
	for _, l := range due {
		at := s.renewOneLocal(ctx, l, now)
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (s *Store) renewOneLocal(ctx context.Context, l *localSource, now time.Time) (next time.Time) {
	c, err := s.issueLocal(l.hosts)
	if err != nil {
		s.log.Error("certificate of the development CA was not renewed", "names", l.hosts, "err", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		l.slot.fail(err, now)
		l.slot.nextAt = now.Add(time.Minute)
		return l.slot.nextAt
	}
	s.mu.Lock()
	// A CA near its end gives little: do not spin.
	l.slot.nextAt = renewLocalAt(c)
	if soon := now.Add(time.Minute); l.slot.nextAt.Before(soon) {
		l.slot.nextAt = soon
	}
	next = l.slot.nextAt
	s.mu.Unlock()
	held, _ := s.registry.acquire(c)
	if s.replace(ctx, l, l.slot, held) {
		s.log.Info("certificate renewed by the development CA", "names", l.hosts, "not_after", c.tls.Leaf.NotAfter)
	}
	return next
}
