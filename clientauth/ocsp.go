package clientauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// RevocationChecker asks, usually over the network, whether a certificate was
// revoked.
//
// Check returns nil for a certificate that is good. An error with a method
// Revoked() bool that returns true says that it is revoked; any other error
// says that no answer was to be had. Check must return soon after ctx is done
// and is called by many goroutines at once.
type RevocationChecker interface {
	Check(ctx context.Context, leaf, issuer *x509.Certificate) error
}

// OCSPMode says what an OCSP check of client certificates may decide. The zero
// value is [Off].
type OCSPMode uint8

// The OCSP modes.
const (
	// Off asks no responder.
	Off OCSPMode = iota
	// Soft refuses a certificate that is revoked and accepts one whose state is
	// not to be had.
	Soft
	// Hard accepts only a certificate that its responder calls good.
	Hard
)

// String is the word that the configuration uses for the mode.
func (m OCSPMode) String() string {
	switch m {
	case Off:
		return "off"
	case Soft:
		return "soft"
	case Hard:
		return "hard"
	}
	return fmt.Sprintf("ocsp_mode(%d)", uint8(m))
}

// ParseOCSPMode reads the word of the configuration: off, soft or hard. The
// empty word is off.
func ParseOCSPMode(word string) (OCSPMode, error) {
	switch word {
	case "", "off":
		return Off, nil
	case "soft":
		return Soft, nil
	case "hard":
		return Hard, nil
	}
	return Off, fmt.Errorf("client_auth ocsp %q: must be off, soft or hard", word)
}

// defaultOCSPTimeout bounds the check of one connection.
const defaultOCSPTimeout = 5 * time.Second

// Authorize runs the checks that may touch the network, for full and resumed
// connections alike: it is called after the handshake and before the first
// byte of HTTP. Connections without a verified chain, and sites with OCSP off,
// pass at once. The error is an *[Error].
func (v *Verifier) Authorize(ctx context.Context, state tls.ConnectionState) error {
	if v.ocsp == Off || len(state.VerifiedChains) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, v.ocspTimeout)
	defer cancel()
	leaf, issuer, err := leafAndIssuer(state.VerifiedChains)
	if err == nil {
		err = v.checker.Check(ctx, leaf, issuer)
	}
	if err == nil {
		return nil
	}
	reason := Unchecked
	switch {
	case isRevoked(err):
		reason = Revoked
	case v.ocsp == Soft:
		v.softFailures.Add(1)
		return nil
	}
	v.refusals.count(reason)
	return refuse(reason, fmt.Errorf("client certificate %s: ocsp is %s: %w", describe(state.PeerCertificates[0]), v.ocsp, err))
}

// leafAndIssuer picks a chain that has an issuer: a leaf that is itself a trust
// anchor has none, and no responder can speak for it.
func leafAndIssuer(chains [][]*x509.Certificate) (leaf, issuer *x509.Certificate, err error) {
	for _, chain := range chains {
		if len(chain) > 1 {
			return chain[0], chain[1], nil
		}
	}
	return nil, nil, errors.New("the certificate is trusted by itself and has no issuer to ask about")
}
