package clientauth

import (
	"sync/atomic"
	"time"
)

// Status is the state of a site's client authentication, for people.
type Status struct {
	Site string `json:"site"`
	Mode string `json:"mode"`
	// Error says why every client is refused, empty in good times.
	Error string `json:"error,omitempty"`
	// Loaded is when the rules in force were read.
	Loaded time.Time `json:"loaded"`
	// Authorities is the number of trust anchors.
	Authorities int `json:"authorities"`
	// AllowList reports whether there is an allow-list, AllowEntries its size.
	AllowList    bool        `json:"allow_list"`
	AllowEntries int         `json:"allow_entries"`
	CRLs         []CRLStatus `json:"crls,omitempty"`
	OCSP         string      `json:"ocsp"`
	// SoftFailures counts, of this verifier and its predecessors, connections let in without an answer of the OCSP
	// responder, with OCSP soft.
	SoftFailures uint64 `json:"soft_failures"`
	// Refusals counts, likewise, connections refused by the rules here, by reason; those
	// that crypto/tls refuses before it asks for the rules are not among them.
	Refusals map[Reason]uint64 `json:"refusals"`
}

// CRLStatus is the state of one certificate revocation list.
type CRLStatus struct {
	File       string    `json:"file"`
	Issuer     string    `json:"issuer"`
	Number     string    `json:"number,omitempty"`
	Delta      bool      `json:"delta"`
	ThisUpdate time.Time `json:"this_update"`
	NextUpdate time.Time `json:"next_update"`
	// Entries is the number of serial numbers on the list.
	Entries int `json:"entries"`
	// Current reports whether the list speaks for the present moment.
	Current bool `json:"current"`
	// Decides reports whether it matters that the list is current: neither a
	// newer list of its scope nor a delta list takes its place.
	Decides bool `json:"decides"`
}

// CRLExpiry is the earliest nextUpdate of the lists that decide; zero without
// any.
func (s Status) CRLExpiry() time.Time {
	var earliest time.Time
	for _, c := range s.CRLs {
		if c.Decides && !c.NextUpdate.IsZero() && (earliest.IsZero() || c.NextUpdate.Before(earliest)) {
			earliest = c.NextUpdate
		}
	}
	return earliest
}

// Status describes the rules now in force.
func (v *Verifier) Status() Status {
	s := v.current.Load()
	st := Status{
		Site:         v.site,
		Mode:         v.mode.String(),
		Loaded:       s.Loaded,
		Authorities:  len(s.anchors),
		OCSP:         v.ocsp.String(),
		SoftFailures: v.softFailures.Load(),
		Refusals:     v.refusals.snapshot(),
	}
	if s.Err != nil {
		st.Error = s.Err.Error()
	}
	if s.allow != nil {
		st.AllowList, st.AllowEntries = true, len(s.allow.entries)
	}
	if s.crls != nil {
		st.CRLs = s.crls.status(v.now())
	}
	return st
}

// counters belong to a site and outlive its verifiers.
type counters struct {
	refusals     refusalCounters
	softFailures atomic.Uint64
}

// refusalReasons is every reason, in the order of the counters.
var refusalReasons = [...]Reason{Missing, Invalid, Denied, Revoked, Unchecked, Unavailable}

type refusalCounters [len(refusalReasons)]atomic.Uint64

func (c *refusalCounters) count(r Reason) {
	for i, known := range refusalReasons {
		if known == r {
			c[i].Add(1)
		}
	}
}

func (c *refusalCounters) snapshot() map[Reason]uint64 {
	m := make(map[Reason]uint64, len(c))
	for i, r := range refusalReasons {
		m[r] = c[i].Load()
	}
	return m
}
