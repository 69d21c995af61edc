package ocsp

import (
	"crypto/x509"
	"slices"
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
	Revoked           int `json:"revoked"`             // known to be revoked
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

// Status describes every registered certificate, ordered by its first name.
func (s *Stapler) Status() []CertificateStatus {
	entries := s.list()
	statuses := make([]CertificateStatus, 0, len(entries))
	now := s.opts.Now()
	for _, e := range entries {
		statuses = append(statuses, e.status(now))
	}
	return statuses
}

func (e *entry) status(now time.Time) CertificateStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := CertificateStatus{
		Certificate: e.id(), Names: e.names, MustStaple: e.mustStaple,
		Responders: slices.Clone(e.target.urls), State: e.state(now),
		LastFetch: e.lastFetch, LastResult: e.last, Failures: e.failures, NextFetch: e.next,
	}
	if e.target.local != nil {
		c.Responders = []string{"local"}
	}
	if e.lastError != nil {
		c.LastError = e.lastError.Error()
	}
	r := e.held
	if c.State == StateRevoked {
		r = e.revoked
		c.RevokedAt = r.RevokedAt
	}
	if r != nil {
		c.ThisUpdate, c.NextUpdate = r.ThisUpdate, r.NextUpdate
	}
	if c.State == StateGood {
		c.Expires = r.End
	}
	return c
}

// state is the state of e. e.mu is held.
func (e *entry) state(now time.Time) State {
	switch {
	case e.problem != "":
		return e.problem
	case e.revoked.final(), e.revoked.onHold() && now.Before(e.revoked.End):
		return StateRevoked
	case e.held != nil && now.Before(e.held.End):
		return StateGood
	}
	return StatePending
}

// Stats returns the counters and gauges.
func (s *Stapler) Stats() Stats {
	st := Stats{
		Fetches: s.fetcher.counts(),
		Store: StoreStats{
			Hits: s.shared.hits.Load(), Writes: s.shared.writes.Load(), Errors: s.shared.errors.Load(),
		},
		PersistErrors: s.disk.errors.Load(),
		Cache:         s.cache.Stats(),
	}
	now := s.opts.Now()
	for _, e := range s.list() {
		e.mu.Lock()
		state := e.state(now)
		e.mu.Unlock()
		st.Certificates++
		if state != StateNoResponder {
			st.WithResponder++
		}
		switch state {
		case StateGood:
			st.Stapled++
		case StateRevoked:
			st.Revoked++
		}
		if state != StateGood && e.mustStaple {
			st.MustStapleMissing++
		}
	}
	return st
}

// namesOf returns the names that a certificate is for, the subject's last
// resort.
func namesOf(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 && c.Subject.String() != "" {
		names = []string{c.Subject.String()}
	}
	return names
}
