package config

import "time"

// TLS is a TLS policy: what a handshake may agree on, and whether it may be
// resumed. In a site, an absent field is taken from the policy at the top.
type TLS struct {
	// MinVersion is "1.2" or "1.3". Older versions are not offered.
	MinVersion TLSVersion `yaml:"min_version" default:"1.2"`

	// MaxVersion is "1.2" or "1.3".
	MaxVersion TLSVersion `yaml:"max_version" default:"1.3"`

	// CipherSuites are the suites for TLS 1.2, by their IANA names. Those of TLS
	// 1.3 are not configurable. Default: the suites that Go's crypto/tls
	// holds secure, all with forward secrecy.
	CipherSuites []string `yaml:"cipher_suites"`

	// Curves are the key exchanges offered: X25519MLKEM768, X25519, P-256,
	// P-384, P-521 and the other names of crypto/tls. Default: those of Go.
	Curves []string `yaml:"curves"`

	// HTTP2 offers HTTP/2 beside HTTP/1.1: on or off.
	HTTP2 Switch `yaml:"http2" default:"on"`

	// Resumption is on or off.
	Resumption Switch `yaml:"resumption" default:"on"`
}

// SiteTLS is a site's TLS policy.
type SiteTLS struct {
	TLS `yaml:",inline"`

	// ClientAuth asks clients for certificates.
	ClientAuth ClientAuth `yaml:"client_auth"`
}

// ClientAuth asks clients for certificates and says which are let in. Every
// check holds for resumed connections as for full handshakes, and what cannot
// be checked is refused.
type ClientAuth struct {
	// Mode is none, request (asked for, never vouched for to the backend),
	// verify_if_given or require.
	Mode ClientAuthMode `yaml:"mode" default:"none"`

	// CAFile is a file of the CAs that may have issued client certificates, or
	// a list of files, in PEM. Read again when they change. In mode request
	// they are only named to the client, as a hint.
	CAFile Strings `yaml:"ca_file" file:"true"`

	// Allow narrows who is let in to certificates that match one entry:
	// dns:NAME, dns:*.NAME, email:ADDRESS, uri:URI, ip:NETWORK, cn:NAME,
	// ou:NAME or sha256:FINGERPRINT. Default: every holder of a valid
	// certificate.
	Allow []string `yaml:"allow"`

	// AllowFile is a file of such entries, one a line, or a list of files. Read
	// again when they change. A file without entries lets nobody in.
	AllowFile Strings `yaml:"allow_file" file:"true"`

	// CRLFile is a file of CRLs, complete or delta, or a list of files, in PEM
	// or DER. Read again when they change. Given any, every certificate
	// below the CA must be covered by a current CRL.
	CRLFile Strings `yaml:"crl_file" file:"true"`

	// AllowExpiredCRL goes on using a CRL after its nextUpdate. Otherwise it
	// covers nothing, and its issuer's certificates are refused.
	AllowExpiredCRL bool `yaml:"allow_expired_crl"`

	// OCSP asks the certificate's responder: off, soft (no answer lets the
	// client in) or hard (no answer keeps it out).
	OCSP ClientOCSP `yaml:"ocsp" default:"off"`

	// Forward is what backends are told of a verified certificate.
	Forward Forward `yaml:"forward"`
}

// Forward is what backends are told of a verified client certificate. Headers
// of these names that a client sent itself are removed on every site.
type Forward struct {
	// Cert sends the certificate as Client-Cert (RFC 9440): on or off.
	Cert Switch `yaml:"cert" default:"on"`

	// Chain sends the intermediate certificates as Client-Cert-Chain (RFC
	// 9440): on or off.
	Chain Switch `yaml:"chain" default:"on"`

	// Subject is the name of a header for the subject (RFC 2253). Absent: not
	// sent.
	Subject string `yaml:"subject"`

	// Serial is the name of a header for the serial number, hexadecimal.
	Serial string `yaml:"serial"`

	// Fingerprint is the name of a header for the SHA-256 of the certificate,
	// hexadecimal.
	Fingerprint string `yaml:"fingerprint"`

	// Verify is the name of a header for the result: SUCCESS or NONE.
	Verify string `yaml:"verify"`
}

// Sessions sets the cache of TLS sessions.
type Sessions struct {
	// Capacity is how many sessions are held.
	Capacity int `yaml:"capacity" default:"20480" min:"1"`

	// MaxBytes is how much memory they may take. off: only Capacity bounds them.
	MaxBytes Size `yaml:"max_bytes" default:"64MiB" min:"64KiB" words:"off"`

	// Lifetime is how long after its original handshake a session may be
	// resumed, at most 7 days.
	Lifetime time.Duration `yaml:"lifetime" default:"24h" min:"1s" max:"168h"`

	// ClientAuthLifetime is the same for sessions with a client certificate.
	// Default: the shorter of 1 hour and Lifetime.
	ClientAuthLifetime time.Duration `yaml:"client_auth_lifetime" min:"1s" max:"168h"`

	// ReuseWindow is how long a session that has been resumed, and so has a
	// successor, may be resumed again (a browser opens several connections
	// at once). single: never again, so a handle is good for one
	// resumption. unlimited: for its whole life.
	ReuseWindow ReuseWindow `yaml:"reuse_window" default:"10s" words:"single,unlimited"`

	// ClientShare is the part of the cache that one client address (IPv6:
	// /64) may hold, above 0 and up to 1.
	ClientShare float64 `yaml:"client_share" default:"0.25" min:"0.0001" max:"1" words:"off"`
}

