package config

import "time"

// Certificate is one source of certificates: exactly one of Cert with Key,
// PKCS12, Directory, ACME and Local.
type Certificate struct {
	// Cert is a file with a certificate and its chain, PEM in any order. Read
	// again when it changes.
	Cert string `yaml:"cert"`

	// Key is the file with its private key, in PEM, possibly encrypted.
	Key string `yaml:"key"`

	// PKCS12 is a file with a certificate, its chain and its key.
	PKCS12 string `yaml:"pkcs12"`

	// Directory holds pairs: NAME.crt or NAME.pem with NAME.key, or one
	// tls.crt with tls.key in it or in a directory below it. Pairs come and
	// go while the proxy runs.
	Directory string `yaml:"directory"`

	// PassphraseFile holds the passphrase of an encrypted Key or PKCS12, or
	// of the keys in Directory.
	PassphraseFile string `yaml:"passphrase_file"`

	// ACME obtains and renews certificates.
	ACME *ACME `yaml:"acme"`

	// Local makes certificates of a development CA, which is made on first use
	// and trusted by nobody. Not for the public.
	Local *Local `yaml:"local"`

	// Default makes this the certificate for clients that send no server name
	// or an unknown one. Default: the first certificate is.
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
	CAFile string `yaml:"ca_file"`

	// EAB binds the account to one at the CA.
	EAB EAB `yaml:"eab"`

	// Issuers are several CAs, tried in order, instead of Directory, CAFile
	// and EAB.
	Issuers []Issuer `yaml:"issuers"`

	// Challenges are the ways to prove control: http-01 (needs the http
	// listener), tls-alpn-01, dns-01 (needs dns). Default: all that can be.
	Challenges []string `yaml:"challenges"`

	// DNS answers dns-01 challenges.
	DNS *DNS `yaml:"dns"`

	// OnDemand obtains certificates for names as clients ask for them.
	OnDemand *OnDemand `yaml:"on_demand"`

	// ARI follows the CA's renewal information (RFC 9773): on or off.
	ARI Switch `yaml:"ari" default:"on"`

	// KeyType is p256, p384, rsa2048 or rsa4096.
	KeyType KeyType `yaml:"key_type" default:"p256"`

	// MustStaple asks for certificates with the must-staple extension.
	MustStaple bool `yaml:"must_staple"`
}

// Issuer is one CA of several.
type Issuer struct {
	// Directory is as in [ACME.Directory].
	Directory string `yaml:"directory"`

	// CAFile is as in [ACME.CAFile].
	CAFile string `yaml:"ca_file"`

	// EAB is as in [ACME.EAB].
	EAB EAB `yaml:"eab"`
}

// EAB is an external account binding (RFC 8555, 7.3.4).
type EAB struct {
	// KeyID is the key identifier that the CA gave.
	KeyID string `yaml:"key_id"`

	// KeyFile holds the MAC key that the CA gave, base64url.
	KeyFile string `yaml:"key_file"`
}

// DNS answers dns-01 challenges by dynamic updates.
type DNS struct {
	// RFC2136 is the name server to send updates to.
	RFC2136 RFC2136 `yaml:"rfc2136"`

	// PropagationDelay is how long to wait after an update before looking.
	PropagationDelay time.Duration `yaml:"propagation_delay" max:"1h"`

	// PropagationTimeout is how long to look for the record before giving up;
	// off: the CA is asked to look at once.
	PropagationTimeout time.Duration `yaml:"propagation_timeout" default:"2m" max:"1h" words:"off"`

	// Resolvers are the servers (host:port) to look at. Default: those of the
	// system.
	Resolvers []string `yaml:"resolvers"`

	// TTL is that of the record.
	TTL time.Duration `yaml:"ttl" default:"1m" min:"1s" max:"24h"`
}

// RFC2136 is a name server that takes dynamic updates signed with TSIG (RFC
// 8945).
type RFC2136 struct {
	// Server is its host:port.
	Server string `yaml:"server"`

	// KeyName is the name of the TSIG key.
	KeyName string `yaml:"key_name"`

	// KeyAlgorithm is that of the key: hmac-sha256, hmac-sha384, hmac-sha512.
	KeyAlgorithm TSIGAlgorithm `yaml:"key_algorithm" default:"hmac-sha256"`

	// KeyFile holds the key, base64.
	KeyFile string `yaml:"key_file"`
}

// OnDemand obtains certificates for names as clients ask for them: never for
// any name. A name must be in Hosts, or be approved by Ask, or both when both
// are there.
type OnDemand struct {
	// Ask is a URL that is asked with ?domain=NAME; status 200 approves.
	Ask string `yaml:"ask"`

	// Hosts are the names allowed; "*.example.com" allows one label.
	Hosts []string `yaml:"hosts"`

	// Rate limits how many certificates are obtained.
	Rate int `yaml:"rate" default:"10" min:"1" max:"100000"`

	// Per is the time to which Rate refers.
	Per time.Duration `yaml:"per" default:"1m" min:"1s" max:"168h"`
}
