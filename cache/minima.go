package cache

import "math"

// Expiries that no clock reaches.
const (
	forever = math.MaxInt64 - 1 // of an entry without a lifetime
	free    = math.MaxInt64     // of a slot without an entry
)

const (
	fanOut    = 16
	fanBits   = 4
	maxLevels = 32 / fanBits
	noNode    = ^uint32(0)
)

// minima is a tree over the expiries of slots: mins[0] has the earliest of each group
// of fanOut slots, mins[1] of each group of those, and so on up to the root.
//
// Every minimum is exact or too early, never too late: while now is before the root
// nothing can have expired and nothing is searched. A minimum becomes too early when
// the entry that it stands for goes. At each level at most one node, the pending one,
// is left so: removals that follow one another in a group cost one repair, and a
// search has at most one node to repair at each level before it walks straight down
// to a group where something has expired.
type minima struct {
	mins    [maxLevels]pages[int64]
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
		x.mins[l].grow(n, free)
		if l == x.levels {
			x.levels++
			*x.mins[l].at(0) = x.root
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

// lower brings the minima of group g and above down to t.
func (x *minima) lower(g uint32, t int64) {
	for l := range x.levels {
		m := x.mins[l].at(g)
		if t >= *m {
			return
		}
		*m = t
		g >>= fanBits
	}
	x.root = t
}

// raise sets the minimum of node i at level l to its true value m, and marks its
// parent if the old one had come from here.
func (x *minima) raise(l int, i uint32, m int64) {
	p := x.mins[l].at(i)
	old := *p
	*p = m
	switch {
	case m == old:
	case l+1 == x.levels:
		x.root = m
	case *x.mins[l+1].at(i >> fanBits) == old:
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
	x.raise(l, i, minimum(x.mins[l-1].group(i)))
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

// group returns a group of slots where something has expired by now. All minima must
// be exact, and the root must have passed.
func (x *minima) group(now int64) (g uint32) {
	for l := x.levels - 1; l > 0; l-- {
		for i, t := range x.mins[l-1].group(g) {
			if t <= now {
				g = g<<fanBits + uint32(i)
				break
			}
		}
	}
	return g
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
	for j, t := range x.mins[l-1].group(i) {
		if t <= now {
			x.eachBelow(l-1, i<<fanBits+uint32(j), now, f)
		}
	}
}

// minimum returns the least of a group. Four chains let the processor compare in
// parallel.
func minimum(g *[fanOut]int64) int64 {
	a, b, c, d := g[0], g[1], g[2], g[3]
	for i := 4; i < fanOut; i += 4 {
		a, b, c, d = min(a, g[i]), min(b, g[i+1]), min(c, g[i+2]), min(d, g[i+3])
	}
	return min(a, b, c, d)
}
