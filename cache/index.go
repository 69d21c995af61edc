package cache

import "math/bits"

const (
	bucketSlots = 12
	// bucketFill is the mean number of entries for each bucket at which the index
	// grows by one bucket.
	bucketFill = 6

	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
	restBits = 0x7f7f7f7f7f7f7f7f
)

// A bucket is one cache line: a byte of each entry's hash (the tags; 0: empty),
// twelve slot numbers, and the number of the overflow bucket that follows (0: none).
// Only the last bucket of a chain has empty places.
type bucket struct {
	lo   uint64 // tags of places 0 to 7
	hi   uint32 // tags of places 8 to 11
	next uint32
	ids  [bucketSlots]uint32
}

func (b *bucket) tag(place int) uint8 {
	if place < 8 {
		return uint8(b.lo >> (8 * place))
	}
	return uint8(b.hi >> (8 * (place - 8)))
}

func (b *bucket) setTag(place int, tag uint8) {
	if place < 8 {
		shift := 8 * place
		b.lo = b.lo&^(0xff<<shift) | uint64(tag)<<shift
		return
	}
	shift := 8 * (place - 8)
	b.hi = b.hi&^(0xff<<shift) | uint32(tag)<<shift
}

// zeros has the high bit set of exactly those bytes of w that are zero.
func zeros(w uint64) uint64 { return ^(w&restBits + restBits | w) & highBits }

// match returns the places that hold tag, as high bits of bytes: the first word for
// places 0 to 7, the second for 8 to 11.
func (b *bucket) match(tag uint8) (lo, hi uint64) {
	pattern := uint64(tag) * lowBits
	return zeros(b.lo ^ pattern), zeros(uint64(b.hi)^pattern) & 0x80808080
}

// hole returns an empty place, or bucketSlots.
func (b *bucket) hole() int {
	if z := zeros(b.lo); z != 0 {
		return bits.TrailingZeros64(z) / 8
	}
	if z := zeros(uint64(b.hi)) & 0x80808080; z != 0 {
		return 8 + bits.TrailingZeros64(z)/8
	}
	return bucketSlots
}

// An index finds slots by hash. It is a linear hash table: it grows by splitting one
// bucket whenever bucketFill entries have come, so no put pays for the size of the
// table, and it shrinks by merging them again. It does not know keys: hashOf gives
// the hash of a slot's key when a bucket is split. Of a hash's 32 bits the upper eight
// are the tag and the lower 24 lead to the bucket, which spreads a hundred million
// entries; more in one shard would make its chains longer.
type index struct {
	home   pages[bucket]
	over   pages[bucket] // overflow buckets, numbered from 1
	n      uint32        // home buckets
	mask   uint32        // 2^k-1 ≥ n-1, the least such
	count  int           // entries
	overN  uint32        // overflow buckets ever made
	unused uint32        // first of a list of unused overflow buckets, by next; 0: none
	hashOf func(slot uint32) uint32
}

func (x *index) init(hashOf func(uint32) uint32) {
	*x = index{n: 1, hashOf: hashOf}
	x.home.grow(1, bucket{})
}

// tagOf returns the byte that a bucket keeps of a hash, never 0.
func tagOf(hash uint32) uint8 { return max(1, uint8(hash>>24)) }

// bucketOf returns the home bucket of a hash.
func (x *index) bucketOf(hash uint32) *bucket {
	b := hash & x.mask
	if b >= x.n {
		b &= x.mask >> 1
	}
	return x.home.at(b)
}

// insert adds a slot under a hash and lets the index grow.
func (x *index) insert(hash uint32, slot uint32) {
	x.add(x.bucketOf(hash), tagOf(hash), slot)
	x.count++
	if x.count > int(x.n)*bucketFill {
		x.split()
	}
}

// add puts a slot into the chain that starts at b.
func (x *index) add(b *bucket, tag uint8, slot uint32) {
	at := uint32(0) // number of b, if it is an overflow bucket
	for b.next != 0 {
		at = b.next
		b = x.over.at(at)
	}
	place := b.hole()
	if place == bucketSlots {
		n := x.take()
		if at != 0 {
			b = x.over.at(at) // take may have moved it
		}
		b.next = n
		b, place = x.over.at(n), 0
	}
	b.ids[place] = slot
	b.setTag(place, tag)
}

