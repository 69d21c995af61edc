package probe

import "time"

// Report is everything a probe found out; its JSON form is what -json prints.
// Times are in seconds, dates in RFC 3339 and UTC.
type Report struct {
	Target         string        `json:"target"`                // HOST:PORT as it was given
	Address        string        `json:"address"`               // the address that answered
	ServerName     string        `json:"server_name,omitempty"` // SNI sent; empty: none
	Time           time.Time     `json:"time"`                  // when the probe began
	ConnectSeconds float64       `json:"connect_seconds"`       // median time to open a TCP connection
	Versions       []Version     `json:"versions"`              // oldest first
	ALPN           []string      `json:"alpn"`                  // protocols accepted
	Groups         []string      `json:"key_exchange_groups"`   // groups accepted when offered alone
	ClientAuth     ClientAuth    `json:"client_auth"`
	Resumption     []Resumption  `json:"resumption"` // one for each of TLS 1.2 and 1.3 that is accepted
	SessionIDs     *SessionIDs   `json:"session_ids,omitempty"`
	Also           []Also        `json:"also,omitempty"`
	Staple         StapleReport  `json:"staple"`
	Chain          Chain         `json:"chain"`
	Required       []Requirement `json:"required,omitempty"`
}

// Failure is what -json prints in place of a [Report] when there is nothing to report.
type Failure struct {
	Target string    `json:"target"` // HOST:PORT as it was given
	Time   time.Time `json:"time"`   // when the probe began
	Error  string    `json:"error"`
}

// Version says how the server took a ClientHello that offered one version.
type Version struct {
	Version     string `json:"version"` // "1.0" to "1.3"
	Accepted    bool   `json:"accepted"`
	CipherSuite string `json:"cipher_suite,omitempty"`
	Group       string `json:"key_exchange,omitempty"` // group chosen; empty: none (RSA key exchange)
	Error       string `json:"error,omitempty"`        // why it was not accepted
}

// ClientAuth says whether the server asks for a client certificate.
type ClientAuth struct {
	Requested bool `json:"requested"`
	Sent      bool `json:"sent"` // -cert was given and asked for
}

// Resumption says how often sessions resumed by ticket in one version. In
// TLS 1.2 a ticket is RFC 5077's, in 1.3 it is the pre-shared key of RFC 8446.
type Resumption struct {
	Version        string    `json:"version"`
	Resumes        bool      `json:"resumes"`
	Tickets        bool      `json:"tickets"`                // the server handed tickets out
	TicketBytes    int       `json:"ticket_bytes,omitempty"` // size of the last ticket
	Attempts       int       `json:"attempts"`               // connections that offered a ticket
	Resumed        int       `json:"resumed"`                // those that resumed
	FullSeconds    Durations `json:"full_seconds"`
	ResumedSeconds Durations `json:"resumed_seconds"`
	Error          string    `json:"error,omitempty"` // what ended the measurement early
}

// Durations sums up a few handshake times, in seconds, from the ClientHello to
// the end of the handshake; the time to open the connection is not in them.
type Durations struct {
	Count  int     `json:"count"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SessionIDs says whether TLS 1.2 sessions resume by the session ID of
// RFC 5246 when the client supports no tickets.
//
// crypto/tls offers no session IDs, so the probe completes a full handshake,
// reads the ID from the ServerHello (which TLS 1.2 sends in clear), offers it
// in a second ClientHello, and knows from the server's answer, an abbreviated
// flight or a certificate, whether the session was resumed.
type SessionIDs struct {
	Issued         bool    `json:"issued"` // the server assigned an ID
	Resumes        bool    `json:"resumes"`
	ResumedSeconds float64 `json:"resumed_seconds,omitempty"` // until the server's abbreviated flight arrived
	Error          string  `json:"error,omitempty"`
}

// Also says whether sessions made at the target resume somewhere else.
type Also struct {
	Address    string      `json:"address"`
	ServerName string      `json:"server_name,omitempty"`
	Results    []AlsoTried `json:"results"` // one for each version in which the target resumes
}

// AlsoTried is the outcome in one protocol version.
type AlsoTried struct {
	Version  string `json:"version"`
	Resumed  bool   `json:"resumed"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error,omitempty"`
}

// StapleReport describes the OCSP response stapled to a full handshake.
type StapleReport struct {
	Present    bool       `json:"present"`     // in the last full handshake
	Seen       int        `json:"seen"`        // full handshakes that carried one
	Handshakes int        `json:"handshakes"`  // full handshakes looked at
	MustStaple bool       `json:"must_staple"` // the certificate asks for it (RFC 7633)
	Valid      bool       `json:"valid"`       // verified, good and current
	Status     string     `json:"status,omitempty"`
	Signer     string     `json:"signer,omitempty"`
	ProducedAt *time.Time `json:"produced_at,omitempty"`
	ThisUpdate *time.Time `json:"this_update,omitempty"`
	NextUpdate *time.Time `json:"next_update,omitempty"`
	Bytes      int        `json:"bytes,omitempty"`
	Error      string     `json:"error,omitempty"` // why it is not valid
}

// Chain describes the certificates the server sent, leaf first.
type Chain struct {
	Trusted      bool          `json:"trusted"` // for the server name, by the CAs given or the system's
	Error        string        `json:"error,omitempty"`
	Certificates []Certificate `json:"certificates"`
}

// Certificate describes one certificate of the chain.
type Certificate struct {
	Subject            string    `json:"subject"`
	Issuer             string    `json:"issuer"`
	Names              []string  `json:"names,omitempty"` // subject alternative names
	Serial             string    `json:"serial"`          // hexadecimal
	NotBefore          time.Time `json:"not_before"`
	NotAfter           time.Time `json:"not_after"`
	Key                string    `json:"key"` // for example "ECDSA P-256"
	SignatureAlgorithm string    `json:"signature_algorithm"`
	SHA256             string    `json:"sha256"` // fingerprint, hexadecimal
}

// Requirement is one item of -require and whether it holds.
type Requirement struct {
	Name   string `json:"name"`
	Holds  bool   `json:"holds"`
	Reason string `json:"reason,omitempty"` // why it does not
}
