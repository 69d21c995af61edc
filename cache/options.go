package cache

import (
	"fmt"
	"time"
)

// Options describe a cache. The zero value is an unbounded cache whose entries
// never expire.
type Options[K comparable, V any] struct {
	// Capacity is the greatest number of entries. 0: unbounded.
	Capacity int
	// MaxBytes bounds the sum of the entries' weights and of the memory that the
	// cache itself spends on them. 0: unbounded. An entry heavier than its shard's
	// share is not held, and pushes nothing out.
	MaxBytes int64
	// Weigh gives the bytes that an entry holds beyond the key and value
	// themselves, which the cache counts on its own. It is called once for each
	// Put, outside the lock; a negative weight counts as 0.
	// nil: entries weigh nothing.
	Weigh func(K, V) int64
	// Lifetime is how long an entry stored by Put lives. 0: for ever.
	Lifetime time.Duration
	// Shards is the number of parts, each with its own lock and its share of the
	// bounds. 0: chosen from GOMAXPROCS, Capacity and MaxBytes, so that small
	// caches get one. 1: one exact order over all entries.
	Shards int
	// Now returns monotonic nanoseconds; it must not run backwards.
	// nil: the runtime's monotonic clock.
	Now func() int64
	// OnEvict is told of each entry that has left the cache, whatever the reason,
	// except by Take, whose caller has it in hand. It is called outside the lock,
	// on the goroutine whose call removed the entry, and may use the cache.
	// nil: nobody is told.
	OnEvict func(K, V, Reason)
}

// validate reports the first field that cannot be meant.
func (o *Options[K, V]) validate() error {
	switch {
	case o.Capacity < 0:
		return fmt.Errorf("cache: capacity %d is negative; 0 means unbounded", o.Capacity)
	case o.MaxBytes < 0:
		return fmt.Errorf("cache: max bytes %d is negative; 0 means unbounded", o.MaxBytes)
	case o.Lifetime < 0:
		return fmt.Errorf("cache: lifetime %v is negative; 0 means for ever", o.Lifetime)
	case o.Shards < 0 || o.Shards > maxShards:
		return fmt.Errorf("cache: %d shards; must be 0 (chosen) to %d", o.Shards, maxShards)
	}
	return nil
}

// maxShards bounds Options.Shards.
const maxShards = 1 << 10
