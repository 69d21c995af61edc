package cache

import "hash/maphash"

// hash returns a key's hash under the cache's own random seed, so that nobody who
// chooses keys can choose where they fall. Keys of 32 bytes, which handles are, take
// the shorter way to the same function.
func (c *Cache[K, V]) hash(k *K) uint64 {
	if b, ok := any(k).(*[32]byte); ok {
		return maphash.Bytes(c.seed, b[:])
	}
	return maphash.Comparable(c.seed, *k)
}

// shard returns the part that a hash belongs to. Its bits lie between those that
// the index takes its buckets from and those it takes its tags from.
func (c *Cache[K, V]) shard(hash uint64) *shard[K, V] {
	return &c.shards[uint64(uint32(hash>>24))*uint64(len(c.shards))>>32]
}
