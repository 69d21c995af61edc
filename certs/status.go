package certs

import "time"

// Status describes one certificate, or one name whose certificate is still to
// be obtained.
type Status struct {
	// Name stands for the certificate in metrics: the file or the host of the
	// configuration. Certificates obtained on demand share "on_demand", so
	// that clients cannot make label values.
	Name string `json:"name"`
	// Source is where it comes from: file, pkcs12, directory, acme or local, or
	// [SourceClient].
	Source string `json:"source"`
	// SourceIndex is the place in the list of sources.
	SourceIndex int `json:"source_index"`
	// Default: served when no certificate carries the name asked for.
	Default bool `json:"default"`

	Names       []string  `json:"names"`
	NotBefore   time.Time `json:"not_before,omitzero"` // zero: there is no certificate yet
	NotAfter    time.Time `json:"not_after,omitzero"`
	KeyType     string    `json:"key_type,omitempty"` // for example "ECDSA P-256"
	Issuer      string    `json:"issuer,omitempty"`
	Serial      string    `json:"serial,omitempty"`      // hexadecimal
	Fingerprint string    `json:"fingerprint,omitempty"` // SHA-256 of the leaf, hexadecimal
	MustStaple  bool      `json:"must_staple"`
	Responder   bool      `json:"ocsp_responder"` // names an OCSP responder
	Warnings    []string  `json:"warnings,omitempty"`

	LastError     string    `json:"last_error,omitempty"` // why what is served is not newer; "": all is well
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
	NextAction    string    `json:"next_action,omitempty"` // in words
	NextActionAt  time.Time `json:"next_action_at,omitzero"`

	ACME *ACMEStatus `json:"acme,omitempty"` // nil unless Source is acme
}

// SourceClient is the source of what is presented to servers, not to clients.
const SourceClient = "client"

// ACMEState is what an ACME certificate is waiting for.
type ACMEState string

// The states of an ACME certificate.
const (
	ACMEPending   ACMEState = "pending"   // no attempt was made yet
	ACMEObtaining ACMEState = "obtaining" // an order is being worked on
	ACMEValid     ACMEState = "valid"     // nothing to do before NextActionAt
	ACMEFailed    ACMEState = "failed"    // the last attempt failed; the next is at NextActionAt
)

// ACMEStatus is the part of a [Status] that only ACME certificates have.
type ACMEStatus struct {
	State     ACMEState `json:"state"`
	OnDemand  bool      `json:"on_demand"`
	Directory string    `json:"directory,omitempty"` // of the issuer that issued it; "": not known
	Failures  int       `json:"failures"`            // failed attempts since the last success
	// The renewal window that the CA suggests (RFC 9773) and the time chosen
	// in it; zero without ARI.
	WindowStart time.Time `json:"window_start,omitzero"`
	WindowEnd   time.Time `json:"window_end,omitzero"`
	RenewAt     time.Time `json:"renew_at,omitzero"`
	Explanation string    `json:"explanation_url,omitempty"`
}

// Stats counts what a [Store] did since it was made.
type Stats struct {
	Reloads         uint64 `json:"reloads"`           // changed files taken over
	ReloadFailures  uint64 `json:"reload_failures"`   // changed files that could not be loaded
	Obtained        uint64 `json:"obtained"`          // certificates obtained by ACME, renewals included
	ObtainFailures  uint64 `json:"obtain_failures"`   // ACME attempts that failed
	OnDemandRefused uint64 `json:"on_demand_refused"` // names refused by allow list, ask URL or rate
	Polling         bool   `json:"polling"`           // files are polled, as they cannot be watched
	Watched         int    `json:"watched"`           // directories that are watched now
}
