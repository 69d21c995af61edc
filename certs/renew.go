package certs

import (
	"crypto/sha256"
	"crypto/x509"
)

// Renew replaces a certificate that was revoked: one obtained by ACME is
// obtained anew, with a new key, once per certificate and in the background.
// For any other it returns [ErrNotACME], and nil for one that is no longer in
// use. One that is only being prepared is replaced once it is in use. The
// storage is looked at first: where it has another certificate by now, that one
// is taken.
func (s *Store) Renew(leaf *x509.Certificate) error {
	id := sha256.Sum256(leaf.Raw)
	s.registry.revoke(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		return nil
	}
	var err error
	for _, p := range s.set.providers {
		a, ok := p.(*acmeSource)
		if !ok {
			for _, sl := range p.list() {
				if sl.cert != nil && sl.cert.id == id {
					err = ErrNotACME
				}
			}
			continue
		}
		for _, h := range a.hosts {
			if h.slot.cert == nil || h.slot.cert.id != id || h.revoked != nil && h.revoked.id == id {
				continue
			}
			h.revoked = h.slot.cert
			select {
			case h.wake <- struct{}{}:
			default:
			}
		}
	}
	return err
}
