package front

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tlsproxy/tlsproxy/session"
)

// ClientAuth decides about client certificates. *clientauth.Verifier is one.
type ClientAuth interface {
	// Configure sets ClientAuth, ClientCAs and VerifyConnection of one
	// connection's config. The digest identifies the content that decides who
	// may enter, for the scope of the connection's session. An error refuses
	// the connection.
	Configure(config *tls.Config) (digest [32]byte, err error)
	// Rules identifies all that Configure and Authorize demand now. It changes
	// when they do, and when nobody may enter any more.
	Rules() string
	// Authorize runs after the handshake, resumed or not, and before HTTP: the
	// place for checks that touch the network. An error refuses the connection.
	Authorize(ctx context.Context, state tls.ConnectionState) error
}

// PolicyOptions describe the TLS policy of one site.
type PolicyOptions struct {
	// Site names the site in statuses and for the revocation of its sessions.
	Site string
	// MinVersion and MaxVersion bound the protocol version. Zero means TLS 1.2
	// and TLS 1.3; older versions are refused, RFC 8996.
	MinVersion, MaxVersion uint16
	// CipherSuites are the suites of TLS 1.2; those of TLS 1.3 are fixed. Empty
	// means the ones with forward secrecy and authenticated encryption.
	CipherSuites []uint16
	// Curves are the key exchanges, in no particular order. Empty means those
	// of crypto/tls, with its hybrid post-quantum ones.
	Curves []tls.CurveID
	// DisableHTTP2 offers HTTP/1.1 alone.
	DisableHTTP2 bool
	// DisableResumption makes every handshake a full one: no tickets in TLS 1.2
	// or 1.3.
	DisableResumption bool
	// GetCertificate picks the certificate of a full handshake. Required.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Keys are the keys (SHA-256 of RawSubjectPublicKeyInfo) of the
	// certificates that a name may be served with now: a session made with
	// another one does not resume. Required unless DisableResumption.
	Keys func(serverName string) [][32]byte
	// ClientAuth checks client certificates. Nil asks for none.
	ClientAuth ClientAuth
}

// Policy is the TLS policy of one site. It is immutable; make one with
// [NewPolicy].
type Policy struct {
	site       string
	id         string
	base       *tls.Config // cloned for each connection
	resume     bool
	get        func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	keys       func(string) [][32]byte
	clientAuth ClientAuth
	scopes     [len(proxyModes)]session.Scope // by the listener's ProxyMode, without client authentication
}

// NewPolicy checks the options and makes a policy of them.
func NewPolicy(o PolicyOptions) (*Policy, error) {
	o.MinVersion = cmp.Or(o.MinVersion, tls.VersionTLS12)
	o.MaxVersion = cmp.Or(o.MaxVersion, tls.VersionTLS13)
	if len(o.CipherSuites) == 0 {
		o.CipherSuites = defaultCipherSuites()
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("site %q: tls: %w", o.Site, err)
	}
	p := &Policy{
		site:       o.Site,
		resume:     !o.DisableResumption,
		get:        o.GetCertificate,
		keys:       o.Keys,
		clientAuth: o.ClientAuth,
		base: &tls.Config{
			MinVersion:             o.MinVersion,
			MaxVersion:             o.MaxVersion,
			CipherSuites:           slices.Clone(o.CipherSuites),
			CurvePreferences:       slices.Clone(o.Curves),
			NextProtos:             []string{"h2", "http/1.1"},
			SessionTicketsDisabled: o.DisableResumption,
		},
	}
	if o.DisableHTTP2 {
		p.base.NextProtos = []string{"http/1.1"}
	}
	// A config draws a key for its tickets when it is first used. Ours never use
	// it, so let it be drawn once, here, rather than for each clone.
	_, _ = p.base.DecryptTicket(nil, tls.ConnectionState{})
	p.identify()
	return p, nil
}

// ID identifies the policy by its content, client authentication by its site and by
// the rules that are in force there now: a request for a host of another ID than its
// connection's must not be served on that connection (421, RFC 9110, section
// 15.5.20).
func (p *Policy) ID() string {
	if p.clientAuth == nil {
		return p.id
	}
	return p.id + "." + p.clientAuth.Rules()
}

