package cache

const (
	fanOut    = 16
	fanBits   = 4
	fanMask   = fanOut - 1
	maxLevels = 32 / fanBits
	noNode    = ^uint32(0)
)

// Expiries that no clock reaches: a minimum has fanBits less for the time, which
// still is eighteen years of nanoseconds from when the cache was made.
const (
	free    = 1<<(63-fanBits) - 1 // of a slot without an entry
	forever = free - 1            // of an entry without a lifetime
)

// A minimum is the earliest expiry of sixteen slots or nodes, and which of them it
// comes from: the time times fanOut, plus the number. So the least of two minima
// brings its origin along, and a search need not look for it.
type minimum int64

const noMinimum = minimum(free<<fanBits | fanMask)

func newMinimum(t int64, from uint32) minimum { return minimum(t<<fanBits | int64(from&fanMask)) }

func (m minimum) time() int64 { return int64(m >> fanBits) }

func (m minimum) from() uint32 { return uint32(m) & fanMask }

// minima is a tree over the expiries of slots: mins[0] has the earliest of each group
// of fanOut slots, mins[1] of each group of those, and so on up to the root.
//
// Every minimum is exact or too early, never too late: while now is before the root
// nothing can have expired and nothing is searched. A minimum becomes too early when
// the entry that it comes from goes. At each level at most one node, the pending one,
// is left so: removals that follow one another in a group cost one repair, and a
// search has at most one node to repair at each level before it walks straight down
// to the entry that expires first.
type minima struct {
	mins    [maxLevels]pages[minimum]
	levels  int
	pending [maxLevels]uint32
	root    int64
}

func (x *minima) init() {
	*x = minima{root: free}
	for l := range x.pending {
		x.pending[l] = noNode
	}
}

// grow makes room above n groups of slots.
func (x *minima) grow(n uint32) {
	for l := 0; ; l++ {
		x.mins[l].grow(n, noMinimum)
		if l == x.levels {
			x.levels++
			*x.mins[l].at(0) = newMinimum(x.root, 0)
		}
		if n <= 1 {
			return
		}
		n = (n + fanOut - 1) / fanOut
	}
}

// shrink drops the room above more than n groups of slots. All minima must be exact,
// and all that are dropped free.
func (x *minima) shrink(n uint32) {
	for l := range x.levels {
		x.mins[l].shrink(max(1, n))
		n = (n + fanOut - 1) / fanOut
	}
}

// lower brings the minima above slot i down to t.
func (x *minima) lower(i uint32, t int64) {
	for l := range x.levels {
		m := x.mins[l].at(i >> fanBits)
		if t >= m.time() {
			return
		}
		*m = newMinimum(t, i)
		i >>= fanBits
	}
	x.root = t
}

// raise sets node i at level l to its true minimum m, and marks its parent if that
// one's came from here.
func (x *minima) raise(l int, i uint32, m minimum) {
	p := x.mins[l].at(i)
	old := *p
	*p = m
	switch {
	case m.time() == old.time():
	case l+1 == x.levels:
		x.root = m.time()
	case x.mins[l+1].at(i>>fanBits).from() == i&fanMask:
		if before := x.swap(l+1, i>>fanBits); before != noNode {
			x.repair(l+1, before)
		}
	}
}

// swap makes node i at level l the one whose minimum may be too early, and returns
// the one to be repaired instead, or noNode.
func (x *minima) swap(l int, i uint32) uint32 {
	before := x.pending[l]
	if before == i {
		return noNode
	}
	x.pending[l] = i
	return before
}

// repair computes the minimum of node i at a level above the lowest.
func (x *minima) repair(l int, i uint32) {
	group := x.mins[l-1].group(i)
	a, b := noMinimum, noMinimum // two chains, which the processor follows side by side
	for j := uint32(0); j < fanOut; j += 2 {
		a = min(a, group[j]&^fanMask|minimum(j))
		b = min(b, group[j+1]&^fanMask|minimum(j+1))
	}
	x.raise(l, i, min(a, b))
}

// flush makes every minimum above the lowest level exact.
func (x *minima) flush() {
	for l := 1; l < x.levels; l++ {
		if i := x.pending[l]; i != noNode {
			x.pending[l] = noNode
			x.repair(l, i)
		}
	}
}

// earliest returns the slot that expires first. All minima must be exact.
func (x *minima) earliest() (i uint32) {
	for l := x.levels - 1; l >= 0; l-- {
		i = i<<fanBits | x.mins[l].at(i).from()
	}
	return i
}

// each calls f with every group of slots whose minimum has passed.
func (x *minima) each(now int64, f func(g uint32)) {
	if now >= x.root {
		x.eachBelow(x.levels-1, 0, now, f)
	}
}

func (x *minima) eachBelow(l int, i uint32, now int64, f func(g uint32)) {
	if l == 0 {
		f(i)
		return
	}
	for j, m := range x.mins[l-1].group(i) {
		if m.time() <= now {
			x.eachBelow(l-1, i<<fanBits|uint32(j), now, f)
		}
	}
}
