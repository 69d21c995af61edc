package clientauth

import "errors"

// Reason is why a client was refused, one of a closed set that is fit for a
// metric's label.
type Reason string

// The reasons.
const (
	// Missing: the site requires a certificate and the client sent none.
	Missing Reason = "client_cert_missing"
	// Invalid: the certificate does not chain to an authority of the site, is
	// out of date, or is not meant for client authentication.
	Invalid Reason = "client_cert_invalid"
	// Denied: the certificate is valid but not on the site's allow-list.
	Denied Reason = "client_cert_denied"
	// Revoked: a CRL or an OCSP response says that the certificate, or an
	// authority above it, was revoked.
	Revoked Reason = "client_cert_revoked"
	// Unchecked: the revocation state cannot be established and the site's rules
	// demand it: no CRL covers the certificate, the CRL is out of date, or the
	// OCSP check is hard and got no answer.
	Unchecked Reason = "client_cert_unchecked"
	// Unavailable: a file of the site is missing or broken, so nobody enters.
	Unavailable Reason = "client_auth_unavailable"
)

// Error is the refusal of a client.
type Error struct {
	// Reason is the kind of refusal.
	Reason Reason
	// Err says what was wrong, with the names of the file and the certificate.
	Err error
}

// Error gives the cause in words.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// HandshakeReason is the reason as a label value, in the form in which package
// front asks an error for it.
func (e *Error) HandshakeReason() string { return string(e.Reason) }

// refuse makes an *Error of a reason and a cause.
func refuse(r Reason, err error) error { return &Error{Reason: r, Err: err} }

// isRevoked reports whether an error of a RevocationChecker says that the
// certificate is revoked, rather than that no answer was to be had.
func isRevoked(err error) bool {
	var r interface{ Revoked() bool }
	return errors.As(err, &r) && r.Revoked()
}
