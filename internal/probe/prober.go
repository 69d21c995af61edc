package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// httpALPN is what a client of a web server offers.
var httpALPN = []string{"h2", "http/1.1"}

// prober makes the handshakes of one probe, one after the other.
type prober struct {
	opts   options
	verify func([]byte, *x509.Certificate, *x509.Certificate, time.Time) (Staple, error)
	dialer net.Dialer
	suites []uint16

	alpn      []string          // offered where the protocol is not what is looked at
	leaf      *x509.Certificate // of the first handshake that succeeded
	connects  []time.Duration
	full      int // full handshakes looked at for a staple
	stapled   int // those that carried one
	lastState tls.ConnectionState
}

func newProber(opts options, verify func([]byte, *x509.Certificate, *x509.Certificate, time.Time) (Staple, error)) *prober {
	p := &prober{opts: opts, verify: verify, alpn: httpALPN}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		p.suites = append(p.suites, s.ID)
	}
	return p
}

// run probes the target. It returns an error when no handshake succeeded and
// when the probe as a whole took too long.
func (p *prober) run(ctx context.Context) (*Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*p.opts.timeout,
		fmt.Errorf("given up after %s: the server answers too slowly (see -timeout and -count)", 20*p.opts.timeout))
	defer cancel()
	t := p.opts.target
	r := &Report{Target: t.given, ServerName: t.serverName, Time: time.Now().UTC().Truncate(time.Second)}
	if err := p.probeVersions(ctx, r); err != nil {
		return nil, err
	}
	p.probeALPN(ctx, r)
	p.probeGroups(ctx, r)
	p.probeResumption(ctx, r)
	p.probeSessionIDs(ctx, r)
	p.probeAlso(ctx, r)
	r.Staple = p.describeStaple()
	r.Chain = p.describeChain()
	r.ConnectSeconds = sum(p.connects).Median
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r, nil
}

// handshake is shake with bookkeeping for the report.
func (p *prober) handshake(ctx context.Context, h hello) (shaken, error) {
	s, err := p.shake(ctx, p.opts.target, h)
	if err != nil {
		return s, err
	}
	p.connects = append(p.connects, s.connect)
	if p.leaf == nil {
		p.leaf = s.state.PeerCertificates[0]
	}
	if !s.state.DidResume {
		p.full++
		if len(s.state.OCSPResponse) > 0 {
			p.stapled++
		}
		p.lastState = s.state
	}
	return s, nil
}

// handshakeTime is the clock of the handshakes. crypto/tls offers no session
// whose certificate has expired; since such servers are worth a report too,
// time stands still for the handshake just before the certificate's end.
func (p *prober) handshakeTime() time.Time {
	now := time.Now()
	if p.leaf != nil && !now.Before(p.leaf.NotAfter) {
		return p.leaf.NotAfter.Add(-time.Second)
	}
	return now
}

// versions are the protocol versions tried, newest first so that the first
// success shows the server at its best.
func versions() []uint16 {
	return []uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}
}

func versionName(v uint16) string { return strings.TrimPrefix(tls.VersionName(v), "TLS ") }

// probeVersions offers each version alone.
func (p *prober) probeVersions(ctx context.Context, r *Report) error {
	var first error
	for _, v := range versions() {
		s, err := p.handshake(ctx, hello{version: v, alpn: p.alpn, sessions: &sessions{}, noTicket: true})
		out := Version{Version: versionName(v), Accepted: err == nil}
		if err != nil {
			first = cmpErr(first, err)
			out.Error = reason(err, p.opts.timeout)
			if unreachable(err) && r.Address == "" {
				return fmt.Errorf("%s: %s", p.opts.target.given, out.Error)
			}
		} else {
			out.CipherSuite = tls.CipherSuiteName(s.state.CipherSuite)
			out.Group = groupName(s.state.CurveID)
			r.Address = s.remote
			r.ClientAuth.Requested = r.ClientAuth.Requested || s.requested
			r.ClientAuth.Sent = r.ClientAuth.Requested && p.opts.cert != nil
		}
		r.Versions = append([]Version{out}, r.Versions...)
	}
	if r.Address == "" {
		hint := ""
		if strings.Contains(first.Error(), "certificate required") || strings.Contains(first.Error(), "bad certificate") {
			hint = " (does the server want a client certificate? see -cert and -key)"
		}
		return fmt.Errorf("%s: no handshake succeeded: %s%s", p.opts.target.given, reason(first, p.opts.timeout), hint)
	}
	return nil
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// unreachable tells a server that cannot be spoken to from one that refuses.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, context.Canceled)
}

// probeALPN offers each protocol alone, then settles on what the later
// handshakes offer: what the server takes, so that none fails for that.
func (p *prober) probeALPN(ctx context.Context, r *Report) {
	r.ALPN = []string{}
	for _, proto := range httpALPN {
		s, err := p.handshake(ctx, hello{alpn: []string{proto}, sessions: &sessions{}, noTicket: true})
		if err == nil && s.state.NegotiatedProtocol == proto {
			r.ALPN = append(r.ALPN, proto)
		}
	}
	switch {
	case slices.Contains(r.ALPN, "http/1.1"):
		p.alpn = []string{"http/1.1"} // in which a ticket can be asked for
	default:
		p.alpn = r.ALPN
	}
}

// groups are the key exchange groups tried, hybrids first.
func groups(version uint16) []tls.CurveID {
	classic := []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	if version < tls.VersionTLS13 {
		return classic
	}
	return append([]tls.CurveID{tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024}, classic...)
}

func groupName(id tls.CurveID) string {
	if id == 0 {
		return ""
	}
	name := id.String()
	if bits, ok := strings.CutPrefix(name, "CurveP"); ok {
		return "P-" + bits
	}
	return name
}

// probeGroups offers each group alone in the newest version accepted.
func (p *prober) probeGroups(ctx context.Context, r *Report) {
	r.Groups = []string{}
	v := newestAccepted(r)
	for _, g := range groups(v) {
		s, err := p.handshake(ctx, hello{version: v, alpn: p.alpn, groups: []tls.CurveID{g}, sessions: &sessions{}, noTicket: true})
		if err == nil && s.state.CurveID == g {
			r.Groups = append(r.Groups, groupName(g))
		}
	}
}

func accepted(r *Report, version uint16) bool {
	return slices.ContainsFunc(r.Versions, func(v Version) bool {
		return v.Accepted && v.Version == versionName(version)
	})
}

func newestAccepted(r *Report) uint16 {
	for _, v := range versions() {
		if accepted(r, v) {
			return v
		}
	}
	return 0
}

// trimTLS takes the prefix of crypto/tls off an error's text.
func trimTLS(err error) string { return strings.TrimPrefix(err.Error(), "tls: ") }
