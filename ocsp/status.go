package ocsp

import (
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

// State is what a certificate's stapling is doing.
type State string

// The states of a certificate.
const (
	StateNoResponder State = "no_responder" // it names no responder: nothing to do
	StateNoIssuer    State = "no_issuer"    // its issuer is unknown: nothing can be asked
	StatePending     State = "pending"      // no usable response yet, or none any more
	StateGood        State = "good"         // stapled
	StateRevoked     State = "revoked"      // revoked: not stapled
)

// CertificateStatus describes the stapling of one certificate.
type CertificateStatus struct {
	Certificate string    `json:"certificate"` // SHA-256 of the leaf, hexadecimal
	Names       []string  `json:"names"`
	MustStaple  bool      `json:"must_staple"`
	Responders  []string  `json:"responders,omitempty"`
	State       State     `json:"state"`
	ThisUpdate  time.Time `json:"this_update,omitzero"`
	NextUpdate  time.Time `json:"next_update,omitzero"`
	Expires     time.Time `json:"expires,omitzero"`     // when the staple ceases to be served
	RevokedAt   time.Time `json:"revoked_at,omitzero"`  // when the CA revoked it
	LastFetch   time.Time `json:"last_fetch,omitzero"`  // when the last fetch ended
	LastResult  Reason    `json:"last_result,omitzero"` // of the last fetch
	LastError   string    `json:"last_error,omitempty"` // of the last fetch, "" after a good one
	Failures    int       `json:"failures"`             // fetches failed in a row
	NextFetch   time.Time `json:"next_fetch,omitzero"`  // zero: none is planned
}

// Stats are counters since the start and gauges of now.
type Stats struct {
	Fetches map[Reason]uint64 `json:"fetches"` // exchanges with responders by result; every result seen
	Store   StoreStats        `json:"store"`

	Certificates      int `json:"certificates"`        // registered
	WithResponder     int `json:"with_responder"`      // of those
	Stapled           int `json:"stapled"`             // with a staple that is served now
	MustStapleMissing int `json:"must_staple_missing"` // must-staple certificates without one

	PersistErrors uint64 `json:"persist_errors"` // responses that could not be written to the state directory

	Cache cache.Stats `json:"cache"`
}

// StoreStats counts the use of the shared store.
type StoreStats struct {
	Hits   uint64 `json:"hits"`   // responses taken over from another replica
	Writes uint64 `json:"writes"` // responses given to the others
	Errors uint64 `json:"errors"`
}
