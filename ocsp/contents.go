package ocsp

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"time"
)

// Contents is what a response says, believed or not.
type Contents struct {
	Responder    string    `json:"responder"` // its name, or the SHA-1 of its key in hexadecimal
	ProducedAt   time.Time `json:"produced_at"`
	Signature    string    `json:"signature"`              // the algorithm, "" if it is not supported
	Certificates []string  `json:"certificates,omitempty"` // subjects of the embedded certificates
	Answers      []Answer  `json:"answers"`
}

// Answer is what a response says about one certificate.
type Answer struct {
	Serial     string    `json:"serial"` // hexadecimal
	Hash       string    `json:"hash"`   // of the CertID, "" if it is not supported
	NameHash   string    `json:"issuer_name_hash"`
	KeyHash    string    `json:"issuer_key_hash"`
	Status     string    `json:"status"`
	ThisUpdate time.Time `json:"this_update"`
	NextUpdate time.Time `json:"next_update,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	Reason     string    `json:"revocation_reason,omitempty"`
}

// Parse reads a response without verifying anything. The error is an *[Error].
func Parse(der []byte) (*Contents, error) {
	basic, err := parse(der)
	if err != nil {
		return nil, err
	}
	c := &Contents{Responder: hex.EncodeToString(basic.responderKey), ProducedAt: basic.producedAt}
	if basic.responderName != nil {
		c.Responder = nameString(basic.responderName)
	}
	if a, err := parseAlgorithm(basic.algorithm); err == nil {
		c.Signature = a.name
	}
	for _, der := range basic.certs {
		subject := "(not readable)"
		if cert, err := x509.ParseCertificate(der); err == nil {
			subject = cert.Subject.String()
		}
		c.Certificates = append(c.Certificates, subject)
	}
	for i := range basic.singles {
		c.Answers = append(c.Answers, basic.singles[i].answer())
	}
	return c, nil
}

func (s *singleResponse) answer() Answer {
	a := Answer{
		Serial: s.serial.Text(16), NameHash: hex.EncodeToString(s.nameHash), KeyHash: hex.EncodeToString(s.keyHash),
		Status: s.status.String(), ThisUpdate: s.thisUpdate, NextUpdate: s.nextUpdate, RevokedAt: s.revokedAt,
	}
	if s.hash != 0 {
		a.Hash = s.hash.String()
	}
	if s.status == Revoked {
		a.Reason = RevocationReasonString(s.reason)
	}
	return a
}

// nameString returns a DER-encoded Name in words, in hexadecimal if it is none.
func nameString(der []byte) string {
	var sequence pkix.RDNSequence
	if rest, err := asn1.Unmarshal(der, &sequence); err != nil || len(rest) > 0 {
		return hex.EncodeToString(der)
	}
	return sequence.String()
}

// RevocationReasonString returns the name of a CRLReason (RFC 5280, section
// 5.3.1), "" for none.
func RevocationReasonString(reason int) string {
	names := [...]string{
		"unspecified", "keyCompromise", "cACompromise", "affiliationChanged", "superseded", "cessationOfOperation",
		"certificateHold", "", "removeFromCRL", "privilegeWithdrawn", "aACompromise",
	}
	if reason < 0 || reason >= len(names) {
		return ""
	}
	return names[reason]
}
