package clientauth

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the rules of one site and where they lie.
type Options struct {
	// Site names the site in logs and errors.
	Site string
	// Mode is what the site asks of clients. Every other field but CAFiles must
	// be empty unless the mode verifies.
	Mode Mode
	// CAFiles are PEM files of the certificates that the site trusts to sign
	// client certificates. All of them together are the trust anchors, also
	// those that are not self-signed. Needed when the mode verifies; with
	// [Request] they are only named to the client, as a hint.
	CAFiles []string
	// Allow are entries of the allow-list (see [ParseAllow]). Without Allow and
	// AllowFiles every verified certificate enters; with either only those that
	// match an entry.
	Allow []string
	// AllowFiles are files of allow-list entries, one a line; text after # is a
	// comment. A file without entries allows nobody.
	AllowFiles []string
	// CRLFiles are files with certificate revocation lists, complete or delta,
	// PEM or DER. With any, every certificate of a client's chain below the
	// trust anchor must be covered by a current list of its issuer.
	CRLFiles []string
	// AllowExpiredCRL keeps using a list after its nextUpdate. By default an
	// outdated list covers nothing, so its issuer's certificates are refused.
	AllowExpiredCRL bool
	// OCSP says whether and how Checker decides.
	OCSP OCSPMode
	// Checker is asked about client certificates; needed unless OCSP is Off.
	Checker RevocationChecker
	// OCSPTimeout bounds the check of one connection. Zero means 5 s.
	OCSPTimeout time.Duration
	// PollInterval is how often the files are looked at, beside the file
	// system's notices. Zero means 30 s.
	PollInterval time.Duration
	// Predecessor is the verifier of the same site that this one takes over from:
	// the counters go on where they stand. Nil means that they begin at zero.
	Predecessor *Verifier
	// Logger takes the log. Nil means slog.Default().
	Logger *slog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Verifier holds the rules of one site and applies them. It is safe for
// concurrent use.
type Verifier struct {
	site            string
	mode            Mode
	files           fileSet
	inline          []string
	allowExpiredCRL bool
	ocsp            OCSPMode
	checker         RevocationChecker
	ocspTimeout     time.Duration
	poll            time.Duration
	log             *slog.Logger
	now             func() time.Time

	reload  sync.Mutex // one reload at a time
	current atomic.Pointer[Snapshot]
	verify  func(tls.ConnectionState) error // VerifyConnection, made once

	*counters
}

// New reads the files and returns a Verifier of them. It fails if the options
// contradict each other or a file is missing or broken; later, such a file
// closes the site instead (see [Verifier.Run]).
func New(o Options) (*Verifier, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	v := &Verifier{
		site:            o.Site,
		mode:            o.Mode,
		files:           fileSet{ca: o.CAFiles, allow: o.AllowFiles, crl: o.CRLFiles},
		inline:          o.Allow,
		allowExpiredCRL: o.AllowExpiredCRL,
		ocsp:            o.OCSP,
		checker:         o.Checker,
		ocspTimeout:     o.OCSPTimeout,
		poll:            o.PollInterval,
		log:             o.Logger,
		now:             o.Now,
		counters:        new(counters),
	}
	if o.Predecessor != nil {
		v.counters = o.Predecessor.counters
	}
	if v.ocspTimeout <= 0 {
		v.ocspTimeout = defaultOCSPTimeout
	}
	if v.poll <= 0 {
		v.poll = defaultPoll
	}
	if v.log == nil {
		v.log = slog.Default()
	}
	if v.now == nil {
		v.now = time.Now
	}
	v.verify = v.VerifyConnection

	s := v.load()
	if s.Err != nil {
		return nil, s.Err
	}
	v.current.Store(s)
	return v, nil
}

// check finds options that contradict each other.
func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Mode > Require {
		bad("client_auth mode %d is unknown", o.Mode)
	}
	if o.Mode.Verifies() {
		if len(o.CAFiles) == 0 {
			bad("client_auth mode %s needs a ca_file: without one nobody could be verified", o.Mode)
		}
	} else {
		if len(o.Allow)+len(o.AllowFiles) > 0 {
			bad("client_auth mode %s does not verify certificates, so an allow-list has no effect: use verify_if_given or require", o.Mode)
		}
		if len(o.CRLFiles) > 0 {
			bad("client_auth mode %s does not verify certificates, so a crl_file has no effect: use verify_if_given or require", o.Mode)
		}
		if o.OCSP != Off {
			bad("client_auth mode %s does not verify certificates, so ocsp has no effect: use verify_if_given or require", o.Mode)
		}
	}
	if o.OCSP != Off && o.Checker == nil {
		bad("client_auth ocsp %s needs a checker", o.OCSP)
	}
	return errors.Join(errs...)
}

// Current returns the rules now in force. It is never nil.
func (v *Verifier) Current() *Snapshot { return v.current.Load() }

// Rules identifies the rules now in force; see [Snapshot.Rules]. A connection that was
// made under others does not pass for one that was made under these.
func (v *Verifier) Rules() string { return v.current.Load().Rules }

// Configure puts the rules now in force into the config of one connection: it
// sets ClientAuth, ClientCAs and VerifyConnection. The digest identifies the
// content that decides who may enter (mode, authorities, allow-list) and is
// meant for the scope of the connection's session. An error means that the site
// cannot tell who may enter and the connection must be refused.
func (v *Verifier) Configure(config *tls.Config) (digest [32]byte, err error) {
	s := v.current.Load()
	if s.Err != nil {
		v.refusals.count(Unavailable)
		return [32]byte{}, refuse(Unavailable, s.Err)
	}
	config.ClientAuth = s.Mode.tlsType()
	config.ClientCAs = s.Pool
	config.VerifyConnection = v.verify
	return s.Digest, nil
}

// VerifyConnection applies the rules now in force to a connection, resumed or
// not: it has the form of the field of tls.Config. The error is an *[Error].
func (v *Verifier) VerifyConnection(state tls.ConnectionState) error {
	err := v.current.Load().verify(state, v.now())
	if e, ok := errors.AsType[*Error](err); ok {
		v.refusals.count(e.Reason)
	}
	return err
}
