package ocsp

import (
	"context"
	"crypto/tls"
)

// Stapler keeps a response for every certificate it was told of and staples
// it. Make one with [New]. All methods are safe for concurrent use.
type Stapler struct {
	opts Options
}

// New returns a stapler that works once [Stapler.Run] is called. It reads and
// contacts nothing.
func New(o Options) (*Stapler, error) { return &Stapler{opts: o}, nil }

// Run fetches and refreshes responses until ctx is done, then returns nil.
func (s *Stapler) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Prepare makes the stapler responsible for cert, whose Leaf must be set,
// before it is first served, and takes over what the state directory holds
// for it. Each Prepare is paired with one Release.
//
// It contacts nobody and returns at once, except for a must-staple
// certificate while Run is running: then it waits for the first staple, until
// ctx is done or Options.PrepareTimeout has passed, and after that returns nil
// all the same: the certificate is to be served, and the missing staple shows
// in the log and in the status. An error means that cert is unusable or that
// ctx is done; cert is then not registered.
func (s *Stapler) Prepare(ctx context.Context, cert *tls.Certificate) error { return nil }

// Release ends what Prepare began, when cert is served no more.
func (s *Stapler) Release(cert *tls.Certificate) {}

// GetCertificate wraps next so that what it returns carries a staple when
// there is one: on an immutable copy of the certificate, which is made once
// per staple. A certificate that was not prepared passes unchanged.
func (s *Stapler) GetCertificate(next func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return next
}

// Status describes every registered certificate, ordered by its first name.
func (s *Stapler) Status() []CertificateStatus { return nil }

// Stats returns the counters and gauges.
func (s *Stapler) Stats() Stats { return Stats{} }