// take returns the number of an empty overflow bucket. It may move the first page
// of overflow buckets.
func (x *index) take() uint32 {
	if n := x.unused; n != 0 {
		b := x.over.at(n)
		x.unused = b.next
		*b = bucket{}
		return n
	}
	x.overN++
	x.over.grow(x.overN+1, bucket{})
	return x.overN
}

// seek returns the bucket and the place of a slot, which must be in the chain that
// starts at b.
func (x *index) seek(b *bucket, hash uint32, slot uint32) (*bucket, int) {
	tag := tagOf(hash)
	for ; ; b = x.over.at(b.next) {
		lo, hi := b.match(tag)
		for ; lo != 0; lo &= lo - 1 {
			if place := bits.TrailingZeros64(lo) / 8; b.ids[place] == slot {
				return b, place
			}
		}
		for ; hi != 0; hi &= hi - 1 {
			if place := 8 + bits.TrailingZeros64(hi)/8; b.ids[place] == slot {
				return b, place
			}
		}
	}
}

// remove takes out a slot, which must be there.
func (x *index) remove(hash uint32, slot uint32) {
	x.count--
	home := x.bucketOf(hash)
	b, place := x.seek(home, hash, slot)
	if home.next != 0 {
		x.fillHole(home, b, place)
		return
	}
	b.setTag(place, 0)
}

// fillHole moves an entry from the last bucket of a chain to the place in b, so that
// only the last bucket has empty places, and drops that bucket when it is empty.
func (x *index) fillHole(home, b *bucket, place int) {
	before, last := home, home
	for last.next != 0 {
		before, last = last, x.over.at(last.next)
	}
	if last != b {
		from := 0
		for last.tag(from) == 0 {
			from++
		}
		b.ids[place] = last.ids[from]
		b.setTag(place, last.tag(from))
		b, place = last, from
	}
	b.setTag(place, 0)
	if last.lo == 0 && last.hi == 0 {
		n := before.next
		before.next = 0
		last.next, x.unused = x.unused, n
	}
}

// replace puts a slot in the place of another, which must be there.
func (x *index) replace(hash uint32, slot, with uint32) {
	b, place := x.seek(x.bucketOf(hash), hash, slot)
	b.ids[place] = with
}

// split adds one bucket and moves to it what belongs there.
func (x *index) split() {
	x.n++
	if x.n-1 > x.mask {
		x.mask = x.mask<<1 | 1
	}
	x.home.grow(x.n, bucket{})
	from := x.home.at((x.n - 1) & (x.mask >> 1))
	chain := *from
	*from = bucket{}
	for {
		x.rehash(&chain)
		next := chain.next
		if next == 0 {
			return
		}
		b := x.over.at(next)
		chain = *b
		b.next, x.unused = x.unused, next
	}
}

// rehash adds a bucket's entries where they belong now. The hashes come first: they
// lie far apart, and the processor fetches them side by side.
func (x *index) rehash(b *bucket) {
	var hashes [bucketSlots]uint32
	n := 0
	for place := range bucketSlots {
		if b.tag(place) != 0 {
			b.ids[n] = b.ids[place]
			hashes[n] = x.hashOf(b.ids[n])
			n++
		}
	}
	for i := range n {
		x.add(x.bucketOf(hashes[i]), tagOf(hashes[i]), b.ids[i])
	}
}

// merge removes the last bucket and reports whether the index is still larger than
// it needs to be.
func (x *index) merge() bool {
	if !x.roomy() {
		return false
	}
	last := x.n - 1
	into := x.home.at(last & (x.mask >> 1))
	chain := *x.home.at(last)
	*x.home.at(last) = bucket{}
	x.n--
	if x.n-1 <= x.mask>>1 {
		x.mask >>= 1
	}
	for {
		for place := range bucketSlots {
			if tag := chain.tag(place); tag != 0 {
				x.add(into, tag, chain.ids[place])
			}
		}
		next := chain.next
		if next == 0 {
			return x.roomy()
		}
		b := x.over.at(next)
		chain = *b
		b.next, x.unused = x.unused, next
	}
}

// roomy reports whether the entries need fewer buckets than there are.
func (x *index) roomy() bool { return x.n > 1 && x.count <= (int(x.n)-1)*bucketFill }

// trim gives back the memory of merged buckets.
func (x *index) trim() {
	x.home.shrink(x.n)
	if x.count == 0 {
		x.over, x.overN, x.unused = pages[bucket]{}, 0, 0
	}
}
