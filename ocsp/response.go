package ocsp

import (
	"crypto/x509"
	"math/big"
	"time"
)

// Status is what a verified response says about the certificate.
type Status int

// The answers of RFC 6960, section 2.2. There is no zero answer.
const (
	Good Status = iota + 1
	Revoked
	Unknown
)

// String returns good, revoked or unknown.
func (s Status) String() string {
	switch s {
	case Good:
		return string(ResultGood)
	case Revoked:
		return string(ResultRevoked)
	case Unknown:
		return string(ResultUnknown)
	}
	return "none"
}

// Response is a response that [Verify] accepted. It is immutable.
type Response struct {
	Raw        []byte // the DER encoding, as it is stapled
	Status     Status
	Serial     *big.Int
	ProducedAt time.Time
	ThisUpdate time.Time
	NextUpdate time.Time // zero: newer information is always available
	RevokedAt  time.Time // of a revoked certificate

	// RevocationReason is the CRLReason of RFC 5280, section 5.3.1, of a
	// revoked certificate; -1 when the response gives none.
	RevocationReason int

	// Signer is the delegated signer; nil when the issuer signed itself.
	Signer *x509.Certificate

	// SignatureAlgorithm is the name of the signature's algorithm.
	SignatureAlgorithm string

	// End is the moment from which the response is no longer stapled: the
	// earliest of NextUpdate, the signer's and the certificate's NotAfter,
	// less min(5 minutes, a tenth of the validity), and 30 days from now at
	// the latest; without NextUpdate, 10 minutes from now.
	End time.Time
}

// Usable reports why r, though verified, is not relied on at the time now: its
// End has come, which is some minutes before NextUpdate. The error is an *[Error].
// A revocation that cannot be taken back, and an answer that there is none, are
// always of use.
func (r *Response) Usable(now time.Time) error {
	if !r.final() && r.Status != Unknown && !now.Before(r.End) {
		return refuse(ReasonExpired, "it is relied on until %s, before its end: now is %s", stamp(r.End), stamp(now))
	}
	return nil
}

// final reports whether r is a revocation that cannot be taken back. A nil r is
// none, nor a hold.
func (r *Response) final() bool { return r != nil && r.Status == Revoked && !r.onHold() }

// onHold reports whether r is a revocation that may be taken back
// (certificateHold).
func (r *Response) onHold() bool {
	return r != nil && r.Status == Revoked && r.RevocationReason == reasonCertificateHold
}

const reasonCertificateHold = 6
