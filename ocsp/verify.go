package ocsp

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"slices"
	"time"
)

// The constants of time in verification.
const (
	clockSkew     = 5 * time.Minute     // how far in the future a response may begin
	maxMargin     = 5 * time.Minute     // how long before its end a response is given up, at most
	unlimitedLife = 10 * time.Minute    // of a response without nextUpdate
	maxAge        = 24 * time.Hour      // of one without nextUpdate: else an old one could be replayed for ever
	maxLife       = 30 * 24 * time.Hour // of any response, counted from its receipt
)

// Verify decides whether der is a response that may be relied on for leaf,
// which issuer issued, at the time now. It is a pure function. A refusal is an
// *[Error] with the reason; a verified answer is none, whether it is good,
// revoked or unknown.
//
// The whole CertID must match (serial, hashes of the issuer's name and key).
// The signer is the issuer, or any embedded certificate that the issuer signed
// directly, with the OCSPSigning purpose and inside its validity (RFC 6960,
// section 4.2.2.2), and is the one that the responder ID names.
// A revocation, unless it is a certificateHold, holds after nextUpdate too.
func Verify(der []byte, leaf, issuer *x509.Certificate, now time.Time) (*Response, error) {
	basic, err := parse(der)
	if err != nil {
		return nil, err
	}
	single, err := basic.find(leaf, issuer)
	if err != nil {
		return nil, err
	}
	signer, algorithm, err := basic.findSigner(leaf, issuer, now)
	if err != nil {
		return nil, err
	}
	r := &Response{
		Raw: der, Status: single.status, Serial: single.serial,
		ProducedAt: basic.producedAt, ThisUpdate: single.thisUpdate, NextUpdate: single.nextUpdate,
		RevokedAt: single.revokedAt, RevocationReason: single.reason,
		Signer: signer, SignatureAlgorithm: algorithm,
	}
	if single.neverIssued() {
		r.Status = Unknown
	}
	r.End = r.end(leaf, now.Round(0)) // by the wall clock
	if err := r.checkDates(leaf, now); err != nil {
		return nil, err
	}
	return r, nil
}

// find returns the SingleResponse about leaf. If there are several, a
// revocation counts, else the newest.
func (b *basicResponse) find(leaf, issuer *x509.Certificate) (*singleResponse, error) {
	if b.critical != nil {
		return nil, refuse(ReasonCriticalExtension, "%v", b.critical)
	}
	key := publicKeyBits(issuer)
	var found *singleResponse
	sameSerial := false
	for i := range b.singles {
		s := &b.singles[i]
		if s.serial.Cmp(leaf.SerialNumber) != 0 {
			continue
		}
		sameSerial = true
		if s.matches(issuer.RawSubject, key) && (found == nil || s.outweighs(found)) {
			found = s
		}
	}
	switch {
	case found == nil && sameSerial:
		return nil, refuse(ReasonWrongIssuer, "serial %x is right, the hashes of the issuer are not", leaf.SerialNumber)
	case found == nil && len(b.singles) == 0:
		return nil, refuse(ReasonWrongCertificate, "no certificate at all; want serial %x", leaf.SerialNumber)
	case found == nil:
		return nil, refuse(ReasonWrongCertificate, "serial %x; want %x", b.singles[0].serial, leaf.SerialNumber)
	case found.critical != nil:
		return nil, refuse(ReasonCriticalExtension, "%v", found.critical)
	}
	return found, nil
}

func (s *singleResponse) matches(issuerName, issuerKey []byte) bool {
	return s.hash != 0 &&
		bytes.Equal(s.nameHash, hashOf(s.hash, issuerName)) &&
		bytes.Equal(s.keyHash, hashOf(s.hash, issuerKey))
}

func (s *singleResponse) outweighs(t *singleResponse) bool {
	if a, b := s.revoked(), t.revoked(); a != b {
		return a
	}
	return s.thisUpdate.After(t.thisUpdate)
}

func (s *singleResponse) revoked() bool { return s.status == Revoked && !s.neverIssued() }

// neverIssued recognises the form of revoked that means "no such certificate"
// (RFC 6960, section 2.2): on hold since the beginning of 1970.
func (s *singleResponse) neverIssued() bool {
	return s.status == Revoked && s.reason == reasonCertificateHold && s.revokedAt.Equal(time.Unix(0, 0))
}

