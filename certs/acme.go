package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"
)

type acmeRuntime struct{}
type acmeSource struct{ config *ACME }

func (a *acmeSource) list() []*slot   { return nil }
func (a *acmeSource) isDefault() bool { return false }

func (l *loading) acme(ctx context.Context, i int, src *Source) provider { return nil }
func (s *Store) runACME(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
func backoff(n int) time.Duration             { return 0 }
func isChallenge(h *tls.ClientHelloInfo) bool { return false }
func (s *Store) challengeCertificate(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, nil
}
func (s *Store) obtainOnDemand(h *tls.ClientHelloInfo) *tls.Certificate { return nil }

// Renew replaces a certificate that was revoked: one obtained by ACME is
// obtained anew, with a new key, once per certificate and in the background.
// For any other it returns [ErrNotACME], and nil for one that is no longer in
// use.
func (s *Store) Renew(leaf *x509.Certificate) error { return ErrNotACME }

// HTTPChallenge answers HTTP-01 challenges (RFC 8555, section 8.3) for the
// installed ACME sources and gives every other request to next.
func (s *Store) HTTPChallenge(next http.Handler) http.Handler { return next }
