package cache

import (
	"math/bits"
	"sync"
)

// reclaimPerPut is how many expired entries a put reclaims at most when it needs no
// room. Each put adds one entry, so with one the cache grows no further while it holds
// any that have expired, and a put costs hardly more than one that evicts.
const reclaimPerPut = 1

// unbounded is the bound of a shard that has none. A share of zero is a bound: such
// a shard holds nothing.
const unbounded = -1

// batch is how many entries a call that visits many handles for each time it takes
// the lock.
const batch = 256

type entry[K comparable, V any] struct {
	key   K
	value V
}

type eviction[K comparable, V any] struct {
	entry[K, V]
	reason Reason
}

// A shard is one part of a cache: its own lock, its own order and its share of the
// bounds. A slot number leads to the entry, its weight, its node in the order and its
// expiry, each in an array of their own, so that what is walked lies close together
// and the arrays hold no pointers where keys and values hold none.
type shard[K comparable, V any] struct {
	mu sync.Mutex
	state[K, V]

	c        *Cache[K, V]
	capacity int   // or unbounded
	maxBytes int64 // or unbounded
	ops      uint32
	stamp    uint32
	counts   counts
	gone     []eviction[K, V] // for OnEvict, once the lock is free

	_ [64]byte // keeps a neighbour's lock out of this cache line
}

// state is what Clear throws away.
type state[K comparable, V any] struct {
	entries pages[entry[K, V]]
	weights pages[int64] // empty unless entries have weights
	slots   slots
	index   index
	top     uint32 // slots from here on were never used
	held    int    // entries
	bytes   int64  // their weights and the overhead for each
}

func (s *shard[K, V]) init() {
	s.state = state[K, V]{top: firstSlot}
	s.slots.init()
	s.index.init(func(i uint32) uint32 { return s.slots.at(i).hash })
}

// find returns the slot of a key, or 0.
func (s *shard[K, V]) find(hash uint32, k *K) uint32 {
	tag := tagOf(hash)
	for b := s.index.bucketOf(hash); ; b = s.index.over.at(b.next) {
		lo, hi := b.match(tag)
		for ; lo != 0; lo &= lo - 1 {
			if i := b.ids[bits.TrailingZeros64(lo)/8]; s.entries.at(i).key == *k {
				return i
			}
		}
		for ; hi != 0; hi &= hi - 1 {
			if i := b.ids[8+bits.TrailingZeros64(hi)/8]; s.entries.at(i).key == *k {
				return i
			}
		}
		if b.next == 0 {
			return 0
		}
	}
}

// live returns the slot of a key whose entry has not expired, or 0. An expired one
// it reclaims.
func (s *shard[K, V]) live(hash uint32, k *K, now int64) uint32 {
	i := s.find(hash, k)
	if i != 0 && now >= s.slots.tree.root && s.slots.at(i).expires <= now {
		s.remove(i, ReasonExpired)
		return 0
	}
	return i
}

// use makes an entry the most recently used.
func (s *shard[K, V]) use(i uint32, now int64) {
	s.slots.touch(i)
	s.slots.at(i).stamp = s.stampAt(now)
}

// stampAt returns the stamp of now. A cache without lifetimes does not read the
// clock on each call; it does on every 64th.
func (s *shard[K, V]) stampAt(now int64) uint32 {
	if now == noClock {
		if s.ops++; s.ops%64 != 1 {
			return s.stamp
		}
		now = s.c.now()
	}
	s.stamp = uint32(now >> stampBits)
	return s.stamp
}

// store puts an entry of the given weight, which must fit the shard's bounds.
func (s *shard[K, V]) store(hash uint32, k *K, v *V, weight, expires, now int64) {
	for range reclaimPerPut {
		if now < s.slots.tree.root || !s.reclaim(now) {
			break
		}
	}
	s.counts.puts++
	if i := s.find(hash, k); i != 0 {
		s.replace(i, v, weight, now)
		s.slots.expire(i, expires)
		s.fit(0, 0, now)
	} else if s.held == s.capacity && s.weightless() && (now < s.slots.tree.root || !s.reclaim(now)) {
		s.recycle(hash, k, v, expires, now)
		return
	} else {
		s.fit(1, weight, now)
		s.insert(hash, k, v, weight, expires, now)
	}
	if s.maxBytes != unbounded {
		s.compactForBytes()
	}
}

// weightless reports whether all entries take the same bytes, so that one may take
// another's place.
func (s *shard[K, V]) weightless() bool { return s.c.weigh == nil }

