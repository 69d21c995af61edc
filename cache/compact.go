package cache

// Entries lie in slots, and a slot's memory is given back only with its whole page.
// Compacting moves the entry in the last slot to a free one, one at a time, so that
// the free slots gather at the end.

// compactStep gives up the last slot, which needs another to be free, or to be free
// itself.
func (s *shard[K, V]) compactStep() {
	last := s.top - 1
	if s.slots.at(last).expires == free {
		s.slots.drop(last)
	} else {
		to := s.slots.first(unused)
		s.slots.drop(to)
		s.relocate(last, to)
	}
	s.top--
	if s.index.n*bucketFill > s.top {
		s.index.merge()
	}
	// Half a page of slack, so that a page does not come and go.
	if s.top > pageSize && s.top&pageMask == pageSize/2 {
		s.trim()
	}
}

// relocate moves an entry to a free slot that is in no ring.
func (s *shard[K, V]) relocate(from, to uint32) {
	e := s.entries.at(from)
	s.index.replace(s.slots.at(from).hash, from, to)
	*s.entries.at(to) = *e
	var zero entry[K, V]
	*e = zero
	if s.c.weigh != nil {
		*s.weights.at(to), *s.weights.at(from) = *s.weights.at(from), 0
	}
	s.slots.move(from, to)
}

// trim gives back the pages past the last slot.
func (s *shard[K, V]) trim() {
	s.entries.shrink(s.top)
	s.weights.shrink(s.top)
	s.slots.shrink(s.top)
	s.index.trim()
}

// freeSlots returns how many slots below top are free.
func (s *shard[K, V]) freeSlots() int { return int(s.top) - firstSlot - s.held }

// compactForBytes keeps the memory of free slots within MaxBytes too. A put adds its
// weight at most, so it moves no more entries than that weight pays for.
func (s *shard[K, V]) compactForBytes() {
	for f := s.freeSlots(); f > 0 && s.bytes+int64(f)*s.c.overhead > s.maxBytes; f-- {
		s.compactStep()
	}
}

// roomy reports whether compacting gives memory back: fewer pages would do, or half of
// the first one.
func (s *shard[K, V]) roomy() bool {
	n := uint32(s.held) + firstSlot
	return (n+pageMask)>>pageBits < (s.entries.room()+pageMask)>>pageBits || n <= s.entries.room()/2
}

// compactSome moves up to a batch of entries, or merges as many buckets, and reports
// whether there is more to do.
func (s *shard[K, V]) compactSome() bool {
	for range batch {
		if s.freeSlots() == 0 {
			break
		}
		s.compactStep()
	}
	if s.freeSlots() > 0 {
		return true
	}
	for range batch {
		if !s.index.merge() {
			s.trim()
			return false
		}
	}
	return true
}
