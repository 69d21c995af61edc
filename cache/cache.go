package cache

import (
	"container/list"
	"iter"
	"math"
	"sync"
	"time"
)

// Cache is a bounded map whose entries expire. Its methods are safe for
// concurrent use. The zero value is not usable: call [New].
type Cache[K comparable, V any] struct {
	opts Options[K, V]

	mu       sync.Mutex
	capacity int
	lifetime time.Duration
	byKey    map[K]*list.Element
	order    *list.List // front: most recently used
	bytes    int64
	earliest int64 // no entry expires before it
	stats    Stats
	evicted  [reasons]uint64
}

type entry[K comparable, V any] struct {
	key     K
	value   V
	weight  int64
	expires int64
	used    int64
}

const never = math.MaxInt64

type eviction[K comparable, V any] struct {
	key    K
	value  V
	reason Reason
}

// New returns an empty cache, or an error that names the option that cannot be meant.
func New[K comparable, V any](o Options[K, V]) (*Cache[K, V], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return int64(time.Since(start)) }
	}
	return &Cache[K, V]{
		opts: o, capacity: o.Capacity, lifetime: o.Lifetime,
		byKey: map[K]*list.Element{}, order: list.New(), earliest: never,
	}, nil
}

// do runs f under the lock and tells OnEvict of what it removed afterwards.
func (c *Cache[K, V]) do(f func(now int64, out *[]eviction[K, V])) {
	var out []eviction[K, V]
	func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f(c.opts.Now(), &out)
	}()
	if c.opts.OnEvict != nil {
		for _, e := range out {
			c.opts.OnEvict(e.key, e.value, e.reason)
		}
	}
}

func (c *Cache[K, V]) remove(el *list.Element, r Reason, out *[]eviction[K, V]) {
	e := el.Value.(*entry[K, V])
	c.order.Remove(el)
	delete(c.byKey, e.key)
	c.bytes -= e.weight
	c.evicted[r]++
	*out = append(*out, eviction[K, V]{e.key, e.value, r})
}

// live returns the element of a live entry and reclaims an expired one.
func (c *Cache[K, V]) live(k K, now int64, out *[]eviction[K, V]) *list.Element {
	el := c.byKey[k]
	if el == nil {
		return nil
	}
	if el.Value.(*entry[K, V]).expires <= now {
		c.remove(el, ReasonExpired, out)
		return nil
	}
	return el
}

func (c *Cache[K, V]) reclaim(now int64, out *[]eviction[K, V]) {
	if now < c.earliest {
		return
	}
	c.stats.Scans++
	c.earliest = never
	for el := c.order.Back(); el != nil; {
		prev := el.Prev()
		c.stats.Visited++
		if e := el.Value.(*entry[K, V]); e.expires <= now {
			c.remove(el, ReasonExpired, out)
		} else {
			c.earliest = min(c.earliest, e.expires)
		}
		el = prev
	}
}

func (c *Cache[K, V]) fit(count int, weight int64, now int64, out *[]eviction[K, V]) {
	overCount := func() bool { return c.capacity > 0 && c.order.Len()+count > c.capacity }
	overBytes := func() bool { return c.opts.MaxBytes > 0 && c.bytes+weight > c.opts.MaxBytes }
	for (overCount() || overBytes()) && c.order.Len() > 0 {
		c.reclaim(now, out)
		el := c.order.Back()
		if el == nil || !overCount() && !overBytes() {
			return
		}
		r := ReasonBytes
		if overCount() {
			r = ReasonCapacity
		}
		c.stats.EvictedIdle = time.Duration(now - el.Value.(*entry[K, V]).used)
		c.remove(el, r, out)
	}
}

// Get returns the live entry under k and makes it the most recently used.
func (c *Cache[K, V]) Get(k K) (v V, ok bool) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		el := c.live(k, now, out)
		if el == nil {
			c.stats.Misses++
			return
		}
		c.stats.Hits++
		c.order.MoveToFront(el)
		e := el.Value.(*entry[K, V])
		e.used, v, ok = now, e.value, true
	})
	return v, ok
}

// Put stores v under k for the cache's lifetime, in place of what was there, as
// the most recently used entry.
func (c *Cache[K, V]) Put(k K, v V) {
	c.mu.Lock()
	d := c.lifetime
	c.mu.Unlock()
	if d <= 0 {
		d = math.MaxInt64
	}
	c.PutFor(k, v, d)
}

