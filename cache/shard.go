package cache

import (
	"math/bits"
	"sync"
)

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
// bounds. What every call writes comes first, in one cache line, since that line goes
// from processor to processor; what most calls only read comes after it.
type shard[K comparable, V any] struct {
	mu     sync.Mutex
	ops    uint32
	stamp  uint32
	counts counts

	gone []eviction[K, V] // for OnEvict, once the lock is free
	state[K, V]

	c        *Cache[K, V]
	capacity int   // or unbounded
	maxBytes int64 // or unbounded

	_ [64]byte // keeps a neighbour's lock out of this cache line
}

// state is what Clear throws away. A slot number leads to the slot, to the entry, and
// to its weight, each in an array of their own, so that what is walked lies close
// together and the arrays hold no pointers where keys and values hold none.
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
	// A call that another overtook after reading the clock does not turn it back.
	s.stamp = max(s.stamp, uint32(now>>stampBits))
	return s.stamp
}

// store puts an entry of the given weight, which must fit the shard's bounds. It
// reclaims one expired entry, if there is one, whether room is needed or not: so a
// shard does not grow over what has expired, and a put costs hardly more than one that
// evicts. What has expired is searched for first, so that the processor can fetch its
// bucket and that of the key side by side.
func (s *shard[K, V]) store(hash uint32, k *K, v *V, weight, expires, now int64) {
	s.counts.puts++
	old := s.expired(now)
	if i := s.find(hash, k); i != 0 {
		s.replace(i, now)
		s.fill(i, k, v, weight, expires, now)
		if old != 0 && old != i {
			s.remove(old, ReasonExpired)
		}
	} else {
		if i = s.victim(old, now); i == 0 {
			i = s.slot()
		}
		s.fill(i, k, v, weight, expires, now)
		s.slots.at(i).hash = hash
		s.index.insert(hash, i)
	}
	if s.maxBytes != unbounded {
		s.fit(now)
		s.compactForBytes()
	}
}

// replace reports an entry that gives its slot to another with its key.
func (s *shard[K, V]) replace(i uint32, now int64) {
	reason := ReasonReplaced
	if s.slots.at(i).expires <= now {
		reason = ReasonExpired
	}
	s.report(s.entries.at(i), reason)
}

// victim reports an entry that gives its slot to another with another key, and returns
// the slot: old, which has expired, or else the least recently used in a full shard.
// 0: none goes.
func (s *shard[K, V]) victim(old uint32, now int64) uint32 {
	reason := ReasonExpired
	if old == 0 {
		if s.held != s.capacity {
			return 0
		}
		reason, old = ReasonCapacity, s.slots.last(used)
		s.noteIdle(old, now)
	}
	s.report(s.entries.at(old), reason)
	s.index.remove(s.slots.at(old).hash, old)
	return old
}

// fill writes an entry over what its slot held.
func (s *shard[K, V]) fill(i uint32, k *K, v *V, weight, expires, now int64) {
	e := s.entries.at(i)
	e.key, e.value = *k, *v
	if s.c.weigh != nil {
		w := s.weights.at(i)
		s.bytes += weight - *w
		*w = weight
	}
	s.use(i, now)
	s.slots.expire(i, expires)
}

// slot turns a free slot into one of an entry, yet to be filled.
func (s *shard[K, V]) slot() uint32 {
	s.held++
	if s.c.weigh == nil {
		s.bytes += s.c.overhead
	}
	if i := s.slots.first(unused); i != unused {
		s.slots.touch(i)
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
	s.slots.push(used, i)
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
		w := s.weights.at(i)
		s.bytes -= *w
		*w = 0
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

// expired returns the slot of an entry that has expired, or 0.
func (s *shard[K, V]) expired(now int64) uint32 {
	if now < s.slots.tree.root {
		return 0
	}
	i, visited := s.slots.expired(now)
	s.counts.scans++
	s.counts.visited += uint64(visited)
	return i
}

// reclaim removes one expired entry and reports whether there was one.
func (s *shard[K, V]) reclaim(now int64) bool {
	i := s.expired(now)
	if i != 0 {
		s.remove(i, ReasonExpired)
	}
	return i != 0
}

// fit brings a shard within its bounds: by what has expired while there is any, then
// by the least recently used. An entry just put is the last to go, and it fits.
func (s *shard[K, V]) fit(now int64) {
	for {
		var reason Reason
		switch {
		case s.capacity != unbounded && s.held > s.capacity:
			reason = ReasonCapacity
		case s.maxBytes != unbounded && s.bytes > s.maxBytes:
			reason = ReasonBytes
		default:
			return
		}
		if !s.reclaim(now) {
			i := s.slots.last(used)
			s.noteIdle(i, now)
			s.remove(i, reason)
		}
	}
}

// noteIdle notes how long an entry that is evicted for room was idle.
func (s *shard[K, V]) noteIdle(i uint32, now int64) {
	s.counts.evictedAt = s.stampAt(now)
	s.counts.evictedIdle = s.stamp - s.slots.at(i).stamp
}

// fits reports whether the shard may hold an entry of that weight at all.
func (s *shard[K, V]) fits(weight int64) bool {
	return s.capacity != 0 && (s.maxBytes == unbounded || weight <= s.maxBytes)
}
