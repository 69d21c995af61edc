package ocsp

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// Options configures a [Stapler]. The zero value works: 256 staples in
// memory, 5 seconds for a fetch, the environment's proxies.
type Options struct {
	// Capacity is how many staples the cache holds; 0 means 256. It grows
	// to the number of certificates that have a responder.
	Capacity int

	// Timeout bounds one exchange with a responder, from the dial to the
	// last byte of the body; 0 means 5 s.
	Timeout time.Duration

	// PrepareTimeout bounds how long Prepare waits for the first staple of
	// a must-staple certificate; 0 means 15 s, negative: it never waits.
	PrepareTimeout time.Duration

	// Overrides replaces responder URLs as they stand in certificates by
	// others; an empty one means that this responder is never asked.
	Overrides map[string]string

	// Proxy chooses the HTTP proxy of a request; nil means
	// http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)

	// Transport carries the requests; nil means a transport of its own with
	// a deadline at each step. With a Transport, Proxy is ignored.
	Transport http.RoundTripper

	// Local returns an OCSP responder within this process for the
	// certificates of an issuer, or nil. It is asked instead of the
	// responders that the certificate names; its answers are verified like
	// any other.
	Local func(issuer *x509.Certificate) http.Handler

	// Issuer finds the issuer of a leaf whose chain does not contain it;
	// nil, or a nil result, means that it is unknown, until the chain of a
	// certificate that is prepared later contains it.
	Issuer func(leaf *x509.Certificate) *x509.Certificate

	// StateDir is the program's state directory: responses are kept in its
	// sub-directory ocsp. Empty: in memory alone.
	StateDir string

	// Store shares responses between replicas; nil: not shared.
	Store Store

	// OnRevoked is called once for every certificate found to be revoked,
	// without any lock held. It must return soon.
	OnRevoked func(leaf *x509.Certificate)

	Now    func() time.Time // the wall clock; nil means time.Now
	Logger *slog.Logger     // nil means slog.Default()
}

// Store is what a [Stapler] needs of a store shared by replicas. Keys are
// hashes, values opaque. What it returns is verified, never trusted. Errors
// make the stapler fetch for itself. It must be safe for concurrent use.
type Store interface {
	// Get returns the value at key; nil without an error when there is none.
	Get(ctx context.Context, key [32]byte) ([]byte, error)

	// Put sets the value at key, to be forgotten at the given time.
	Put(ctx context.Context, key [32]byte, value []byte, until time.Time) error

	// Claim reports whether the caller is the only one to have claimed key
	// within d: SET NX with a lifetime. Claims are not released.
	Claim(ctx context.Context, key [32]byte, d time.Duration) (bool, error)
}