// PutFor is [Cache.Put] with a lifetime for this entry alone. With d ≤ 0 it stores
// nothing and removes what was there: a remaining life that came to nothing does
// not become immortal.
func (c *Cache[K, V]) PutFor(k K, v V, d time.Duration) {
	weight := int64(96)
	if c.opts.Weigh != nil {
		weight += max(0, c.opts.Weigh(k, v))
	}
	c.do(func(now int64, out *[]eviction[K, V]) {
		el := c.live(k, now, out)
		if d <= 0 || c.opts.MaxBytes > 0 && weight > c.opts.MaxBytes {
			c.stats.Rejected++
			if el != nil {
				c.remove(el, ReasonDeleted, out)
			}
			return
		}
		if el != nil {
			c.remove(el, ReasonReplaced, out)
		}
		c.reclaim(now, out)
		c.fit(1, weight, now, out)
		e := &entry[K, V]{key: k, value: v, weight: weight, expires: never, used: now}
		if now <= math.MaxInt64-int64(d) {
			e.expires = now + int64(d)
		}
		c.earliest = min(c.earliest, e.expires)
		c.bytes += weight
		c.byKey[k] = c.order.PushFront(e)
		c.stats.Puts++
	})
}

// Cut makes the live entry under k end within d, and reports whether there is one.
// It never lengthens a life and does not touch the order of use; with d ≤ 0 the
// entry expires at once.
func (c *Cache[K, V]) Cut(k K, d time.Duration) (ok bool) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		el := c.live(k, now, out)
		if el == nil {
			return
		}
		ok = true
		if d <= 0 {
			c.remove(el, ReasonExpired, out)
			return
		}
		if e := el.Value.(*entry[K, V]); int64(d) < e.expires-now {
			e.expires = now + int64(d)
			c.earliest = min(c.earliest, e.expires)
		}
	})
	return ok
}

// Take removes the live entry under k and returns it, in one step: of several
// takers exactly one gets it.
func (c *Cache[K, V]) Take(k K) (v V, ok bool) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		el := c.live(k, now, out)
		if el == nil {
			c.stats.Misses++
			return
		}
		c.stats.Hits++
		c.stats.Taken++
		v, ok = el.Value.(*entry[K, V]).value, true
		c.remove(el, ReasonDeleted, out)
		c.evicted[ReasonDeleted]--
		*out = (*out)[:len(*out)-1]
	})
	return v, ok
}

// Delete removes the live entry under k and reports whether there was one.
func (c *Cache[K, V]) Delete(k K) (ok bool) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		if el := c.live(k, now, out); el != nil {
			ok = true
			c.remove(el, ReasonDeleted, out)
		}
	})
	return ok
}

// Clear removes all entries and gives their memory back.
func (c *Cache[K, V]) Clear() {
	c.do(func(now int64, out *[]eviction[K, V]) {
		c.reclaim(now, out)
		for c.order.Len() > 0 {
			c.remove(c.order.Back(), ReasonDeleted, out)
		}
	})
}

// Len returns the number of live entries. It pays for those that have expired and
// were not yet reclaimed; Stats().Entries is the cheap count of what is held.
func (c *Cache[K, V]) Len() (n int) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		c.reclaim(now, out)
		n = c.order.Len()
	})
	return n
}

// Bytes returns the weights of the entries held and the cache's own overhead.
func (c *Cache[K, V]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// All returns an iterator over the live entries, in no particular order. It holds
// no lock while the loop body runs, which may use the cache; entries that come or
// go meanwhile may or may not be seen.
func (c *Cache[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		var all []eviction[K, V]
		c.do(func(now int64, out *[]eviction[K, V]) {
			c.reclaim(now, out)
			for el := c.order.Back(); el != nil; el = el.Prev() {
				e := el.Value.(*entry[K, V])
				all = append(all, eviction[K, V]{key: e.key, value: e.value})
			}
		})
		for _, e := range all {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Shed drops what has expired and then the n least recently used live entries, or
// all if there are fewer, gives the memory back, and returns how many live entries
// it dropped.
func (c *Cache[K, V]) Shed(n int) (dropped int) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		c.reclaim(now, out)
		for ; dropped < n && c.order.Len() > 0; dropped++ {
			c.remove(c.order.Back(), ReasonShed, out)
		}
	})
	return dropped
}

// SetCapacity changes the greatest number of entries and evicts what is too much
// at once. n ≤ 0: unbounded.
func (c *Cache[K, V]) SetCapacity(n int) {
	c.do(func(now int64, out *[]eviction[K, V]) {
		c.capacity = max(0, n)
		c.fit(0, 0, now, out)
	})
}

// SetLifetime changes the lifetime of entries put from now on. d ≤ 0: for ever.
func (c *Cache[K, V]) SetLifetime(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifetime = max(0, d)
}

// Stats returns the counters and gauges. It costs a few loads for each shard,
// however many entries there are.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	e := &c.evicted
	s.Evictions = Evictions{e[0], e[1], e[2], e[3], e[4], e[5]}
	s.Entries, s.Bytes, s.Capacity, s.MaxBytes, s.Shards = c.order.Len(), c.bytes, c.capacity, c.opts.MaxBytes, 1
	if el := c.order.Back(); el != nil {
		s.OldestIdle = time.Duration(c.opts.Now() - el.Value.(*entry[K, V]).used)
	}
	return s
}
