package session

import (
	"context"
	"time"
)

// Resumer keeps sessions and resumes them. Make one with [New]; its methods
// are safe for concurrent use.
type Resumer struct{}

// New returns a Resumer, or an error that names the option that is wrong.
func New(o Options) (*Resumer, error) { return &Resumer{}, nil }

// Run does the work behind the handshakes until ctx ends: writing to the
// store, receiving other replicas' revocations, keeping revocations on disk.
// It must run whenever there is a Store.
func (r *Resumer) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Begin makes the Attempt of one connection.
func (r *Resumer) Begin(b Binding) *Attempt { return &Attempt{} }

// SetLimits puts new limits in force; sessions already held keep their place
// as far as the limits allow.
func (r *Resumer) SetLimits(l Limits) error { return nil }

// Revoke ends the sessions of s that were authenticated up to now: on the next
// hello, on handshakes under way, across restarts, and on every replica. An
// error that wraps [ErrNotShared] or [ErrNotKept] means that the revocation is
// in force here but not yet everywhere; sharing is tried again until it works.
func (r *Resumer) Revoke(ctx context.Context, s Subject) error { return nil }

// Shed drops up to n least recently used sessions and returns how many.
func (r *Resumer) Shed(n int) int { return 0 }

// Clear drops every session held here. Unlike [Resumer.Revoke] it touches no
// other replica and no handshake under way.
func (r *Resumer) Clear() {}

// Stats are counters since the start and gauges of now.
type Stats struct {
	Lookups        map[Result]uint64 `json:"lookups"`          // by result; every key of Results is present
	Stored         uint64            `json:"stored"`           // sessions put at commit
	NotStored      map[string]uint64 `json:"not_stored"`       // by reason: too_large, no_key, revoked, used, successors, share, expired
	Evictions      map[string]uint64 `json:"evictions"`        // by the cache's reason
	Entries        int               `json:"entries"`          // sessions held
	Bytes          int64             `json:"bytes"`            // memory they take
	Capacity       int               `json:"capacity"`         // bound of Entries
	MaxBytes       int64             `json:"max_bytes"`        // bound of Bytes; 0: none
	OldestAge      time.Duration     `json:"oldest_age"`       // of the oldest session held; 0: none
	LastEvictedAge time.Duration     `json:"last_evicted_age"` // of the session last dropped for room; 0: none yet
	ShareLimited   uint64            `json:"share_limited"`    // sessions dropped or not kept because their client held its share
	Revocations    int               `json:"revocations"`      // records in force
	StoreQueued    int               `json:"store_queued"`     // changes waiting for the store
	StoreDropped   uint64            `json:"store_dropped"`    // changes lost: queue full, or the store refused them
	Scans          uint64            `json:"scans"`            // the cache's searches for expired sessions
}

// Stats returns the numbers of now.
func (r *Resumer) Stats() Stats { return Stats{} }

// Status is Stats and the limits and revocations in force, for people.
type Status struct {
	Stats
	Lifetime    time.Duration `json:"lifetime"`
	ReuseWindow string        `json:"reuse_window"` // a duration, "single" or "unlimited"
	Shared      bool          `json:"shared"`       // a store is in use
	Revoked     []Record      `json:"revoked"`      // newest first, at most 100
}

// Record is one revocation in force.
type Record struct {
	Subject
	At time.Time `json:"at"`
}

// Status returns the state of now.
func (r *Resumer) Status() Status { return Status{} }