// OCSP sets the cache of OCSP responses and how they are fetched.
type OCSP struct {
	// Stapling is on or off.
	Stapling Switch `yaml:"stapling" default:"on"`

	// Capacity is how many responses are held; never fewer than there are
	// certificates with a responder.
	Capacity int `yaml:"capacity" default:"256" min:"1" max:"10000000"`

	// Timeout bounds one request to a responder, all of its steps together.
	Timeout time.Duration `yaml:"timeout" default:"5s" min:"100ms" max:"5m"`

	// Overrides replaces responders: from the URL in a certificate to the URL
	// to ask instead, or off to ask nobody.
	Overrides map[string]string `yaml:"overrides"`

	// Proxy is the URL of an HTTP proxy for requests to responders. Default:
	// as $HTTP_PROXY, $HTTPS_PROXY and $NO_PROXY say; off: none.
	Proxy string `yaml:"proxy"`

	// PrepareTimeout is how long a new must-staple certificate waits for its
	// first staple before it is used without; the old one serves meanwhile.
	PrepareTimeout time.Duration `yaml:"prepare_timeout" default:"15s" max:"10m" words:"off"`

	// Client sets the checks of client certificates.
	Client OCSPClient `yaml:"client"`
}

// OCSPClient sets the OCSP checks of client certificates, for sites whose
// client_auth.ocsp is soft or hard.
type OCSPClient struct {
	// Capacity is how many answers are held.
	Capacity int `yaml:"capacity" default:"4096" min:"1" max:"10000000"`

	// Timeout is how long a handshake may wait for an answer.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"10ms" max:"1m"`
}

// Store is what replicas share: sessions, staples and ACME.
type Store struct {
	// Redis is the Redis or Valkey server, version 7 or later.
	Redis *Redis `yaml:"redis"`

	// KeyFile holds the keys that seal what is stored, one a line, in
	// hexadecimal or base64, 32 bytes each: the first seals, all open. The
	// same on every replica. Read again when it changes.
	KeyFile string `yaml:"key_file" file:"true"`

	// Timeout is what a handshake may wait for the store.
	Timeout time.Duration `yaml:"timeout" default:"50ms" min:"1ms" max:"10s"`

	// Queue is how many changes of sessions may wait behind handshakes for the
	// store; more are dropped and counted.
	Queue int `yaml:"queue" default:"4096" min:"1" max:"1000000"`
}

// Redis is a Redis or Valkey server, a Sentinel set or a Cluster.
type Redis struct {
	// Addresses are host:port; or one unix:/path in mode single. Sentinels in
	// mode sentinel, any nodes in mode cluster.
	Addresses []string `yaml:"addresses"`

	// Mode is single, sentinel or cluster.
	Mode RedisMode `yaml:"mode" default:"single"`

	// MasterName is the name that the Sentinels know the master by.
	MasterName string `yaml:"master_name"`

	// Username is the ACL user. Default: the server's default user.
	Username string `yaml:"username"`

	// PasswordFile holds the password.
	PasswordFile string `yaml:"password_file" file:"true"`

	// SentinelUsername is the ACL user on the Sentinels.
	SentinelUsername string `yaml:"sentinel_username"`

	// SentinelPasswordFile holds the password for the Sentinels.
	SentinelPasswordFile string `yaml:"sentinel_password_file" file:"true"`

	// DB is the number of the database; not in mode cluster.
	DB int `yaml:"db" max:"65535"`

	// Prefix begins every key.
	Prefix string `yaml:"prefix" default:"tlsproxy:"`

	// PoolSize is the most connections to each server.
	PoolSize int `yaml:"pool_size" default:"64" min:"1" max:"10000"`

	// TLS encrypts the connection. Absent: plain.
	TLS *ClientTLS `yaml:"tls"`
}

// ClientTLS is how tlsproxy itself connects to a TLS server. Its certificate is
// verified in every case.
type ClientTLS struct {
	// CAFile holds the CAs to trust, in PEM. Default: those of the system.
	CAFile string `yaml:"ca_file" file:"true"`

	// Cert is a certificate chain to present, in PEM.
	Cert string `yaml:"cert" file:"true"`

	// Key is its key, in PEM.
	Key string `yaml:"key" file:"true"`

	// ServerName is the name sent (SNI) and verified. Default: the host
	// connected to.
	ServerName string `yaml:"server_name"`
}
