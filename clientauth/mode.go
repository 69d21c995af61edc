package clientauth

import (
	"crypto/tls"
	"fmt"
)

// Mode says what a site asks of a client's certificate. The zero value is
// [None].
type Mode uint8

// The modes, from the most open to the strictest.
const (
	// None asks for no certificate.
	None Mode = iota
	// Request asks for a certificate and accepts any, or none, without checking
	// it: what the client sent proves possession of a key and nothing else, and
	// is never vouched for to a backend.
	Request
	// VerifyIfGiven accepts clients without a certificate and checks the
	// certificate of those that send one.
	VerifyIfGiven
	// Require accepts only clients whose certificate passes every check.
	Require
)

// String is the word that the configuration uses for the mode.
func (m Mode) String() string {
	switch m {
	case None:
		return "none"
	case Request:
		return "request"
	case VerifyIfGiven:
		return "verify_if_given"
	case Require:
		return "require"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode reads the word of the configuration: none, request,
// verify_if_given or require. The empty word is none.
func ParseMode(word string) (Mode, error) {
	switch word {
	case "", "none":
		return None, nil
	case "request":
		return Request, nil
	case "verify_if_given":
		return VerifyIfGiven, nil
	case "require":
		return Require, nil
	}
	return None, fmt.Errorf("client_auth mode %q: must be none, request, verify_if_given or require", word)
}

// Verifies reports whether the mode checks certificates.
func (m Mode) Verifies() bool { return m == VerifyIfGiven || m == Require }

// tlsType is the mode in the terms of crypto/tls.
func (m Mode) tlsType() tls.ClientAuthType {
	switch m {
	case Request:
		return tls.RequestClientCert
	case VerifyIfGiven:
		return tls.VerifyClientCertIfGiven
	case Require:
		return tls.RequireAndVerifyClientCert
	}
	return tls.NoClientCert
}
