package ocsp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
	xocsp "golang.org/x/crypto/ocsp"
)

// target is a certificate to be asked about, and where to ask.
type target struct {
	leaf, issuer *x509.Certificate
	request      []byte       // DER, with a SHA-1 CertID, which every responder knows, and no nonce
	urls         []string     // responders in order
	local        http.Handler // asked instead of urls, if not nil
}

// endpoints are the rules by which the responders of a certificate are found.
type endpoints struct {
	overrides map[string]string
	local     func(issuer *x509.Certificate) http.Handler
}

// target prepares asking about leaf. Without a responder or an issuer the
// error has [ReasonNoResponder] or [ReasonNoIssuer].
func (p endpoints) target(leaf, issuer *x509.Certificate) (*target, error) {
	t := &target{leaf: leaf, issuer: issuer}
	if issuer != nil && p.local != nil {
		t.local = p.local(issuer)
	}
	if t.local == nil {
		t.urls = p.responders(leaf)
	}
	switch {
	case t.local == nil && len(t.urls) == 0:
		return t, refuse(ReasonNoResponder, "")
	case issuer == nil:
		return t, refuse(ReasonNoIssuer, "add the certificate of %q to the chain", leaf.Issuer)
	}
	var err error
	if t.request, err = xocsp.CreateRequest(leaf, issuer, nil); err != nil {
		return t, &Error{Reason: ReasonNoIssuer, Detail: "no request can be made", Err: err}
	}
	return t, nil
}

// responders returns the responder URLs of a certificate that can be asked,
// in order, overrides applied.
func (p endpoints) responders(leaf *x509.Certificate) []string {
	var urls []string
	for _, u := range leaf.OCSPServer {
		if replacement, ok := p.overrides[u]; ok {
			u = replacement
		}
		if checkURL(u) == nil && !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	return urls
}

// checkURL reports why a responder cannot be asked at u.
func checkURL(u string) error {
	parsed, err := url.Parse(u)
	switch {
	case err != nil:
		return &Error{Reason: ReasonBadURL, Err: err}
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return refuse(ReasonBadURL, "%q is neither http nor https", u)
	case parsed.Host == "":
		return refuse(ReasonBadURL, "%q has no host", u)
	}
	return nil
}

// issuerOf finds the issuer of cert's leaf in its chain, or by the given
// function; nil if it is nowhere.
func issuerOf(cert *tls.Certificate, find func(*x509.Certificate) *x509.Certificate) *x509.Certificate {
	for _, der := range cert.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err == nil && cert.Leaf.CheckSignatureFrom(c) == nil {
			return c
		}
	}
	if find != nil {
		if c := find(cert.Leaf); c != nil && cert.Leaf.CheckSignatureFrom(c) == nil {
			return c
		}
	}
	return nil
}

// oidTLSFeature is the extension of RFC 7633; featureStatusRequest, in it, is
// known as must-staple.
var oidTLSFeature = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}

const featureStatusRequest = 5

// MustStaple reports whether the certificate demands that its server staples
// an OCSP response (RFC 7633).
func MustStaple(leaf *x509.Certificate) bool {
	for _, ext := range leaf.Extensions {
		if !ext.Id.Equal(oidTLSFeature) {
			continue
		}
		value := cryptobyte.String(ext.Value)
		var features cryptobyte.String
		if !value.ReadASN1(&features, cbasn1.SEQUENCE) {
			return false
		}
		var feature int
		for features.ReadASN1Integer(&feature) {
			if feature == featureStatusRequest {
				return true
			}
		}
	}
	return false
}
