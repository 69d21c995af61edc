package cache

import (
	"fmt"
	"testing"
)

// check looks at everything that a shard's parts promise each other.
func (s *shard[K, V]) check() error {
	live := 0
	var bytes int64
	for i := uint32(firstSlot); i < s.top; i++ {
		if s.slots.at(i).expires == free {
			continue
		}
		live++
		if s.c.weigh != nil {
			bytes += *s.weights.at(i)
		} else {
			bytes += s.c.overhead
		}
		e := s.entries.at(i)
		home, hash := s.c.place(&e.key)
		if home != s || hash != s.slots.at(i).hash {
			return fmt.Errorf("key %v has hash %x, its node says %x", e.key, hash, s.slots.at(i).hash)
		}
		if got := s.find(hash, &e.key); got != i {
			return fmt.Errorf("key %v lies in slot %d, the index says %d", e.key, i, got)
		}
	}
	switch {
	case live != s.held || s.index.count != s.held:
		return fmt.Errorf("%d slots in use, %d entries indexed, %d counted", live, s.index.count, s.held)
	case bytes != s.bytes:
		return fmt.Errorf("entries weigh %d, counted %d", bytes, s.bytes)
	case s.capacity != unbounded && s.held > s.capacity:
		return fmt.Errorf("%d entries held of %d", s.held, s.capacity)
	case s.maxBytes != unbounded && s.bytes+int64(s.freeSlots())*s.c.overhead > s.maxBytes:
		return fmt.Errorf("%d bytes and %d free slots of %d bytes held of %d", s.bytes, s.freeSlots(), s.c.overhead, s.maxBytes)
	}
	if err := s.checkRings(); err != nil {
		return err
	}
	if err := s.index.check(); err != nil {
		return err
	}
	return s.slots.check()
}

func (s *shard[K, V]) checkRings() error {
	for _, ring := range []uint32{used, unused} {
		want := s.held
		if ring == unused {
			want = s.freeSlots()
		}
		n := 0
		for i := s.slots.first(ring); i != ring; i = s.slots.at(i).next {
			if (s.slots.at(i).expires == free) != (ring == unused) {
				return fmt.Errorf("slot %d is in ring %d and expires at %d", i, ring, s.slots.at(i).expires)
			}
			if next := s.slots.at(i).next; s.slots.at(next).prev != i {
				return fmt.Errorf("slot %d leads to %d, which does not lead back", i, next)
			}
			if n++; n > want {
				break
			}
		}
		if n != want {
			return fmt.Errorf("ring %d has %d slots, want %d", ring, n, want)
		}
	}
	return nil
}

func (x *index) check() error {
	n := 0
	for h := range x.n {
		b := x.home.at(h)
		for {
			for place := range bucketSlots {
				if b.tag(place) != 0 {
					n++
					hash := x.hashOf(b.ids[place])
					if x.bucketOf(hash) != x.home.at(h) || tagOf(hash) != b.tag(place) {
						return fmt.Errorf("slot %d is in bucket %d, where its hash does not lead", b.ids[place], h)
					}
				} else if b.next != 0 {
					return fmt.Errorf("bucket %d has an empty place before the end of its chain", h)
				}
			}
			if b.next == 0 {
				break
			}
			b = x.over.at(b.next)
			if b.lo == 0 && b.hi == 0 {
				return fmt.Errorf("bucket %d leads to an empty overflow bucket", h)
			}
		}
	}
	if n != x.count {
		return fmt.Errorf("%d entries in the buckets, %d counted", n, x.count)
	}
	return nil
}

// check verifies that every minimum is exact, and comes from where it says, except for
// the pending nodes, and that none is too late.
func (s *slots) check() error {
	x := &s.tree
	for l := range x.levels {
		n := s.room()
		if l > 0 {
			n = x.mins[l-1].room()
		}
		for i := range n / fanOut {
			want, got := int64(free), *x.mins[l].at(i)
			below := func(j uint32) int64 {
				if l > 0 {
					return x.mins[l-1].group(i)[j].time()
				}
				return s.group(i)[j].expires
			}
			for j := range uint32(fanOut) {
				want = min(want, below(j))
			}
			exact := got.time() == want && (want == free || below(got.from()) == want)
			if got.time() > want || !exact && x.pending[l] != i {
				return fmt.Errorf("minimum %d at level %d is %d from %d, want %d", i, l, got.time(), got.from(), want)
			}
		}
	}
	if top := *x.mins[x.levels-1].at(0); x.root != top.time() {
		return fmt.Errorf("root is %d, want %d", x.root, top.time())
	}
	return nil
}

// mustCheck checks all shards.
func mustCheck[K comparable, V any](t testing.TB, c *Cache[K, V]) {
	t.Helper()
	for i := range c.shards {
		if err := c.shards[i].check(); err != nil {
			t.Fatalf("shard %d: %v", i, err)
		}
	}
}
