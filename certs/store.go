package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"golang.org/x/sync/errgroup"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// Options configure a [Store]. The zero value serves certificates from files.
type Options struct {
	// StateDir is where ACME accounts, certificates and the development CA
	// are kept, below "acme" and "local". Required for those sources only.
	StateDir string
	// Storage keeps ACME data instead of StateDir; one that replicas share
	// makes them obtain each certificate once. What it lacks it gets from
	// StateDir.
	Storage certmagic.Storage
	// LocalResponder is the URL of the OCSP responder that is written into
	// certificates of the development CA; "": none.
	LocalResponder string

	// Prepare is called before a certificate is first used, and may wait
	// until its staple is there. An error is logged, the certificate used all
	// the same and Prepare called again later.
	Prepare func(context.Context, *tls.Certificate) error
	// Release is called once for each successful Prepare, when the
	// certificate is no longer used.
	Release func(*tls.Certificate)

	// PollInterval is how often files are looked at, because not every file
	// system reports changes. 0: 30 s, and 1 s where files cannot be watched
	// at all.
	PollInterval time.Duration
	// Logger; nil means slog.Default().
	Logger *slog.Logger
}

// Store holds the certificates in use. It is safe for concurrent use.
type Store struct {
	options  Options
	log      *slog.Logger
	registry registry
	stats    counters
	index    atomic.Pointer[index]

	mu    sync.Mutex // guards set, its slots, and local
	set   *Set       // installed; nil: none yet
	local *pki.CA    // nil: no Local source was loaded

	filesWake, acmeWake chan struct{} // something was installed
	seams               seams
	acme                acmeRuntime
}

// seams are what tests replace.
type seams struct {
	newWatcher func() (watcher, error)
	backoff    func(failures int) time.Duration
	// The bounds for asking about renewal (RFC 9773, section 4.3.2).
	ariMin, ariMax time.Duration
}

// counters is the live form of [Stats].
type counters struct {
	reloads, reloadFailures  atomic.Uint64
	obtained, obtainFailures atomic.Uint64
	onDemandRefused          atomic.Uint64
	polling                  atomic.Bool
	watched                  atomic.Int64 // directories
}

// New makes a Store without certificates.
func New(o Options) (*Store, error) {
	if o.PollInterval < 0 {
		return nil, fmt.Errorf("poll interval %v: must not be negative", o.PollInterval)
	}
	s := &Store{
		options:   o,
		log:       cmp.Or(o.Logger, slog.Default()),
		filesWake: make(chan struct{}, 1),
		acmeWake:  make(chan struct{}, 1),
		seams:     seams{newInotify, backoff, time.Minute, 24 * time.Hour},
	}
	s.registry = registry{prepareHook: o.Prepare, releaseHook: o.Release, log: s.log}
	s.index.Store(newIndex(nil, nil, time.Now()))
	return s, nil
}

// Run watches files, obtains and renews certificates until ctx is done, and
// returns nil then. It must run once at a time.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.runFiles(ctx) })
	g.Go(func() error { return s.runACME(ctx) })
	return g.Wait()
}

// wake tells the loops of Run that something was installed.
func (s *Store) wake() {
	for _, c := range []chan struct{}{s.filesWake, s.acmeWake} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// GetCertificate is a function for [tls.Config]: it picks the certificate for
// a hello. It answers TLS-ALPN challenges (RFC 8737) of hellos that offer
// acme-tls/1 alone. It waits only for a name to be obtained on demand.
func (s *Store) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if isChallenge(hello) {
		return s.challengeCertificate(hello)
	}
	ix := s.index.Load()
	if e := ix.lookup(hello.ServerName, hello.Conn); e != nil {
		return e.pick(hello), nil
	}
	if len(ix.demand) > 0 && hello.ServerName != "" {
		if cert := s.obtainOnDemand(hello); cert != nil {
			return cert, nil
		}
	}
	if e := ix.fallback(hello.ServerName); e != nil {
		return e.pick(hello), nil
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownName, hello.ServerName)
}

// lookup returns the entry whose certificates carry the name, or, for a client
// that sent none, the address it connected to; nil if there is none.
func (ix *index) lookup(serverName string, conn net.Conn) *entry {
	if serverName == "" {
		return ix.findIP(conn)
	}
	name, ok := canonicalName(serverName)
	if !ok {
		return nil
	}
	return ix.find(name)
}

// fallback returns the default entry, nil if there is none for this client.
func (ix *index) fallback(serverName string) *entry {
	if ix.reject && serverName != "" {
		return nil
	}
	return ix.def
}

// Keys returns the SHA-256 hashes of the public keys (RawSubjectPublicKeyInfo)
// of all certificates that a hello with this server name may be served with
// now; "" stands for a hello without one. The slice must not be modified.
func (s *Store) Keys(serverName string) [][32]byte {
	ix := s.index.Load()
	if serverName == "" {
		return ix.noName
	}
	e := ix.lookup(serverName, nil)
	if e == nil {
		e = ix.fallback(serverName)
	}
	if e == nil {
		return nil
	}
	return e.keys
}

// Issuer returns the certificate that issued leaf if it came with any
// certificate that is installed or about to be, else nil.
func (s *Store) Issuer(leaf *x509.Certificate) *x509.Certificate {
	if selfSigned(leaf) {
		return leaf
	}
	if ca := s.LocalCA(); ca != nil && ca.IssuedBy(leaf) {
		return ca.Certificate
	}
	for _, c := range s.registry.certificates() {
		for _, der := range c.tls.Certificate[1:] {
			if ca, err := x509.ParseCertificate(der); err == nil && issued(ca, leaf) {
				return ca
			}
		}
	}
	return nil
}

// LocalCA returns the development CA once a Local source has been loaded,
// else nil. Its OCSP responder is the caller's to run.
func (s *Store) LocalCA() *pki.CA {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// Stats returns counters.
func (s *Store) Stats() Stats {
	return Stats{
		Reloads:         s.stats.reloads.Load(),
		ReloadFailures:  s.stats.reloadFailures.Load(),
		Obtained:        s.stats.obtained.Load(),
		ObtainFailures:  s.stats.obtainFailures.Load(),
		OnDemandRefused: s.stats.onDemandRefused.Load(),
		Polling:         s.stats.polling.Load(),
		Watched:         int(s.stats.watched.Load()),
	}
}

// localDir is where the development CA lies.
func (s *Store) localDir() string { return filepath.Join(s.options.StateDir, "local") }