// findSigner returns the delegated signer, or nil when the issuer signed.
func (b *basicResponse) findSigner(leaf, issuer *x509.Certificate, now time.Time) (*x509.Certificate, string, error) {
	algorithm, err := parseAlgorithm(b.algorithm)
	if err != nil {
		return nil, "", err
	}
	err = refuse(ReasonWrongResponder, "neither the issuer nor one of %d embedded certificates", len(b.certs))
	if b.names(issuer) {
		if algorithm.verify(issuer.PublicKey, b.signed, b.signature) {
			return nil, algorithm.name, nil
		}
		err = refuse(ReasonBadSignature, "%s by the issuer", algorithm.name)
	}
	for _, der := range b.certs[:min(len(b.certs), maxEmbedded)] {
		cert, parseErr := x509.ParseCertificate(der)
		if parseErr != nil || !b.names(cert) {
			continue
		}
		// First whether it may sign, so that no stranger's key is ever used.
		if err = mayDelegate(cert, leaf, issuer, now); err != nil {
			continue
		}
		if algorithm.verify(cert.PublicKey, b.signed, b.signature) {
			return cert, algorithm.name, nil
		}
		err = refuse(ReasonBadSignature, "%s by %q", algorithm.name, cert.Subject)
	}
	return nil, "", err
}

// names reports whether the responder ID is that of c.
func (b *basicResponse) names(c *x509.Certificate) bool {
	if b.responderName != nil {
		return bytes.Equal(b.responderName, c.RawSubject)
	}
	return bytes.Equal(b.responderKey, hashOf(crypto.SHA1, publicKeyBits(c)))
}

// mayDelegate reports why c may not sign in place of the issuer.
func mayDelegate(c, leaf, issuer *x509.Certificate, now time.Time) error {
	switch {
	case c.Equal(leaf):
		return refuse(ReasonUnauthorizedSigner, "the certificate answers for itself")
	case !bytes.Equal(c.RawIssuer, issuer.RawSubject):
		return refuse(ReasonUnauthorizedSigner, "%q was issued by %q, not by %q", c.Subject, c.Issuer, issuer.Subject)
	case !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning):
		return refuse(ReasonUnauthorizedSigner, "%q lacks the purpose OCSPSigning", c.Subject)
	case len(c.UnhandledCriticalExtensions) > 0:
		return refuse(ReasonUnauthorizedSigner, "%q has unknown critical extensions", c.Subject)
	case now.Before(c.NotBefore) || now.After(c.NotAfter):
		return refuse(ReasonSignerExpired, "%q is valid from %s to %s", c.Subject, stamp(c.NotBefore), stamp(c.NotAfter))
	}
	if err := c.CheckSignatureFrom(issuer); err != nil {
		return &Error{Reason: ReasonUnauthorizedSigner, Detail: "its certificate is not signed by the issuer", Err: err}
	}
	return nil
}

// end computes Response.End.
func (r *Response) end(leaf *x509.Certificate, now time.Time) time.Time {
	end := r.hardEnd(leaf)
	if !r.NextUpdate.IsZero() {
		end = end.Add(-min(maxMargin, max(0, end.Sub(r.ThisUpdate)/10)))
	}
	return earliest(end, r.longest(now))
}

// longest returns when r ends at the latest, however long it says, if it was
// received at the given time.
func (r *Response) longest(received time.Time) time.Time {
	if r.NextUpdate.IsZero() {
		return received.Add(unlimitedLife)
	}
	return received.Add(maxLife)
}

// since returns r, or a copy of it, with the end of one that was received at
// the given time.
func (r *Response) since(received time.Time) *Response {
	longest := r.longest(received)
	if !longest.Before(r.End) {
		return r
	}
	c := *r
	c.End = longest
	return &c
}

// hardEnd is the end without any margin.
func (r *Response) hardEnd(leaf *x509.Certificate) time.Time {
	end := leaf.NotAfter
	if r.Signer != nil {
		end = earliest(end, r.Signer.NotAfter)
	}
	if !r.NextUpdate.IsZero() {
		end = earliest(end, r.NextUpdate)
	}
	return end
}

func (r *Response) checkDates(leaf *x509.Certificate, now time.Time) error {
	latest := now.Add(clockSkew)
	if r.ThisUpdate.After(latest) {
		return refuse(ReasonNotYetValid, "thisUpdate is %s, now is %s", stamp(r.ThisUpdate), stamp(now))
	}
	if r.ProducedAt.After(latest) {
		return refuse(ReasonNotYetValid, "producedAt is %s, now is %s", stamp(r.ProducedAt), stamp(now))
	}
	if r.final() {
		return nil
	}
	if !r.NextUpdate.IsZero() && !r.NextUpdate.After(now) {
		return refuse(ReasonExpired, "nextUpdate was %s, now is %s", stamp(r.NextUpdate), stamp(now))
	}
	if r.NextUpdate.IsZero() && r.ThisUpdate.Before(now.Add(-maxAge)) {
		return refuse(ReasonExpired, "thisUpdate was %s and there is no nextUpdate, now is %s", stamp(r.ThisUpdate), stamp(now))
	}
	if !leaf.NotAfter.After(now) {
		return refuse(ReasonExpired, "the certificate itself ended %s, now is %s", stamp(leaf.NotAfter), stamp(now))
	}
	return nil
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
