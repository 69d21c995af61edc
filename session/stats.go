package session

import (
	"sync/atomic"
	"time"
)

// Stats are counters since the start and gauges of now.
type Stats struct {
	Lookups        map[Result]uint64 `json:"lookups"`             // by result; every one of Results is present
	Stored         uint64            `json:"stored"`              // sessions put at commit
	NotStored      map[string]uint64 `json:"not_stored"`          // by reason: too_large, no_key, revoked, used, successors, share, expired, no_room
	Evictions      map[string]uint64 `json:"evictions"`           // by the cache's reason
	Entries        int               `json:"entries"`             // sessions held
	Bytes          int64             `json:"bytes"`               // memory they take
	Capacity       int               `json:"capacity"`            // bound of Entries
	MaxBytes       int64             `json:"max_bytes"`           // bound of Bytes; 0: none
	OldestAge      time.Duration     `json:"oldest_age_ns"`       // of the oldest session held, to within 19 s; 0: none
	LastEvictedAge time.Duration     `json:"last_evicted_age_ns"` // of the session last dropped for room; 0: none yet
	ShareLimited   uint64            `json:"share_limited"`       // sessions dropped because their client held its share
	Clients        int               `json:"clients"`             // client addresses that hold sessions
	Revocations    int               `json:"revocations"`         // records in force
	StoreQueued    int               `json:"store_queued"`        // changes waiting for the store
	StoreDropped   uint64            `json:"store_dropped"`       // changes lost because too many waited
	StoreFailed    uint64            `json:"store_failed"`        // changes lost because the store did not take them
	Scans          uint64            `json:"scans"`               // the cache's searches for expired sessions
}

// Status is Stats with the limits and revocations in force, for people.
type Status struct {
	Stats
	Lifetime           time.Duration `json:"lifetime_ns"`
	ClientAuthLifetime time.Duration `json:"client_auth_lifetime_ns"`
	ReuseWindow        string        `json:"reuse_window"` // a duration, "single" or "unlimited"
	ClientShare        float64       `json:"client_share"` // negative: off
	Shared             bool          `json:"shared"`       // a store is in use
	Revoked            []Record      `json:"revoked"`      // newest first, at most 100
}

const maxListed = 100

type counters struct {
	lookups      map[Result]*atomic.Uint64
	refused      map[reason]*atomic.Uint64
	stored       atomic.Uint64
	shareLimited atomic.Uint64
	lastEvicted  atomic.Int64 // seconds + 1; 0: none
}

// prepare makes the counters of every result and reason.
func (c *counters) prepare() {
	c.lookups, c.refused = map[Result]*atomic.Uint64{}, map[reason]*atomic.Uint64{}
	for _, r := range Results() {
		c.lookups[r] = new(atomic.Uint64)
	}
	for _, r := range reasons() {
		c.refused[r] = new(atomic.Uint64)
	}
}

func (c *counters) count(r Result) {
	if n := c.lookups[r]; n != nil {
		n.Add(1)
	}
}

func (c *counters) notStored(r reason) {
	if n := c.refused[r]; n != nil {
		n.Add(1)
	}
}

// Stats returns the numbers of now.
func (r *Resumer) Stats() Stats {
	cs := r.cache.Stats()
	s := Stats{
		Lookups: make(map[Result]uint64, len(r.lookups)), NotStored: make(map[string]uint64, len(r.refused)),
		Evictions: cs.Evictions.ByName(),
		Stored:    r.stored.Load(), ShareLimited: r.shareLimited.Load(),
		Entries: cs.Entries, Bytes: cs.Bytes, Capacity: cs.Capacity, MaxBytes: cs.MaxBytes, Scans: cs.Scans,
		Clients: r.shares.clients(), Revocations: int(r.revoked.count.Load()),
		StoreQueued: r.queue.len(), StoreDropped: r.queue.dropped.Load(), StoreFailed: r.queue.failed.Load(),
	}
	for result, n := range r.lookups {
		s.Lookups[result] = n.Load()
	}
	for why, n := range r.refused {
		s.NotStored[string(why)] = n.Load()
	}
	if age, ok := r.ages.oldest(r.second()); ok {
		s.OldestAge = time.Duration(age) * time.Second
	}
	if last := r.lastEvicted.Load(); last > 0 {
		s.LastEvictedAge = time.Duration(last-1) * time.Second
	}
	return s
}

// Status returns the state of now.
func (r *Resumer) Status() Status {
	l := r.limits.Load()
	s := Status{
		Stats: r.Stats(), Lifetime: l.lifetime, ClientAuthLifetime: l.clientAuth,
		ReuseWindow: reuseWindow(l.reuse), ClientShare: l.share, Shared: r.store != nil,
		Revoked: r.revoked.list(),
	}
	s.Revoked = s.Revoked[:min(len(s.Revoked), maxListed)]
	return s
}

func reuseWindow(d time.Duration) string {
	switch d {
	case SingleUse:
		return "single"
	case Unlimited:
		return "unlimited"
	}
	return d.String()
}
