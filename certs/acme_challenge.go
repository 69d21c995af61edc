package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/mholt/acmez/v3"
)

// challengePath is where a CA asks for HTTP-01 (RFC 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// isChallenge reports whether a hello is a TLS-ALPN-01 validation: it offers
// acme-tls/1 alone (RFC 8737, section 3). Among other protocols it means
// nothing.
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acmez.ACMETLS1Protocol
}

// challengeCertificate returns the certificate that answers a TLS-ALPN-01
// validation, of an order that this replica or another one placed.
func (s *Store) challengeCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name, ok := canonicalName(hello.ServerName)
	if ok && name != "" {
		for _, m := range s.challenged(name, TLSALPN01) {
			// On an error the library returns a certificate too, an empty one.
			cert, err := m.config.GetCertificate(withContext(hello))
			if err != nil {
				continue
			}
			own := *cert // it belongs to all who validate at the same time
			return &own, nil
		}
	}
	return nil, fmt.Errorf("%w: no validation of %q is under way", ErrUnknownName, hello.ServerName)
}

// withContext gives the library the connection that it logs; hellos made
// without one are of tests only.
func withContext(hello *tls.ClientHelloInfo) *tls.ClientHelloInfo {
	if hello.Conn != nil {
		return hello
	}
	copied := *hello
	copied.Conn = noConn{}
	return &copied
}

type noConn struct{ net.Conn }

func (noConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }
func (noConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }

// challenged returns the running sources that a challenge can be for.
func (s *Store) challenged(name string, c Challenge) []*magic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*magic
	for _, a := range providersOf[*acmeSource](s.set) {
		if a.mayBeChallenged(name, c) {
			if m := a.magic.Load(); m != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// HTTPChallenge answers HTTP-01 challenges (RFC 8555, section 8.3) for the
// installed ACME sources and gives every other request to next.
func (s *Store) HTTPChallenge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, challengePath) && s.answer(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Store) answer(w http.ResponseWriter, r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	name, ok := canonicalHost(host)
	if !ok {
		return false
	}
	for _, m := range s.challenged(name, HTTP01) {
		if m.issuer.HandleHTTPChallenge(w, r) {
			return true
		}
	}
	return false
}

// helloContext is the context of a hello, which has none in tests.
func helloContext(hello *tls.ClientHelloInfo) context.Context {
	if ctx := hello.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