// recycle puts an entry into the slot of the least recently used one: what insert
// does after evicting that, in fewer steps. A full cache does so at every put.
func (s *shard[K, V]) recycle(hash uint32, k *K, v *V, expires, now int64) {
	i := s.slots.last(used)
	p, e := s.slots.at(i), s.entries.at(i)
	s.counts.evictedAt = s.stampAt(now)
	s.counts.evictedIdle = s.stamp - p.stamp
	s.report(e, ReasonCapacity)
	s.index.remove(p.hash, i)
	e.key, e.value = *k, *v
	p.hash, p.stamp = hash, s.stamp
	s.slots.touch(i)
	s.slots.expire(i, expires)
	s.index.insert(hash, i)
}

// replace puts another value into an entry's slot.
func (s *shard[K, V]) replace(i uint32, v *V, weight, now int64) {
	e := s.entries.at(i)
	reason := ReasonReplaced
	if s.slots.at(i).expires <= now {
		reason = ReasonExpired
	}
	s.report(e, reason)
	e.value = *v
	if s.c.weigh != nil {
		w := s.weights.at(i)
		s.bytes += weight - *w
		*w = weight
	}
	s.use(i, now)
}

// insert puts an entry into a free slot.
func (s *shard[K, V]) insert(hash uint32, k *K, v *V, weight, expires, now int64) {
	i := s.slot()
	e := s.entries.at(i)
	e.key, e.value = *k, *v
	if s.c.weigh != nil {
		*s.weights.at(i) = weight
	}
	n := s.slots.at(i)
	n.hash = hash
	n.stamp = s.stampAt(now)
	s.slots.push(used, i)
	s.slots.expire(i, expires)
	s.index.insert(hash, i)
	s.held++
	s.bytes += weight
}

// slot returns a free slot.
func (s *shard[K, V]) slot() uint32 {
	if i := s.slots.first(unused); i != unused {
		s.slots.drop(i)
		return i
	}
	i := s.top
	s.top++
	if s.top > s.entries.room() {
		var zero entry[K, V]
		s.entries.grow(s.top, zero)
		s.slots.grow(s.top)
		if s.c.weigh != nil {
			s.weights.grow(s.top, 0)
		}
	}
	return i
}

// remove takes an entry out.
func (s *shard[K, V]) remove(i uint32, reason Reason) {
	e := s.entries.at(i)
	s.report(e, reason)
	s.index.remove(s.slots.at(i).hash, i)
	s.slots.drop(i)
	s.slots.push(unused, i)
	s.slots.expire(i, free)
	s.held--
	if s.c.weigh != nil {
		s.bytes -= *s.weights.at(i)
	} else {
		s.bytes -= s.c.overhead
	}
	var zero entry[K, V]
	*e = zero
}

// report counts an entry that leaves, and keeps it for OnEvict.
func (s *shard[K, V]) report(e *entry[K, V], reason Reason) {
	s.counts.reasons[reason]++
	if s.c.onEvict != nil && reason != taken {
		s.gone = append(s.gone, eviction[K, V]{*e, reason})
	}
}

// reclaim removes one expired entry and reports whether there was one.
func (s *shard[K, V]) reclaim(now int64) bool {
	i, visited, ok := s.slots.expired(now)
	s.counts.scans++
	s.counts.visited += uint64(visited)
	if ok {
		s.remove(i, ReasonExpired)
	}
	return ok
}

// evict removes the least recently used entry.
func (s *shard[K, V]) evict(reason Reason) {
	s.remove(s.slots.last(used), reason)
}

// fit makes room for more entries of some bytes: by what has expired while there is
// any, then by the least recently used.
func (s *shard[K, V]) fit(more int, bytes, now int64) {
	for s.held > 0 {
		var reason Reason
		switch {
		case s.capacity != unbounded && s.held+more > s.capacity:
			reason = ReasonCapacity
		case s.maxBytes != unbounded && s.bytes+bytes > s.maxBytes:
			reason = ReasonBytes
		default:
			return
		}
		if now >= s.slots.tree.root && s.reclaim(now) {
			continue
		}
		s.counts.evictedAt = s.stampAt(now)
		s.counts.evictedIdle = s.stamp - s.slots.at(s.slots.last(used)).stamp
		s.evict(reason)
	}
}

// fits reports whether the shard may hold an entry of that weight at all.
func (s *shard[K, V]) fits(weight int64) bool {
	return s.capacity != 0 && (s.maxBytes == unbounded || weight <= s.maxBytes)
}
