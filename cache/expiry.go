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

// expiries holds when each slot's entry expires, in a flat array, and above it a
// tree of minima: mins[0] has one for each group of fanOut slots, mins[1] one for
// each group of those, and so on up to the root.
//
// Every minimum is exact or too early, never too late: while now is before the
// root nothing can have expired and nothing is searched. A minimum becomes too
// early when the entry that it stands for goes. At each level at most one node, the
// pending one, is left so: removals that follow one another in a group cost one
// repair, and a search has at most one node to repair at each level before it walks
// straight down to an expired entry.
type expiries struct {
	slots   pages[int64]
	mins    [maxLevels]pages[int64]
	levels  int
	pending [maxLevels]uint32
	root    int64
}

func (x *expiries) init() {
	*x = expiries{root: free}
	for l := range x.pending {
		x.pending[l] = noNode
	}
}

// grow makes room for n slots.
func (x *expiries) grow(n uint32) {
	x.slots.grow(n, free)
	for l, nodes := 0, x.slots.room()/fanOut; ; l++ {
		x.mins[l].grow(nodes, free)
		if l == x.levels {
			x.levels++
			*x.mins[l].at(0) = x.root
		}
		if nodes <= 1 {
			return
		}
		nodes = (nodes + fanOut - 1) / fanOut
	}
}

// shrink drops the room past n slots, which must all be free.
func (x *expiries) shrink(n uint32) {
	x.flush()
	x.slots.shrink(n)
	for l, nodes := 0, x.slots.room(); l < x.levels; l++ {
		nodes = (nodes + fanOut - 1) / fanOut
		x.mins[l].shrink(max(1, nodes))
	}
}

// at returns when slot i expires.
func (x *expiries) at(i uint32) int64 { return *x.slots.at(i) }

// set makes slot i expire at t.
func (x *expiries) set(i uint32, t int64) {
	p := x.slots.at(i)
	old := *p
	*p = t
	g := i >> fanBits
	switch m := x.mins[0].at(g); {
	case t < *m:
		x.lower(g, t)
	case old == *m && t > old:
		x.mark(0, g)
	}
}

// lower brings the minima above group g down to t.
func (x *expiries) lower(g uint32, t int64) {
	for l := 0; l < x.levels; l++ {
		m := x.mins[l].at(g)
		if t >= *m {
			return
		}
		*m = t
		g >>= fanBits
	}
	x.root = t
}

// mark leaves the minimum of node i at level l too early, and repairs the one that
// was left so before.
func (x *expiries) mark(l int, i uint32) {
	before := x.pending[l]
	if before == i {
		return
	}
	x.pending[l] = i
	if before != noNode {
		x.repair(l, before)
	}
}

// repair computes the minimum of node i at level l, and marks its parent if the old
// one had come from here.
func (x *expiries) repair(l int, i uint32) {
	below := &x.slots
	if l > 0 {
		below = &x.mins[l-1]
	}
	m := x.mins[l].at(i)
	old := *m
	*m = minimum(below.group(i))
	switch {
	case *m == old:
	case l+1 == x.levels:
		x.root = *m
	case *x.mins[l+1].at(i >> fanBits) == old:
		x.mark(l+1, i>>fanBits)
	}
}

// flush makes every minimum exact.
func (x *expiries) flush() {
	for l := range x.levels {
		if i := x.pending[l]; i != noNode {
			x.pending[l] = noNode
			x.repair(l, i)
		}
	}
}

// expired returns a slot that has expired by now, and how many slots it looked at.
// It tries the group where the last removal was first.
func (x *expiries) expired(now int64) (slot uint32, visited int, ok bool) {
	if now < x.root {
		return 0, 0, false
	}
	if g := x.pending[0]; g != noNode {
		if i := first(x.slots.group(g), now); i < fanOut {
			return g<<fanBits + i, fanOut, true
		}
		visited = fanOut
	}
	x.flush()
	if now < x.root {
		return 0, visited, false
	}
	i := uint32(0)
	for l := x.levels - 1; l > 0; l-- {
		i = i<<fanBits + first(x.mins[l-1].group(i), now)
	}
	i = i<<fanBits + first(x.slots.group(i), now)
	return i, visited + fanOut, true
}

// count returns how many slots have expired by now, looking only into groups whose
// minimum has passed.
func (x *expiries) count(now int64) int {
	if now < x.root {
		return 0
	}
	return x.countBelow(x.levels-1, 0, now)
}

func (x *expiries) countBelow(l int, i uint32, now int64) (n int) {
	if l < 0 {
		return 1
	}
	below := &x.slots
	if l > 0 {
		below = &x.mins[l-1]
	}
	for j, t := range below.group(i) {
		if t <= now {
			n += x.countBelow(l-1, i<<fanBits+uint32(j), now)
		}
	}
	return n
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

// first returns the first of a group that is at or before now, or fanOut.
func first(g *[fanOut]int64, now int64) uint32 {
	for i, t := range g {
		if t <= now {
			return uint32(i)
		}
	}
	return fanOut
}
