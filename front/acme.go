package front

import (
	"crypto/tls"
	"slices"
)

// acmeProtocol is the ALPN value of the TLS-ALPN-01 challenge, RFC 8737.
const acmeProtocol = "acme-tls/1"

// acmeOnly reports whether a hello can only be a challenge. Offered among
// others, acme-tls/1 changes nothing: what a client adds to its list must not
// get it another policy.
func acmeOnly(protocols []string) bool {
	return len(protocols) == 1 && protocols[0] == acmeProtocol
}

// acmeConfig is the config of challenges: that protocol alone, no client
// certificate, no sessions.
func acmeConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{acmeProtocol},
		SessionTicketsDisabled: true,
		GetCertificate:         get,
	}
}

// withoutACME hides acme-tls/1 among other protocols from whoever picks the
// certificate, so that no challenge certificate is served to a client that
// could go on to speak HTTP.
func withoutACME(hello *tls.ClientHelloInfo) *tls.ClientHelloInfo {
	if !slices.Contains(hello.SupportedProtos, acmeProtocol) {
		return hello
	}
	filtered := *hello
	filtered.SupportedProtos = slices.DeleteFunc(slices.Clone(hello.SupportedProtos), func(p string) bool { return p == acmeProtocol })
	return &filtered
}
