package cache

// The first slots hold no entry: they are where the rings begin.
const (
	used      = 0 // the ring of entries: next is the most recently used, prev the least
	unused    = 1 // the ring of free slots
	firstSlot = 2
)

// stampBits sets the unit of a stamp: 2^27 ns, about 134 ms. So 32 bits last as long as
// the times that a cache knows.
const stampBits = 63 - fanBits - 32

// A slot is what the cache knows of an entry besides its key, value and weight. A
// move in the order of use touches three of them, and a removal three: they are kept
// small, so that they lie close together.
type slot struct {
	expires    int64 // since the cache was made; or forever, or free
	prev, next uint32
	stamp      uint32 // when the entry was last put, or returned by Get
	hash       uint32 // what the index knows the key by
}

// slots is an array of slots, each of which is in one of two rings, under the tree of
// their earliest expiries.
type slots struct {
	pages[slot]
	tree minima
}

func (s *slots) init() {
	*s = slots{}
	s.tree.init()
	s.grow(firstSlot)
	s.at(unused).prev, s.at(unused).next = unused, unused
}

// grow makes room for n slots.
func (s *slots) grow(n uint32) {
	s.pages.grow(n, slot{expires: free})
	s.tree.grow(s.room() / fanOut)
}

// shrink drops the room past n slots, which must all be free.
func (s *slots) shrink(n uint32) {
	s.flush()
	s.pages.shrink(n)
	s.tree.shrink(s.room() / fanOut)
}

// first returns the first slot of a ring, or the ring itself if it is empty.
func (s *slots) first(ring uint32) uint32 { return s.at(ring).next }

// last returns the last slot of a ring, or the ring itself if it is empty.
func (s *slots) last(ring uint32) uint32 { return s.at(ring).prev }

// push makes slot i the first of a ring.
func (s *slots) push(ring, i uint32) {
	head := s.at(ring)
	p := s.at(i)
	p.prev, p.next = ring, head.next
	s.at(head.next).prev = i
	head.next = i
}

// drop takes slot i out of its ring.
func (s *slots) drop(i uint32) {
	p := s.at(i)
	s.at(p.prev).next = p.next
	s.at(p.next).prev = p.prev
}

// touch makes slot i the first of the ring of entries.
func (s *slots) touch(i uint32) {
	if s.at(used).next != i {
		s.drop(i)
		s.push(used, i)
	}
}

// move puts all that slot from holds into slot to, which is free and in no ring.
func (s *slots) move(from, to uint32) {
	p, q := s.at(from), s.at(to)
	expires := p.expires
	*q = *p
	s.at(p.prev).next = to
	s.at(p.next).prev = to
	q.expires = free
	s.expire(to, expires)
	s.expire(from, free)
	*p = slot{expires: free}
}

// expire makes slot i expire at t.
func (s *slots) expire(i uint32, t int64) {
	p := s.at(i)
	old := p.expires
	p.expires = t
	g := i >> fanBits
	switch m := *s.tree.mins[0].at(g); {
	case t < m.time():
		s.tree.lower(i, t)
	case m.from() == i&fanMask && t > old:
		if before := s.tree.swap(0, g); before != noNode {
			s.repair(before)
		}
	}
}

// repair computes the earliest expiry of a group.
func (s *slots) repair(g uint32) {
	group := s.group(g)
	a, b := noMinimum, noMinimum
	for j := uint32(0); j < fanOut; j += 2 {
		a = min(a, newMinimum(group[j].expires, j))
		b = min(b, newMinimum(group[j+1].expires, j+1))
	}
	s.tree.raise(0, g, min(a, b))
}

// flush makes every minimum exact.
func (s *slots) flush() {
	if g := s.tree.pending[0]; g != noNode {
		s.tree.pending[0] = noNode
		s.repair(g)
	}
	s.tree.flush()
}

// expired returns a slot that has expired by now, or 0, and how many slots it looked
// at: the group where the last removal was, then the slot that expires first.
func (s *slots) expired(now int64) (i uint32, visited int) {
	if g := s.tree.pending[0]; g != noNode {
		for j, p := range s.group(g) {
			if p.expires <= now {
				return g<<fanBits | uint32(j), fanOut
			}
		}
		visited = fanOut
	}
	s.flush()
	if now < s.tree.root {
		return 0, visited
	}
	return s.tree.earliest(), visited + 1
}

// countExpired returns how many slots have expired by now, looking only into groups
// whose minimum has passed.
func (s *slots) countExpired(now int64) (n int) {
	s.tree.each(now, func(g uint32) {
		group := s.group(g)
		for i := range group {
			if group[i].expires <= now {
				n++
			}
		}
	})
	return n
}
