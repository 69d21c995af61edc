package config

import "time"

// Certificate is one source of certificates: exactly one of Cert with Key,
// PKCS12, Directory, ACME and Local.
type Certificate struct {
	// Cert is a file with a certificate and its chain, PEM in any order. Read
	// again when it changes.
	Cert string `yaml:"cert" file:"true"`

	// Key is the file with its private key, in PEM, possibly encrypted.
	Key string `yaml:"key" file:"true"`

	// PKCS12 is a file with a certificate, its chain and its key.
	PKCS12 string `yaml:"pkcs12" file:"true"`

	// Directory holds pairs, in it and in its direct subdirectories: x.crt (or
	// .cer, .pem) with x.key, x.pem with x-key.pem, fullchain.pem with
	// privkey.pem, tls.crt with tls.key, one x.pem that holds both, x.p12 or
	// x.pfx. They come and go while the proxy runs.
	Directory string `yaml:"directory" file:"true"`

	// PassphraseFile holds the passphrase of an encrypted Key or PKCS12, or
	// of the keys in Directory.
	PassphraseFile string `yaml:"passphrase_file" file:"true"`

	// ACME obtains and renews certificates.
	ACME *ACME `yaml:"acme"`

	// Local makes certificates of a development CA, which is made on first use
	// and trusted by nobody. Not for the public.
	Local *Local `yaml:"local"`

	// Default makes this the certificate for clients that send no server name
	// or an unknown one. If none says so, the first certificate is.
	Default bool `yaml:"default"`
}

// Local makes certificates of a development CA.
type Local struct {
	// Hosts are the names and addresses to make a certificate for.
	Hosts []string `yaml:"hosts"`
}

// ACME obtains certificates from a CA that speaks ACME (RFC 8555), and renews
// them. To configure it is to accept the CA's terms of service.
type ACME struct {
	// Hosts are the names to obtain certificates for, one certificate each.
	// "*.example.com" needs DNS.
	Hosts []string `yaml:"hosts"`

	// Email is where the CA writes to about the account.
	Email string `yaml:"email"`

	// Directory is the URL of the CA's directory. Default: Let's Encrypt.
	Directory string `yaml:"directory"`

	// CAFile holds the CAs to trust for the directory's own certificate, in
	// PEM. Default: those of the system.
	CAFile string `yaml:"ca_file" file:"true"`

	// Profile is the certificate profile to ask for. Default: the CA's.
	Profile string `yaml:"profile"`

	// EAB binds the account to one at the CA.
	EAB EAB `yaml:"eab"`

	// Issuers are several CAs, tried in order, instead of Directory, CAFile,
	// Profile and EAB.
	Issuers []Issuer `yaml:"issuers"`

	// Challenges are the ways to prove control: http-01 (needs the http
	// listener), tls-alpn-01, dns-01 (needs dns, and goes alone). Default: dns-01
	// with dns; else tls-alpn-01, and http-01 when there is a http listener.
	Challenges []string `yaml:"challenges"`

	// DNS answers dns-01 challenges.
	DNS *DNS `yaml:"dns"`

	// OnDemand obtains certificates for names as clients ask for them.
	OnDemand *OnDemand `yaml:"on_demand"`

	// ARI follows the CA's renewal information (RFC 9773): on or off.
	ARI Switch `yaml:"ari" default:"on"`

	// KeyType is ecdsa-p256, ecdsa-p384, rsa-2048, rsa-4096 or ed25519.
	KeyType KeyType `yaml:"key_type" default:"ecdsa-p256"`

	// ReuseKey keeps the key over renewals, so that sessions, which end with
	// their key, survive them.
	ReuseKey bool `yaml:"reuse_key"`

	// MustStaple asks for certificates with the must-staple extension.
	MustStaple bool `yaml:"must_staple"`
}

// Issuer is one CA of several.
type Issuer struct {
	// Directory is as in [ACME.Directory].
	Directory string `yaml:"directory"`

	// CAFile is as in [ACME.CAFile].
	CAFile string `yaml:"ca_file" file:"true"`

	// Profile is as in [ACME.Profile].
	Profile string `yaml:"profile"`

	// EAB is as in [ACME.EAB].
	EAB EAB `yaml:"eab"`
}

// EAB is an external account binding (RFC 8555, 7.3.4).
type EAB struct {
	// KeyID is the key identifier that the CA gave.
	KeyID string `yaml:"key_id"`

	// KeyFile holds the MAC key that the CA gave, base64url.
	KeyFile string `yaml:"key_file" file:"true"`
}

// DNS answers dns-01 challenges by dynamic updates.
type DNS struct {
	// RFC2136 is the name server to send updates to.
	RFC2136 RFC2136 `yaml:"rfc2136"`

	// PropagationTimeout is how long to wait until the server answers with the
	// record; off: the CA is asked to look at once.
	PropagationTimeout time.Duration `yaml:"propagation_timeout" default:"2m" max:"1h" words:"off"`
}

// RFC2136 is a name server that takes dynamic updates signed with TSIG (RFC
// 8945).
type RFC2136 struct {
	// Server is its host:port; without port, 53.
	Server string `yaml:"server"`

	// Zone is the zone to update. Default: found by asking the server.
	Zone string `yaml:"zone"`

	// KeyName is the name of the TSIG key.
	KeyName string `yaml:"key_name"`

	// KeyAlgorithm is that of the key: hmac-sha256, hmac-sha384, hmac-sha512,
	// hmac-sha224 or hmac-sha1.
	KeyAlgorithm TSIGAlgorithm `yaml:"key_algorithm" default:"hmac-sha256"`

	// KeyFile holds the key, base64.
	KeyFile string `yaml:"key_file" file:"true"`
}

// OnDemand obtains certificates for names as clients ask for them, but never for
// any name: at least one of Ask and Allow is needed, and a name must pass all
// that are there.
type OnDemand struct {
	// Ask is a URL that is asked with ?domain=NAME; only status 200 allows the
	// name.
	Ask string `yaml:"ask"`

	// Allow are the names allowed; "*.example.com" allows one label.
	Allow []string `yaml:"allow"`

	// Rate is how many names without a certificate are tried at once, and again
	// over each Window.
	Rate int `yaml:"rate" default:"10" min:"1" max:"1000000"`

	// Window is the time that Rate refers to.
	Window time.Duration `yaml:"window" default:"1m" min:"1s" max:"168h"`

	// Wait is how long a handshake waits for its certificate; less than
	// timeouts.handshake.
	Wait time.Duration `yaml:"wait" default:"8s" min:"1s" max:"5m"`
}
