package cache

import (
	"math/rand/v2"
	"testing"
	"time"
)

// These tests say that no call looks at more entries than it must. They count, since
// a count is the same on every machine.

// visits puts n new keys from first on, moving the clock before each, and returns the
// most entries that one put visited and removed.
func visits(c *Cache[int, int], now *clock, first, n int, step time.Duration) (visited, removed uint64) {
	before := c.Stats()
	for i := range n {
		now.advance(step)
		c.Put(first+i, i)
		after := c.Stats()
		visited = max(visited, after.Visited-before.Visited)
		removed = max(removed, after.Evictions.Expired+after.Evictions.Capacity-before.Evictions.Expired-before.Evictions.Capacity)
		before = after
	}
	return visited, removed
}

const (
	mostVisited = 2 * fanOut // the group of the last removal, and the one found
	mostRemoved = 1
)

// TestCriticalRate puts as fast as entries expire, where a scan would visit them all
// each time.
func TestCriticalRate(t *testing.T) {
	const n = 50_000
	var now clock
	c := mustNew(t, Options[int, int]{Capacity: n, Lifetime: n * time.Microsecond, Shards: 1, Now: now.read})
	visits(c, &now, 0, n, time.Microsecond)
	visited, removed := visits(c, &now, n, n, time.Microsecond)
	if visited > mostVisited || removed > mostRemoved {
		t.Errorf("a put visited %d entries and removed %d", visited, removed)
	}
	if st := c.Stats(); st.Evictions.Capacity != 0 {
		t.Errorf("%d live entries were evicted while others had expired", st.Evictions.Capacity)
	}
	mustCheck(t, c)
}

// TestAllExpireAtOnce lets all entries expire at the same instant.
func TestAllExpireAtOnce(t *testing.T) {
	const n = 50_000
	var now clock
	c := mustNew(t, Options[int, int]{Capacity: n, Lifetime: time.Hour, Shards: 1, Now: now.read})
	visits(c, &now, 0, n, 0)
	now.advance(time.Hour)
	if c.Len() != 0 {
		t.Errorf("%d entries are live", c.Len())
	}
	visited, removed := visits(c, &now, n, n, 0)
	if visited > mostVisited || removed > mostRemoved {
		t.Errorf("a put visited %d entries and removed %d", visited, removed)
	}
	// Each put took the place of an expired entry, so none of them is left.
	if st := c.Stats(); st.Entries != n || st.Evictions.Expired != n {
		t.Errorf("%d entries are held, %d expired ones were reclaimed; want %d each", st.Entries, st.Evictions.Expired, n)
	}
	mustCheck(t, c)
}

// TestAdversarialLifetimes ends entries in the orders that leave minima too early.
func TestAdversarialLifetimes(t *testing.T) {
	const n = 20_000
	r := rand.New(rand.NewPCG(1, 1))
	for name, life := range map[string]func(i int) time.Duration{
		"falling": func(i int) time.Duration { return time.Duration(3*n-i) * time.Microsecond },
		"random":  func(int) time.Duration { return time.Duration(1+r.IntN(2*n)) * time.Microsecond },
		"two":     func(i int) time.Duration { return time.Duration(1+i%2*n) * time.Microsecond },
	} {
		t.Run(name, func(t *testing.T) {
			var now clock
			c := mustNew(t, Options[int, int]{Capacity: n, Shards: 1, Now: now.read})
			before := c.Stats()
			for i := range 3 * n {
				now.advance(time.Microsecond)
				c.PutFor(i, i, life(i))
				if i%3 == 0 {
					c.Delete(i - r.IntN(n))
				}
				if i%2 == 0 {
					c.Cut(i-r.IntN(n), time.Duration(r.IntN(n)))
				}
				after := c.Stats()
				if v := after.Visited - before.Visited; v > mostVisited {
					t.Fatalf("put %d visited %d entries", i, v)
				}
				before = after
			}
			mustCheck(t, c)
		})
	}
}

// TestIndexGrowsStepByStep says that no put rebuilds the index.
func TestIndexGrowsStepByStep(t *testing.T) {
	var x index
	moved := 0
	x.init(func(i uint32) uint32 { moved++; return i * 0x9e3779b1 })
	most := 0
	for i := range uint32(200_000) {
		moved = 0
		x.insert(i*0x9e3779b1, i)
		most = max(most, moved)
	}
	if most > 5*bucketSlots {
		t.Errorf("one insert moved %d entries", most)
	}
	if err := x.check(); err != nil {
		t.Error(err)
	}
	for i := range uint32(200_000) {
		x.remove(i*0x9e3779b1, i)
		if i%1000 == 0 {
			for x.merge() {
			}
		}
	}
	if err := x.check(); err != nil || x.n > 1000 {
		t.Errorf("empty, the index has %d buckets: %v", x.n, err)
	}
}
