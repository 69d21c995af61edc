package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Reason is why a connection did not reach HTTP: one of a closed set, fit for
// the label of a metric.
type Reason string

// The reasons. The empty reason means success.
const (
	ReasonTimeout         Reason = "timeout"                 // the handshake was not done in time
	ReasonEOF             Reason = "eof"                     // the client closed or reset the connection
	ReasonPlainHTTP       Reason = "plain_http"              // the client spoke HTTP without TLS
	ReasonBadRecord       Reason = "bad_record"              // the first bytes are no TLS
	ReasonNoSharedVersion Reason = "no_shared_version"       // no TLS version in common
	ReasonNoSharedCipher  Reason = "no_shared_cipher"        // no cipher suite, curve or signature algorithm in common
	ReasonNoSharedALPN    Reason = "no_shared_alpn"          // no application protocol in common
	ReasonUnknownSNI      Reason = "unknown_sni"             // no site has the name, and unknown names are refused
	ReasonNoCertificate   Reason = "no_certificate"          // there is no certificate for the name, or getting it failed
	ReasonCertMissing     Reason = "client_cert_missing"     // the site requires a client certificate
	ReasonCertInvalid     Reason = "client_cert_invalid"     // the client's certificate does not verify
	ReasonCertDenied      Reason = "client_cert_denied"      // it is not on the allow-list
	ReasonCertRevoked     Reason = "client_cert_revoked"     // it was revoked
	ReasonCertUnchecked   Reason = "client_cert_unchecked"   // its revocation state is not to be had
	ReasonAuthUnavailable Reason = "client_auth_unavailable" // a CA, CRL or allow-list file of the site is broken
	ReasonSessionRevoked  Reason = "session_revoked"         // the resumed session was revoked during the handshake
	ReasonRateLimited     Reason = "rate_limited"            // the client's address made too many handshakes
	ReasonClientLimit     Reason = "client_limit"            // the client's address has too many connections open
	ReasonProxyHeader     Reason = "proxy_header"            // PROXY header missing, malformed, or from a source not trusted
	ReasonClientAlert     Reason = "client_alert"            // the client refused the handshake with an alert
	ReasonProtocol        Reason = "protocol_error"          // the client broke the protocol
	ReasonShutdown        Reason = "shutdown"                // nobody takes connections any more
	ReasonInternal        Reason = "internal"                // a fault of this program
	ReasonOther           Reason = "other"                   // none of these
)

// Reasons returns every reason a connection can fail for.
func Reasons() []Reason {
	return []Reason{
		ReasonTimeout, ReasonEOF, ReasonPlainHTTP, ReasonBadRecord, ReasonNoSharedVersion, ReasonNoSharedCipher,
		ReasonNoSharedALPN, ReasonUnknownSNI, ReasonNoCertificate, ReasonCertMissing, ReasonCertInvalid, ReasonCertDenied,
		ReasonCertRevoked, ReasonCertUnchecked, ReasonAuthUnavailable, ReasonSessionRevoked, ReasonRateLimited,
		ReasonClientLimit, ReasonProxyHeader, ReasonClientAlert, ReasonProtocol, ReasonShutdown, ReasonInternal, ReasonOther,
	}
}

// failure is an error with its reason known.
type failure struct {
	reason Reason
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail makes an error of a known reason.
func fail(r Reason, err error) error { return &failure{reason: r, err: err} }

// reasonOf finds the reason of an error of a handshake. Errors of ours carry
// it; a client-certificate verifier tells it by a method HandshakeReason; what
// crypto/tls returns has types for some causes and only words for others.
func reasonOf(err error) Reason {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.reason
	}
	var told interface{ HandshakeReason() string }
	if errors.As(err, &told) {
		return closed(Reason(told.HandshakeReason()))
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return ReasonBadRecord
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ReasonCertInvalid
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ReasonEOF
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return ReasonClientAlert
	}
	return reasonOfWords(err.Error())
}

// closed keeps a reason that came from outside within the closed set.
func closed(r Reason) Reason {
	switch r {
	case ReasonCertMissing, ReasonCertInvalid, ReasonCertDenied, ReasonCertRevoked, ReasonCertUnchecked, ReasonAuthUnavailable:
		return r
	}
	return ReasonOther
}

// reasonOfWords reads the errors of crypto/tls that have no type. A test makes
// each of them happen, so that a Go release that rewords one is noticed.
func reasonOfWords(text string) Reason {
	for _, w := range []struct {
		words  string
		reason Reason
	}{
		{"client offered only unsupported versions", ReasonNoSharedVersion},
		{"client using inappropriate protocol fallback", ReasonNoSharedVersion},
		{"no cipher suite supported by both", ReasonNoSharedCipher},
		{"no key exchanges supported by both", ReasonNoSharedCipher},
		{"no mutually supported", ReasonNoSharedCipher},
		{"no supported elliptic curves", ReasonNoSharedCipher},
		{"peer doesn't support any of the certificate's signature algorithms", ReasonNoSharedCipher},
		{"peer doesn't support the certificate custom signature algorithms", ReasonNoSharedCipher},
		{"client requested unsupported application protocols", ReasonNoSharedALPN},
		{"no certificates configured", ReasonNoCertificate},
		{"client didn't provide a certificate", ReasonCertMissing},
		{"client certificate", ReasonCertInvalid},
	} {
		if strings.Contains(text, w.words) {
			return w.reason
		}
	}
	if strings.HasPrefix(text, "tls: ") || strings.HasPrefix(text, "local error: tls: ") {
		return ReasonProtocol
	}
	return ReasonOther
}
