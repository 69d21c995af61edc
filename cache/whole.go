package cache

import (
	"iter"
	"math"
	"time"
)

// The calls here concern the whole cache. They visit many entries, and take each
// shard's lock for a batch at a time, so that others need not wait for the end; only Len
// counts what has expired in a shard in one go.

// eachBatch calls f under the shard's lock until f returns false.
func (c *Cache[K, V]) eachBatch(s *shard[K, V], f func() bool) {
	for more := true; more; {
		s.mu.Lock()
		more = f()
		c.done(s)
	}
}

// Len returns the number of live entries. It pays for those that have expired and
// were not yet reclaimed; Stats().Entries is the cheap count of what is held.
func (c *Cache[K, V]) Len() (n int) {
	now := c.time()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.held - s.slots.countExpired(now)
		s.mu.Unlock()
	}
	return n
}

// Bytes returns the weights of the entries held and the cache's own overhead for
// each of them.
func (c *Cache[K, V]) Bytes() (n int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.bytes
		s.mu.Unlock()
	}
	return n
}

// All returns an iterator over the live entries, in no particular order, which
// leaves their order of use alone. It holds no lock while the loop body runs, which
// may use the cache. An entry that stays is seen once, or perhaps twice while Shed,
// SetCapacity or a put into a cache with MaxBytes move it; one that comes or goes meanwhile may or may not be seen.
func (c *Cache[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		var found []entry[K, V]
		for i := range c.shards {
			// From the last slot down, since compacting moves entries down.
			for at := ^uint32(0); at > firstSlot; {
				found, at = c.collect(&c.shards[i], found[:0], at)
				for j := range found {
					if !yield(found[j].key, found[j].value) {
						return
					}
				}
			}
		}
	}
}

// collect appends a batch of live entries below slot at, and returns where it ended.
func (c *Cache[K, V]) collect(s *shard[K, V], found []entry[K, V], at uint32) ([]entry[K, V], uint32) {
	now := c.time()
	s.mu.Lock()
	defer s.mu.Unlock()
	at = min(at, s.top)
	for end := at - min(batch, at-firstSlot); at > end; {
		at--
		if t := s.slots.at(at).expires; t != free && t > now {
			found = append(found, *s.entries.at(at))
		}
	}
	return found, at
}

// Clear removes all entries and gives their memory back.
func (c *Cache[K, V]) Clear() {
	now := c.time()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		old := s.state
		s.init()
		s.mu.Unlock()

		expired := uint64(old.slots.countExpired(now))
		s.mu.Lock()
		s.counts.reasons[ReasonExpired] += expired
		s.counts.reasons[ReasonDeleted] += uint64(old.held) - expired
		s.mu.Unlock()
		if c.onEvict != nil {
			c.tell(&old, now)
		}
		old.entries.clear()
	}
}

// tell tells OnEvict of all entries of a state that was thrown away.
func (c *Cache[K, V]) tell(old *state[K, V], now int64) {
	for i := uint32(firstSlot); i < old.top; i++ {
		t := old.slots.at(i).expires
		if t == free {
			continue
		}
		reason := ReasonDeleted
		if t <= now {
			reason = ReasonExpired
		}
		e := old.entries.at(i)
		c.onEvict(e.key, e.value, reason)
	}
}

// Shed drops what has expired and then the n least recently used live entries, or
// all if there are fewer, gives their memory back, and returns how many live entries
// it dropped. Each shard drops its part of n.
func (c *Cache[K, V]) Shed(n int) (dropped int) {
	held := make([]int, len(c.shards))
	left := 0
	for i := range c.shards {
		c.reclaimAll(&c.shards[i])
		s := &c.shards[i]
		s.mu.Lock()
		held[i] = s.held
		s.mu.Unlock()
		left += held[i]
	}
	n = min(max(n, 0), left)
	for i := range c.shards {
		if left == 0 {
			break
		}
		// Rounded up, so that the parts of the rest never exceed what the rest holds.
		part := int((uint64(n)*uint64(held[i]) + uint64(left) - 1) / uint64(left))
		part = min(part, held[i])
		d := c.shedFrom(&c.shards[i], part)
		dropped, n, left = dropped+d, n-part, left-held[i]
	}
	for i := range c.shards {
		s := &c.shards[i]
		c.eachBatch(s, s.compactSome)
	}
	return dropped
}

// shedFrom drops the n least recently used entries of a shard.
func (c *Cache[K, V]) shedFrom(s *shard[K, V], n int) (dropped int) {
	c.eachBatch(s, func() bool {
		for range batch {
			if dropped == n || s.held == 0 {
				return false
			}
			s.remove(s.slots.last(used), ReasonShed)
			dropped++
		}
		return true
	})
	return dropped
}

// reclaimAll removes all of a shard's expired entries.
func (c *Cache[K, V]) reclaimAll(s *shard[K, V]) {
	now := c.time()
	c.eachBatch(s, func() bool {
		for range batch {
			if !s.reclaim(now) {
				return false
			}
		}
		return true
	})
}

// SetCapacity changes the greatest number of entries, evicts what is too much, in
// the order that a put would, and gives its memory back. n ≤ 0: unbounded. The number
// of shards stays: with fewer entries than shards, some shards hold nothing.
func (c *Cache[K, V]) SetCapacity(n int) {
	c.capacity.Store(int64(max(0, n)))
	for i := range c.shards {
		s := &c.shards[i]
		c.setShare(s, i)
		s.mu.Lock()
		compact := s.roomy()
		s.mu.Unlock()
		if compact {
			c.eachBatch(s, s.compactSome)
		}
	}
}

// setShare brings shard i's capacity down step by step, so that no call meets a shard
// that holds much more than it may. Each step looks at what the whole's capacity is by
// then: of several calls at once, one from within OnEvict among them, the last one wins
// in every shard, and none waits for another.
func (c *Cache[K, V]) setShare(s *shard[K, V], i int) {
	now := c.time()
	c.eachBatch(s, func() bool {
		capacity := int(share(c.capacity.Load(), i, len(c.shards)))
		s.capacity = capacity
		if capacity != unbounded {
			s.capacity = max(capacity, s.held-batch)
		}
		s.fit(now)
		return s.capacity != capacity
	})
}

// Stats returns the counters and gauges. It costs a few loads for each shard,
// however many entries there are.
func (c *Cache[K, V]) Stats() Stats {
	now := uint32(c.now() >> stampBits)
	t := Stats{Capacity: int(c.capacity.Load()), MaxBytes: c.maxBytes, Shards: len(c.shards)}
	since := time.Duration(math.MaxInt64)
	for i := range c.shards {
		n := c.shards[i].addTo(&t, now)
		room := n.reasons[ReasonCapacity] + n.reasons[ReasonBytes]
		if at := idle(now, n.evictedAt); room > 0 && at < since {
			since, t.EvictedIdle = at, time.Duration(n.evictedIdle)<<stampBits
		}
	}
	return t
}
