package session

// Kind is what a [Subject] names.
type Kind string

// Kinds of [Subject].
const (
	KindAll         Kind = "all"         // every session
	KindSite        Kind = "site"        // sessions made under the site Value
	KindServerName  Kind = "sni"         // sessions made under the server name Value
	KindCertificate Kind = "certificate" // sessions of the client certificate (Issuer, Serial)
)

// Subject names the sessions to revoke.
type Subject struct {
	Kind Kind `json:"kind"`

	// Value is the site's name or the server name; server names may be in
	// any case and end in a dot.
	Value string `json:"value,omitempty"`

	// Issuer is the client certificate's issuer as an RFC 2253 string, as
	// pkix.Name.String gives it.
	Issuer string `json:"issuer,omitempty"`

	// Serial is the client certificate's serial number in hexadecimal, as
	// OpenSSL prints it; colons, case and leading zeros do not matter.
	Serial string `json:"serial,omitempty"`
}
