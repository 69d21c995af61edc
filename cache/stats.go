package cache

import "time"

// Stats are a cache's counters and gauges at one moment. Counters start at zero
// and only grow. Each shard is read at its own instant, so sums over a busy cache
// may be off by what happened meanwhile.
type Stats struct {
	Hits      uint64    `json:"hits"`      // Get and Take that found a live entry
	Misses    uint64    `json:"misses"`    // Get and Take that did not
	Puts      uint64    `json:"puts"`      // Put and PutFor that stored an entry
	Rejected  uint64    `json:"rejected"`  // Put and PutFor that stored nothing: too heavy, or no lifetime left
	Taken     uint64    `json:"taken"`     // entries handed out by Take
	Evictions Evictions `json:"evictions"` // entries that left otherwise

	Scans   uint64 `json:"scans"`   // searches for expired entries
	Visited uint64 `json:"visited"` // entries that those searches looked at

	Entries  int   `json:"entries"`   // entries held, expired ones not yet reclaimed included
	Bytes    int64 `json:"bytes"`     // as [Cache.Bytes]
	Capacity int   `json:"capacity"`  // the bound now in force; 0: none
	MaxBytes int64 `json:"max_bytes"` // the bound now in force; 0: none
	Shards   int   `json:"shards"`    // parts with a lock of their own

	// EvictedIdle is how long the entry last evicted for room (capacity or bytes)
	// had gone unused: a cache that is too small shows as a short time. Zero: none
	// was evicted yet.
	EvictedIdle time.Duration `json:"evicted_idle_ns"`
	// OldestIdle is how long the least recently used entry has gone unused.
	OldestIdle time.Duration `json:"oldest_idle_ns"`
}

// Evictions count the entries that left a cache, by reason.
type Evictions struct {
	Expired  uint64 `json:"expired"`
	Capacity uint64 `json:"capacity"`
	Bytes    uint64 `json:"bytes"`
	Replaced uint64 `json:"replaced"`
	Deleted  uint64 `json:"deleted"`
	Shed     uint64 `json:"shed"`
}

// By returns the count for one reason.
func (e Evictions) By(r Reason) uint64 {
	switch r {
	case ReasonExpired:
		return e.Expired
	case ReasonCapacity:
		return e.Capacity
	case ReasonBytes:
		return e.Bytes
	case ReasonReplaced:
		return e.Replaced
	case ReasonDeleted:
		return e.Deleted
	case ReasonShed:
		return e.Shed
	}
	return 0
}

// ByName returns the counts of all reasons under their names.
func (e Evictions) ByName() map[string]uint64 {
	m := make(map[string]uint64, reasons)
	for r := range reasons {
		m[r.String()] = e.By(r)
	}
	return m
}

// taken counts the entries that Take hands out, beside those that leave for a reason.
const taken = reasons

// counts are a shard's counters. They change under its lock.
type counts struct {
	hits, misses, puts, rejected uint64
	scans, visited               uint64
	reasons                      [reasons + 1]uint64
	evictedAt, evictedIdle       uint32 // of the last eviction for room, in stamps
}

// addTo adds a shard's counters and gauges to t, at a time given in stamps, and
// returns the counters. It holds the lock for a copy of them.
func (s *shard[K, V]) addTo(t *Stats, now uint32) counts {
	s.mu.Lock()
	n, held, bytes := s.counts, s.held, s.bytes
	oldest := s.slots.at(s.slots.last(used)).stamp
	s.mu.Unlock()

	t.Hits += n.hits
	t.Misses += n.misses
	t.Puts += n.puts
	t.Rejected += n.rejected
	t.Taken += n.reasons[taken]
	t.Scans += n.scans
	t.Visited += n.visited
	t.Entries += held
	t.Bytes += bytes
	e := &t.Evictions
	e.Expired += n.reasons[ReasonExpired]
	e.Capacity += n.reasons[ReasonCapacity]
	e.Bytes += n.reasons[ReasonBytes]
	e.Replaced += n.reasons[ReasonReplaced]
	e.Deleted += n.reasons[ReasonDeleted]
	e.Shed += n.reasons[ReasonShed]
	if held > 0 {
		t.OldestIdle = max(t.OldestIdle, idle(now, oldest))
	}
	return n
}

// idle returns the time between two stamps.
func idle(now, then uint32) time.Duration {
	return time.Duration(max(0, int64(now)-int64(then))) << stampBits
}
