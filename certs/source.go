package certs

import "time"

// Source is one entry of the certificates list: exactly one of Files,
// Directory, ACME and Local is set.
type Source struct {
	// Default makes this source's first certificate the one that is served
	// when no certificate carries the name asked for. Without any such source
	// the first certificate of the first source that has one is the default.
	Default bool

	Files     *Files
	Directory *Directory
	ACME      *ACME
	Local     *Local
}

// Files is one certificate with its key: either Cert and Key in PEM, or one
// PKCS#12 file. The blocks may come in any order; the leaf is the certificate
// that belongs to the key.
type Files struct {
	Cert string // PEM: leaf and chain; may hold the key too
	Key  string // PEM; "": in the file Cert
	// PKCS12 is a PKCS#12 file (.p12, .pfx) instead of Cert and Key.
	PKCS12 string
	// PassphraseFile holds the passphrase of an encrypted key or of the
	// PKCS#12 file; a line end at its end is not part of the passphrase.
	PassphraseFile string
}

// Directory is every key pair in a directory and in its direct
// subdirectories, named in one of the usual ways: x.crt (or .cer, .pem) with
// x.key, x.pem with x-key.pem or x.pem.key, fullchain.pem with privkey.pem,
// fullchain.cer with the only key that a .cer lies beside, one x.pem that holds
// both, x.p12 or x.pfx. Hidden files are left out, and so are CA
// certificates that have no key beside them.
type Directory struct {
	Path           string
	PassphraseFile string // for encrypted keys and PKCS#12 files in it
}

// KeyType is the kind of private key made for an ACME certificate. The zero
// value means [KeyECDSAP256].
type KeyType string

// The kinds of key that ACME certificates can have.
const (
	KeyECDSAP256 KeyType = "ecdsa-p256"
	KeyECDSAP384 KeyType = "ecdsa-p384"
	KeyRSA2048   KeyType = "rsa-2048"
	KeyRSA4096   KeyType = "rsa-4096"
	KeyEd25519   KeyType = "ed25519"
)

// Challenge is an ACME challenge type (RFC 8555, section 8; RFC 8737).
type Challenge string

// The challenge types that can be solved.
const (
	HTTP01    Challenge = "http-01"
	TLSALPN01 Challenge = "tls-alpn-01"
	DNS01     Challenge = "dns-01"
)

// ACME is a set of host names whose certificates, one per name, are obtained
// and renewed by ACME (RFC 8555).
type ACME struct {
	Hosts []string // DNS names, wildcards (dns-01 only) and IP addresses
	Email string   // account contact; "": none
	// Issuers are tried in order for every certificate; at least one.
	Issuers []Issuer
	// Challenges to use. Empty: dns-01 alone when DNS is set, else http-01
	// and tls-alpn-01. dns-01 excludes the other two.
	Challenges []Challenge
	DNS        *RFC2136 // required for dns-01
	KeyType    KeyType
	// ReuseKey keeps the private key over renewals, so that TLS sessions,
	// which are bound to it, survive them. False: a new key each time.
	ReuseKey   bool
	MustStaple bool // ask for the TLS feature extension (RFC 7633)
	DisableARI bool // renew by remaining lifetime only, not by RFC 9773
	// OnDemand obtains certificates for further names when a client first
	// asks for them; nil: off. Hosts may then be empty.
	OnDemand *OnDemand
}

// Issuer is an ACME certification authority.
type Issuer struct {
	Directory string // URL of the directory; "": Let's Encrypt
	CAFile    string // PEM roots to trust for that URL instead of the system's; "": the system's
	Profile   string // certificate profile to ask for; "": the CA's default
	EAB       *EAB   // external account binding; nil: none
}

// EAB binds the ACME account to one that exists at the CA (RFC 8555, section
// 7.3.4).
type EAB struct {
	KeyID   string
	KeyFile string // holds the MAC key as the CA gave it, in base64url
}

// RFC2136 is a DNS server that takes dynamic updates (RFC 2136) signed with
// TSIG (RFC 8945).
type RFC2136 struct {
	Server    string // host:port; without port 53
	Zone      string // zone to update; "": found by asking the server
	KeyName   string
	KeyFile   string // holds the TSIG secret in base64
	Algorithm string // hmac-sha256 (default), hmac-sha512, hmac-sha384, hmac-sha224 or hmac-sha1
	// PropagationTimeout bounds the wait until Server answers with the
	// record. 0: 2 min; negative: no wait at all.
	PropagationTimeout time.Duration
}

// OnDemand says for which names a certificate may be obtained when a client
// asks for it. At least one of Ask and Allow is required, and a name must pass
// all that are set: a proxy that obtains certificates for any name is open to
// everybody who can point a name at it.
type OnDemand struct {
	// Ask is an http or https URL that is asked with ?domain=NAME; only a
	// status of 200 allows the name. "": not asked.
	Ask string
	// Allow lists names, and wildcards that stand for one label.
	Allow []string
	// Rate bounds how many names that have no certificate yet are tried at
	// once; used up, they come back evenly over a Window. 0: 10; negative: not
	// bounded.
	Rate   int
	Window time.Duration // 0: 1 min
	// Wait bounds how long a handshake waits for its certificate, beside the
	// handshake's own deadline. 0: 30 s.
	Wait time.Duration
}

// Local is a certificate for Hosts from a development CA of our own, which is
// made in StateDir on first use. Only those who trust its certificate trust
// it, so it is for development and tests.
type Local struct {
	Hosts []string // DNS names, wildcards and IP addresses
}
