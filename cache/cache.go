package cache

import (
	"hash/maphash"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Cache is a bounded map whose entries expire. Its methods are safe for
// concurrent use. The zero value is not usable: call [New].
type Cache[K comparable, V any] struct {
	seed     maphash.Seed
	shards   []shard[K, V]
	clock    func() int64
	start    int64 // what the clock said when the cache was made
	weigh    func(K, V) int64
	onEvict  func(K, V, Reason)
	maxBytes int64
	overhead int64 // what the cache spends on each entry
	lifetime atomic.Int64
	timed    atomic.Bool // some entry has had a lifetime

	capacity atomic.Int64
}

// maxWeight bounds an entry's weight: so many that eight million of them are needed for
// their sum to overflow.
const maxWeight = 1 << 40

// noClock stands for the time in a cache where nothing has ever had a lifetime and
// the clock is not worth reading. Nothing has expired at it.
const noClock = math.MinInt64

// New returns an empty cache, or an error that names the option that cannot be meant.
func New[K comparable, V any](o Options[K, V]) (*Cache[K, V], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Cache[K, V]{
		seed:     maphash.MakeSeed(),
		clock:    o.Now,
		weigh:    o.Weigh,
		onEvict:  o.OnEvict,
		maxBytes: o.MaxBytes,
		overhead: overhead[K, V](o.Weigh != nil),
	}
	if c.clock == nil {
		start := time.Now()
		c.clock = func() int64 { return int64(time.Since(start)) }
	}
	c.start = c.clock()
	c.SetLifetime(o.Lifetime)
	n := o.Shards
	if n == 0 {
		n = shardCount(runtime.GOMAXPROCS(0), o.Capacity, o.MaxBytes)
	}
	c.capacity.Store(int64(o.Capacity))
	c.shards = make([]shard[K, V], n)
	for i := range c.shards {
		s := &c.shards[i]
		s.c = c
		s.capacity = int(share(int64(o.Capacity), i, n))
		s.maxBytes = share(o.MaxBytes, i, n)
		s.init()
	}
	return c, nil
}

// A call holds its shard's lock for most of its time, so with 32 shards for each
// processor one call in forty or so meets another. They are worth their unevenness
// only when each holds much.
const (
	minShardEntries = 2048
	minShardBytes   = 4 << 20
	shardsPerProc   = 32
)

// shardCount returns a power of two: several shards for each processor, fewer if
// their shares would get small. One processor needs one.
func shardCount(procs, capacity int, maxBytes int64) int {
	n := 1
	for procs > 1 && n < shardsPerProc*procs && n < maxShards &&
		(capacity == 0 || capacity/(2*n) >= minShardEntries) &&
		(maxBytes == 0 || maxBytes/int64(2*n) >= minShardBytes) {
		n *= 2
	}
	return n
}

// share returns part i of n of a bound, the parts differing by at most one.
func share(bound int64, i, n int) int64 {
	if bound == 0 {
		return unbounded
	}
	part := bound / int64(n)
	if int64(i) < bound%int64(n) {
		part++
	}
	return part
}

// overhead returns the bytes that an entry takes in the arrays: its slot, its node,
// its expiry and that's share of the minima above, its weight, and its part of the
// index at its usual filling.
func overhead[K comparable, V any](weights bool) int64 {
	const index = int64(unsafe.Sizeof(bucket{})) / bucketFill
	var e entry[K, V]
	n := int64(unsafe.Sizeof(e)) + int64(unsafe.Sizeof(slot{})) + 1 + index
	if weights {
		n += 8
	}
	return n
}

// now returns the time since the cache was made, which ends before forever does.
func (c *Cache[K, V]) now() int64 { return max(0, min(c.clock()-c.start, forever-1)) }

// time returns the time for a call that sets no lifetime.
func (c *Cache[K, V]) time() int64 {
	if !c.timed.Load() {
		return noClock
	}
	return c.now()
}

// after returns the time, and when a lifetime that starts now ends.
func (c *Cache[K, V]) after(d time.Duration) (now, expires int64) {
	if d == math.MaxInt64 {
		return c.time(), forever
	}
	if !c.timed.Load() {
		c.timed.Store(true)
	}
	now = c.now()
	if int64(d) > forever-now {
		return now, forever
	}
	return now, now + int64(d)
}

// done frees a shard's lock and then tells OnEvict what the call removed.
func (c *Cache[K, V]) done(s *shard[K, V]) {
	gone := s.gone
	s.gone = nil
	s.mu.Unlock()
	for i := range gone {
		c.onEvict(gone[i].key, gone[i].value, gone[i].reason)
	}
}

// Get returns the live entry under k and makes it the most recently used.
func (c *Cache[K, V]) Get(k K) (v V, ok bool) {
	s, hash := c.place(&k)
	now := c.time()
	s.mu.Lock()
	i := s.live(hash, &k, now)
	if i == 0 {
		s.counts.misses++
		c.done(s)
		return v, false
	}
	s.counts.hits++
	s.use(i, now)
	v = s.entries.at(i).value
	s.mu.Unlock()
	return v, true
}

// Put stores v under k for the cache's lifetime, in place of what was there, as
// the most recently used entry.
func (c *Cache[K, V]) Put(k K, v V) {
	c.TryPutFor(k, v, time.Duration(c.lifetime.Load()))
}

// PutFor is [Cache.Put] with a lifetime for this entry alone. With d ≤ 0 it stores
// nothing and removes what was there: a remaining life that came to nothing does
// not become immortal.
func (c *Cache[K, V]) PutFor(k K, v V, d time.Duration) { c.TryPutFor(k, v, d) }

// TryPutFor is [Cache.PutFor] and reports whether it stored v.
func (c *Cache[K, V]) TryPutFor(k K, v V, d time.Duration) bool {
	weight := c.overhead
	if c.weigh != nil {
		weight += max(0, min(c.weigh(k, v), maxWeight))
	}
	s, hash := c.place(&k)
	var now, expires int64
	if d > 0 {
		now, expires = c.after(d)
	} else {
		now = c.time()
	}
	s.mu.Lock()
	stored := d > 0 && s.fits(weight)
	if stored {
		s.store(hash, &k, &v, weight, expires, now)
	} else {
		s.counts.rejected++
		if i := s.live(hash, &k, now); i != 0 {
			s.remove(i, ReasonDeleted)
		}
	}
	c.done(s)
	return stored
}

// Cut makes the live entry under k end within d, and reports whether there is one.
// It never lengthens a life and does not touch the order of use; with d ≤ 0 the
// entry expires at once.
func (c *Cache[K, V]) Cut(k K, d time.Duration) bool {
	s, hash := c.place(&k)
	now, expires := c.time(), int64(0)
	if d > 0 {
		now, expires = c.after(d)
	}
	s.mu.Lock()
	defer c.done(s)
	i := s.live(hash, &k, now)
	switch {
	case i == 0:
		return false
	case d <= 0:
		s.remove(i, ReasonExpired)
	case expires < s.slots.at(i).expires:
		s.slots.expire(i, expires)
	}
	return true
}

// Take removes the live entry under k and returns it, in one step: of several
// takers exactly one gets it.
func (c *Cache[K, V]) Take(k K) (v V, ok bool) {
	s, hash := c.place(&k)
	now := c.time()
	s.mu.Lock()
	defer c.done(s)
	i := s.live(hash, &k, now)
	if i == 0 {
		s.counts.misses++
		return v, false
	}
	s.counts.hits++
	v = s.entries.at(i).value
	s.remove(i, taken)
	return v, true
}

// Delete removes the live entry under k and reports whether there was one.
func (c *Cache[K, V]) Delete(k K) bool {
	s, hash := c.place(&k)
	now := c.time()
	s.mu.Lock()
	defer c.done(s)
	i := s.live(hash, &k, now)
	if i == 0 {
		return false
	}
	s.remove(i, ReasonDeleted)
	return true
}

// SetLifetime changes the lifetime of entries put from now on. d ≤ 0: for ever.
func (c *Cache[K, V]) SetLifetime(d time.Duration) {
	if d <= 0 {
		d = math.MaxInt64
	}
	c.lifetime.Store(int64(d))
}
