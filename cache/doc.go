// Package cache holds a bounded number of entries in memory, each for a limited time.
//
// A [Cache] is a map with three ways to lose an entry: its lifetime passes, the
// cache is full, or somebody removes it. Build one with [New] and use it from any
// number of goroutines:
//
//	c, err := cache.New(cache.Options[[32]byte, Session]{
//		Capacity: 20480,
//		Lifetime: 24 * time.Hour,
//	})
//	c.Put(handle, session)
//	session, ok := c.Get(handle)
//
// The rules it keeps:
//
//   - [Cache.Get] never returns an expired entry: an entry is expired from the
//     moment its lifetime has passed.
//   - No live entry is evicted while an expired one is held. Only when none is
//     does the least recently used entry go.
//   - A bound is a bound: after every call there are at most Capacity entries, and
//     their weights and the cache's own overhead are at most MaxBytes.
//
// With more than one shard the rules hold for each shard and the bounds for the
// whole; Options.Shards = 1 asks for one global order.
//
// Time is monotonic and stands still while the machine is suspended: a value that
// must end by the wall clock carries its own deadline, and its user checks it.
//
// The package starts no goroutine and sets no finalizer. It does not load missing
// entries, does not persist, and knows nothing of what it stores.
package cache
