package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// Options configure a [Store]. The zero value serves certificates from files.
type Options struct {
	// StateDir is where ACME accounts, certificates and the development CA
	// are kept, below "acme" and "local". Required for those sources only.
	StateDir string
	// Storage keeps ACME data instead of StateDir; one that replicas share
	// makes them obtain each certificate once.
	Storage certmagic.Storage
	// LocalResponder is the URL of the OCSP responder that is written into
	// certificates of the development CA; "": none.
	LocalResponder string

	// Prepare is called before a certificate is first used, when another one
	// can serve meanwhile, or else soon after, and may wait until its staple
	// is there. An error is logged and the certificate used all the same.
	Prepare func(context.Context, *tls.Certificate) error
	// Release is called when a prepared certificate is no longer used.
	Release func(*tls.Certificate)
	// PrepareTimeout bounds each call of Prepare. 0: 10 s.
	PrepareTimeout time.Duration

	// PollInterval is how often files are looked at, because not every file
	// system reports changes. 0: 30 s, and 1 s where files cannot be watched
	// at all.
	PollInterval time.Duration
	// Logger; nil means slog.Default().
	Logger *slog.Logger
}

// Store holds the certificates in use. It is safe for concurrent use.
type Store struct{}

// Set is a loaded list of sources, ready to be installed once.
type Set struct {
	// RejectUnknownSNI refuses handshakes for names that no certificate
	// carries, instead of serving the default one. Set it before Install. A
	// client that sends no name gets the default certificate all the same.
	RejectUnknownSNI bool
}

// New makes a Store without certificates.
func New(o Options) (*Store, error) { return nil, nil }

// Check validates sources as Load does, but writes and contacts nothing: it
// makes no CA and does not look into a Storage that was given.
func (s *Store) Check(ctx context.Context, sources []Source) error { return nil }

// Load validates and loads sources. The error, a [SourceErrors], tells all
// that is wrong. A certificate that is already installed is taken over as it
// is; a new one is prepared, which ctx may cut short. A set that will not be
// installed must be given to Discard.
func (s *Store) Load(ctx context.Context, sources []Source) (*Set, error) { return nil, nil }

// Install makes set the one that is served from now on.
func (s *Store) Install(set *Set) {}

// Discard gives up a set that was loaded but not installed.
func (s *Store) Discard(set *Set) {}

// Run watches files, obtains and renews certificates until ctx is done, and
// returns nil then. It must run once at a time.
func (s *Store) Run(ctx context.Context) error { return nil }

// GetCertificate is a function for [tls.Config]: it picks the certificate for
// a hello. It answers TLS-ALPN challenges (RFC 8737) of hellos that offer
// acme-tls/1 alone. It waits only for a name to be obtained on demand.
func (s *Store) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, ErrUnknownName
}

// Keys returns the SHA-256 hashes of the public keys (RawSubjectPublicKeyInfo)
// of all certificates that a hello with this server name may be served with
// now; "" stands for a hello without one. The slice must not be modified.
func (s *Store) Keys(serverName string) [][32]byte { return nil }

// Issuer returns the certificate that issued leaf if it came with any
// installed certificate, else nil.
func (s *Store) Issuer(leaf *x509.Certificate) *x509.Certificate { return nil }

// Renew replaces a certificate that was revoked: one obtained by ACME is
// obtained anew, with a new key, once per certificate and in the background.
// For any other it returns [ErrNotACME], and nil for one that is no longer in
// use.
func (s *Store) Renew(leaf *x509.Certificate) error { return nil }

// HTTPChallenge answers HTTP-01 challenges (RFC 8555, section 8.3) for the
// installed ACME sources and gives every other request to next.
func (s *Store) HTTPChallenge(next http.Handler) http.Handler { return next }

// LocalCA returns the development CA once a Local source has been loaded,
// else nil. Its OCSP responder is the caller's to run.
func (s *Store) LocalCA() *pki.CA { return nil }

// Status describes every certificate in the order of the sources.
func (s *Store) Status() []Status { return nil }

// Stats returns counters.
func (s *Store) Stats() Stats { return Stats{} }