// identify computes the policy's ID and scopes from its content alone: no
// address, no name of a file, no counter, so that every replica agrees.
func (p *Policy) identify() {
	parts := func() *session.ScopeHash {
		suites := make([]string, 0, len(p.base.CipherSuites))
		for _, s := range slices.Sorted(slices.Values(p.base.CipherSuites)) {
			suites = append(suites, strconv.Itoa(int(s)))
		}
		curves := make([]string, 0, len(p.base.CurvePreferences))
		for _, c := range slices.Sorted(slices.Values(p.base.CurvePreferences)) {
			curves = append(curves, strconv.Itoa(int(c)))
		}
		return session.NewScope().
			Add("transport", "tcp").
			Add("versions", strconv.Itoa(int(p.base.MinVersion)), strconv.Itoa(int(p.base.MaxVersion))).
			Add("cipher suites", suites...).
			Add("curves", curves...).
			Add("alpn", p.base.NextProtos...)
	}
	for mode := range p.scopes {
		p.scopes[mode] = parts().Add("listener", ProxyMode(mode).String()).Sum()
	}
	id := parts().Add("resumption", strconv.FormatBool(p.resume))
	if p.clientAuth != nil {
		id.Add("client auth", p.site)
	}
	sum := id.Sum()
	p.id = hex.EncodeToString(sum[:8])
}

// scope is the scope of a connection's session: the policy's, that of the
// listener, and with client authentication the digest of what decides there.
func (p *Policy) scope(mode ProxyMode, clientAuth *[32]byte) session.Scope {
	s := p.scopes[mode]
	if clientAuth == nil {
		return s
	}
	return session.NewScope().Add("policy", string(s[:])).Add("client auth", string(clientAuth[:])).Sum()
}

func (o *PolicyOptions) check() error {
	var errs []error
	if o.GetCertificate == nil {
		errs = append(errs, errors.New("no GetCertificate"))
	}
	if o.Keys == nil && !o.DisableResumption {
		errs = append(errs, errors.New("no Keys: sessions could not be bound to a certificate"))
	}
	for _, v := range []uint16{o.MinVersion, o.MaxVersion} {
		if v != tls.VersionTLS12 && v != tls.VersionTLS13 {
			errs = append(errs, fmt.Errorf("version %s: only TLS 1.2 and TLS 1.3 are supported", tls.VersionName(v)))
		}
	}
	if o.MinVersion > o.MaxVersion {
		errs = append(errs, fmt.Errorf("min_version %s is above max_version %s", tls.VersionName(o.MinVersion), tls.VersionName(o.MaxVersion)))
	}
	return errors.Join(append(errs, o.checkCiphers(), o.checkCurves())...)
}

// checkCiphers refuses suites that crypto/tls does not have or calls insecure,
// and those that HTTP/2 forbids where HTTP/2 is offered, RFC 9113, section 9.2.2.
func (o *PolicyOptions) checkCiphers() error {
	var errs []error
	for _, id := range o.CipherSuites {
		i := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.ID == id })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("cipher suite %s is unknown or insecure", tls.CipherSuiteName(id)))
		case !slices.Contains(tls.CipherSuites()[i].SupportedVersions, uint16(tls.VersionTLS12)):
			errs = append(errs, fmt.Errorf("cipher suite %s is of TLS 1.3, whose suites are fixed", tls.CipherSuiteName(id)))
		case !o.DisableHTTP2 && !slices.Contains(defaultCipherSuites(), id):
			errs = append(errs, fmt.Errorf("cipher suite %s is forbidden with HTTP/2: leave it out or disable HTTP/2 for the site", tls.CipherSuiteName(id)))
		}
	}
	return errors.Join(errs...)
}

func (o *PolicyOptions) checkCurves() error {
	known := []tls.CurveID{
		tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521,
		tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024,
	}
	for _, c := range o.Curves {
		if !slices.Contains(known, c) {
			return fmt.Errorf("curve %v is unknown", c)
		}
	}
	hybrid := func(c tls.CurveID) bool {
		return c == tls.X25519MLKEM768 || c == tls.SecP256r1MLKEM768 || c == tls.SecP384r1MLKEM1024
	}
	if len(o.Curves) > 0 && o.MinVersion < tls.VersionTLS13 && !slices.ContainsFunc(o.Curves, func(c tls.CurveID) bool { return !hybrid(c) }) {
		return errors.New("curves: TLS 1.2 has no hybrid key exchange: add x25519 or p256, or set min_version to 1.3")
	}
	return nil
}

// defaultCipherSuites are the suites of TLS 1.2 with ephemeral keys and
// authenticated encryption, which are also the ones HTTP/2 allows.
func defaultCipherSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}
