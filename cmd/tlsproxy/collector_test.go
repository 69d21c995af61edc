package main

import (
	"math"
	"slices"
	"testing"
)

const mib = 1 << 20

// collectorLog is a collector that notes what it does.
type collectorLog struct {
	collector
	percents []int
	released int
}

func newCollectorLog() *collectorLog {
	l := &collectorLog{}
	l.collector = collector{
		allowance:  garbageAllowance,
		setPercent: func(p int) { l.percents = append(l.percents, p) },
		release:    func() { l.released++ },
		percent:    defaultPercent,
	}
	return l
}

// TestCollectorAllowance is about how much garbage a heap may have: the allowance,
// within what is sensible.
func TestCollectorAllowance(t *testing.T) {
	for _, test := range []struct {
		live  uint64
		limit int64
		want  int
	}{
		{0, math.MaxInt64, maxPercent},
		{4 * mib, math.MaxInt64, maxPercent},
		{32 * mib, math.MaxInt64, 200},
		{64 * mib, math.MaxInt64, defaultPercent},
		{4 << 30, math.MaxInt64, defaultPercent},
		{4 * mib, 64 * mib, 200},
		{8 * mib, 64 * mib, defaultPercent},
		{8 * mib, 0, defaultPercent},
	} {
		c := newCollectorLog()
		c.limit(test.limit)
		if got := c.percentFor(test.live); got != test.want {
			t.Errorf("live %d, limit %d: %d percent, want %d", test.live, test.limit, got, test.want)
		}
	}
}

// TestCollectorGivesBack is about memory when requests end: after a while it is
// given back, once, and requests bring the allowance again.
func TestCollectorGivesBack(t *testing.T) {
	c := newCollectorLog()
	use := heapUse{live: 8 * mib, held: 40 * mib, allocated: 100 * mib}
	c.look(use)
	use.allocated += 100 * mib
	c.look(use)
	if !slices.Equal(c.percents, []int{maxPercent}) || c.released != 0 {
		t.Fatalf("busy: percentages %v, released %d times", c.percents, c.released)
	}
	for range quietLooks {
		c.look(use)
	}
	if !slices.Equal(c.percents, []int{maxPercent, defaultPercent}) || c.released != 1 {
		t.Fatalf("quiet: percentages %v, released %d times", c.percents, c.released)
	}
	use.held = 9 * mib // what a release leaves
	for range 10 {
		c.look(use)
	}
	if c.released != 1 {
		t.Fatalf("released %d times, with nothing to release", c.released)
	}
	use.allocated += 10 * mib
	c.look(use)
	if want := []int{maxPercent, defaultPercent, maxPercent}; !slices.Equal(c.percents, want) {
		t.Fatalf("busy again: percentages %v, want %v", c.percents, want)
	}
}

// TestCollectorLargeHeap is about a heap that is dear to collect: a little garbage
// is no reason to.
func TestCollectorLargeHeap(t *testing.T) {
	c := newCollectorLog()
	for range 10 {
		c.look(heapUse{live: 1 << 30, held: 1<<30 + 100*mib, allocated: 5 << 30})
	}
	if c.released != 0 {
		t.Errorf("released %d times for a tenth of the heap", c.released)
	}
	c.look(heapUse{live: 1 << 30, held: 1<<30 + 300*mib, allocated: 5 << 30})
	if c.released != 1 {
		t.Errorf("released %d times with 300 MiB to gain, want once", c.released)
	}
}
