package cache

import "hash/maphash"

// place returns the shard that a key belongs to, and the hash by which the shard's
// index knows it. The hash is seeded at random for each cache, so that nobody who
// chooses keys can choose where they fall. Half of its bits choose the shard, the
// other half are the index's. Keys of 16 and of 32 bytes, which handles and digests
// are, take the shorter way to the same function.
func (c *Cache[K, V]) place(k *K) (*shard[K, V], uint32) {
	var hash uint64
	switch b := any(k).(type) {
	case *[32]byte:
		hash = maphash.Bytes(c.seed, b[:])
	case *[16]byte:
		hash = maphash.Bytes(c.seed, b[:])
	default:
		hash = maphash.Comparable(c.seed, *k)
	}
	return &c.shards[(hash>>32)*uint64(len(c.shards))>>32], uint32(hash)
}
