package certs

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// certificate is one loaded key pair with what is known about it. It is
// immutable.
type certificate struct {
	tls   *tls.Certificate // chain with the leaf first; Leaf is set
	id    [32]byte         // SHA-256 of the leaf
	whole [32]byte         // SHA-256 of the chain: equal for the same file contents
	key   [32]byte         // SHA-256 of the leaf's public key
	kind  kind
	names []string
	ips   []netip.Addr
	// warnings are what is odd but no reason to refuse the certificate, dates
	// left out.
	warnings []string
}

var errMismatch = errors.New("the private key belongs to none of the certificates")

// newCertificate puts a key and certificates in any order together.
func newCertificate(key crypto.Signer, certs []*x509.Certificate) (*certificate, error) {
	leaf, err := leafOf(key.Public(), certs)
	if err != nil {
		return nil, err
	}
	chain, rest := chainOf(leaf, certs)
	c := &certificate{
		tls:  &tls.Certificate{PrivateKey: key, Leaf: leaf},
		id:   sha256.Sum256(leaf.Raw),
		key:  sha256.Sum256(leaf.RawSubjectPublicKeyInfo),
		kind: kindOf(leaf.PublicKey),
	}
	whole := sha256.New()
	for _, cert := range chain {
		c.tls.Certificate = append(c.tls.Certificate, cert.Raw)
		whole.Write(cert.Raw)
	}
	whole.Sum(c.whole[:0])
	c.names, c.ips = namesOf(leaf)
	c.warnings = warningsFor(leaf, chain, rest)
	return c, nil
}

// leafOf finds the certificate of a key. Of several, such as one file with an
// old and a renewed certificate of the same key, the one that ends last is
// meant.
func leafOf(pub crypto.PublicKey, certs []*x509.Certificate) (*x509.Certificate, error) {
	type equaler interface{ Equal(crypto.PublicKey) bool }
	eq, ok := pub.(equaler)
	if !ok {
		return nil, fmt.Errorf("keys of type %T cannot be used in TLS", pub)
	}
	var leaf *x509.Certificate
	for _, cert := range certs {
		if eq.Equal(cert.PublicKey) && (leaf == nil || cert.NotAfter.After(leaf.NotAfter)) {
			leaf = cert
		}
	}
	if leaf == nil {
		return nil, errMismatch
	}
	return leaf, nil
}

// chainOf orders certificates from the leaf upwards, each signed by the next,
// and returns what does not belong into the chain. A root at its end is left
// out, unless it is the leaf's own issuer: clients do not need it, but whoever
// asks for the leaf's OCSP status does.
func chainOf(leaf *x509.Certificate, certs []*x509.Certificate) (chain, rest []*x509.Certificate) {
	chain = []*x509.Certificate{leaf}
	rest = slices.DeleteFunc(slices.Clone(certs), leaf.Equal)
	for {
		last := chain[len(chain)-1]
		if selfSigned(last) {
			break
		}
		i := slices.IndexFunc(rest, func(c *x509.Certificate) bool { return issued(c, last) })
		if i < 0 {
			break
		}
		next := rest[i]
		chain = append(chain, next)
		rest = slices.DeleteFunc(rest, next.Equal)
	}
	if len(chain) > 2 && selfSigned(chain[len(chain)-1]) {
		chain = chain[:len(chain)-1]
	}
	return chain, rest
}

func selfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawIssuer, c.RawSubject) && issued(c, c)
}

// issued checks the signature with the issuer's key alone: whether it is a
// proper CA is for clients to judge.
func issued(issuer, cert *x509.Certificate) bool {
	return bytes.Equal(issuer.RawSubject, cert.RawIssuer) &&
		issuer.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil
}

func warningsFor(leaf *x509.Certificate, chain, rest []*x509.Certificate) []string {
	var w []string
	names, ips := namesOf(leaf)
	switch {
	case len(names)+len(ips) == 0:
		w = append(w, "carries no name that a client can ask for")
	case len(leaf.DNSNames)+len(leaf.IPAddresses) == 0:
		w = append(w, "has no subject alternative name: today's clients do not accept that")
	}
	if leaf.IsCA && !selfSigned(leaf) {
		w = append(w, "is that of a CA")
	}
	if len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		w = append(w, "is not for servers (extended key usage)")
	}
	if len(chain) == 1 && !selfSigned(leaf) {
		w = append(w, "comes without its issuer: most clients need the intermediate certificates")
	}
	if len(rest) > 0 {
		w = append(w, fmt.Sprintf("%d certificates in the file do not belong to the chain and are not sent", len(rest)))
	}
	if bits := rsaBits(leaf.PublicKey); bits > 0 && bits < 2048 {
		w = append(w, fmt.Sprintf("has an RSA key of only %d bits", bits))
	}
	return w
}

// dateWarning tells whether the certificate is outside its validity, or "".
func (c *certificate) dateWarning(now time.Time) string {
	switch leaf := c.tls.Leaf; {
	case now.After(leaf.NotAfter):
		return "expired on " + leaf.NotAfter.UTC().Format(time.DateTime)
	case now.Before(leaf.NotBefore):
		return "not valid before " + leaf.NotBefore.UTC().Format(time.DateTime)
	}
	return ""
}

// current reports whether now lies in the validity.
func (c *certificate) current(now time.Time) bool {
	return !now.Before(c.tls.Leaf.NotBefore) && !now.After(c.tls.Leaf.NotAfter)
}

// carries reports whether a host of the configuration is among the names.
func (c *certificate) carries(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return slices.Contains(c.ips, addr)
	}
	return slices.Contains(c.names, host)
}

var (
	oidTLSFeature     = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}
	tlsFeatureRequest = 5 // status_request
)

// mustStaple reports whether a certificate has the TLS feature extension that
// demands a staple (RFC 7633).
func mustStaple(leaf *x509.Certificate) bool {
	for _, ext := range leaf.Extensions {
		var features []int
		if ext.Id.Equal(oidTLSFeature) {
			if _, err := asn1.Unmarshal(ext.Value, &features); err == nil {
				return slices.Contains(features, tlsFeatureRequest)
			}
		}
	}
	return false
}

// fromTLS takes a pair that the standard library or the development CA put
// together.
func fromTLS(cert *tls.Certificate) (*certificate, error) {
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("keys of type %T cannot be used in TLS", cert.PrivateKey)
	}
	var certs []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return newCertificate(key, certs)
}
