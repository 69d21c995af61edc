package ocsp

import (
	"crypto/sha256"
	"crypto/tls"
	"sync/atomic"
	"time"
)

// staple is what the cache holds for a leaf. Only current is ever changed.
type staple struct {
	der     []byte
	expires time.Time // by the wall clock, which the cache's own clock need not follow
	current atomic.Pointer[stapled]
}

// stapled is a certificate and its copy that carries the staple.
type stapled struct{ plain, copy *tls.Certificate }

// GetCertificate wraps next so that what it returns carries a staple when
// there is one: on an immutable copy of the certificate, which is made once
// per staple. A certificate that was not prepared passes unchanged.
func (s *Stapler) GetCertificate(next func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := next(hello)
		if err != nil || cert == nil || len(cert.Certificate) == 0 {
			return cert, err
		}
		return s.withStaple(cert), nil
	}
}

// withStaple returns cert with its current staple, or cert itself.
func (s *Stapler) withStaple(cert *tls.Certificate) *tls.Certificate {
	st, ok := s.cache.Get(sha256.Sum256(cert.Certificate[0]))
	if !ok || !s.opts.Now().Before(st.expires) {
		return cert
	}
	if c := st.current.Load(); c != nil && c.plain == cert {
		return c.copy
	}
	c := *cert
	c.OCSPStaple = st.der
	st.current.Store(&stapled{plain: cert, copy: &c})
	return &c
}
