package session

import (
	"crypto/x509"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Kind is what a [Subject] names.
type Kind string

// Kinds of [Subject].
const (
	KindAll         Kind = "all"         // every session
	KindSite        Kind = "site"        // sessions of the site Value, now or when they were made
	KindServerName  Kind = "sni"         // sessions made under the server name Value
	KindCertificate Kind = "certificate" // sessions of the client certificate (Issuer, Serial)
)

// Subject names the sessions to revoke.
type Subject struct {
	Kind Kind `json:"kind"`

	// Value is the site's name or the server name; server names may be in
	// any case, internationalised or not, and end in a dot.
	Value string `json:"value,omitempty"`

	// Issuer is the client certificate's issuer as an RFC 2253 string, as
	// pkix.Name.String or OpenSSL gives it. The order of its attributes does
	// not matter.
	Issuer string `json:"issuer,omitempty"`

	// Serial is the client certificate's serial number in hexadecimal, as
	// OpenSSL prints it; colons, case and leading zeros do not matter.
	Serial string `json:"serial,omitempty"`
}

// CertificateSubject names the sessions of a client certificate.
func CertificateSubject(cert *x509.Certificate) Subject {
	return Subject{Kind: KindCertificate, Issuer: cert.Issuer.String(), Serial: fmt.Sprintf("%x", cert.SerialNumber)}
}

// canonical returns s in the one form that equal subjects share, or an error
// that says what is missing or too much.
func (s Subject) canonical() (Subject, error) {
	var err error
	switch s.Kind {
	case KindAll:
		if s.Value != "" || s.Issuer != "" || s.Serial != "" {
			err = fmt.Errorf("session: revoking %q takes no name", s.Kind)
		}
	case KindSite, KindServerName:
		if s.Value == "" || s.Issuer != "" || s.Serial != "" {
			err = fmt.Errorf("session: revoking by %q takes a value and nothing else", s.Kind)
		}
		if s.Kind == KindServerName {
			var nameErr error
			if s.Value, nameErr = canonicalName(s.Value); err == nil {
				err = nameErr
			}
		}
	case KindCertificate:
		if s.Value != "" || s.Issuer == "" || s.Serial == "" {
			return s, fmt.Errorf("session: revoking by %q takes an issuer and a serial number", s.Kind)
		}
		if _, err = parseIssuer(s.Issuer); err == nil {
			s.Serial, err = canonicalSerial(s.Serial)
		}
	default:
		err = fmt.Errorf("session: unknown kind of revocation %q: want all, site, sni or certificate", s.Kind)
	}
	return s, err
}

// canonicalName returns a server name as [Binding.ServerName] has it, and refuses what
// no client can have sent as one: nothing would be revoked by it.
func canonicalName(name string) (string, error) {
	if strings.Contains(name, "*") {
		return "", fmt.Errorf("session: %q is a pattern, and sessions belong to single names: revoke by site", name)
	}
	ascii := strings.TrimSuffix(strings.ToLower(name), ".")
	if strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		var err error
		if ascii, err = idna.Lookup.ToASCII(ascii); err != nil {
			return "", fmt.Errorf("session: %q is not a server name: %w", name, err)
		}
	}
	label := func(c rune) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' }
	for part := range strings.SplitSeq(ascii, ".") {
		if part == "" || strings.ContainsFunc(part, func(c rune) bool { return !label(c) }) {
			return "", fmt.Errorf("session: %q is not a server name: want one such as app.example.com, without port", name)
		}
	}
	return ascii, nil
}

// canonicalSerial returns a hexadecimal number in lower case, without
// separators and leading zeros.
func canonicalSerial(s string) (string, error) {
	h := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ":", ""))
	h = strings.TrimPrefix(h, "0x")
	if h == "" || strings.Trim(h, "0123456789abcdef") != "" {
		return "", fmt.Errorf("session: serial number %q is not hexadecimal", s)
	}
	if h = strings.TrimLeft(h, "0"); h == "" {
		h = "0"
	}
	return h, nil
}

// key is what lookups compare, for a canonical subject.
func (s Subject) key() uint64 {
	switch s.Kind {
	case KindSite, KindServerName:
		return digestOf(string(s.Kind), s.Value).short()
	case KindCertificate:
		issuer, err := parseIssuer(s.Issuer)
		if err != nil { // not canonical
			return 0
		}
		return certificateKey(issuer, s.Serial)
	}
	return 0
}

func siteKey(name string) uint64    { return digestOf(string(KindSite), name).short() }
func serverName(name string) digest { return digestOf(string(KindServerName), name) }
func certificateKey(issuer, serial string) uint64 {
	return digestOf(string(KindCertificate), issuer, serial).short()
}

// peerKey is the key of the client certificate in chain, 0 for none.
func peerKey(chain []*x509.Certificate) uint64 {
	if len(chain) == 0 {
		return 0
	}
	return certificateKey(issuerOf(chain[0].Issuer), fmt.Sprintf("%x", chain[0].SerialNumber))
}
