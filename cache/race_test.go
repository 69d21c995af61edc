package cache

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestConcurrent has eight writers do everything at once, and then looks inside.
func TestConcurrent(t *testing.T) {
	for _, shards := range []int{1, 8} {
		var left atomic.Int64
		c, err := New(Options[int, int]{
			Capacity: 1000, MaxBytes: 100_000, Lifetime: time.Millisecond, Shards: shards,
			Weigh:   func(_, v int) int64 { return int64(v % 50) },
			OnEvict: func(int, int, Reason) { left.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() { hammer(c, uint64(w)) })
		}
		wg.Wait()
		mustCheck(t, c)
		st := c.Stats()
		e := st.Evictions
		if got := e.Expired + e.Capacity + e.Bytes + e.Replaced + e.Deleted + e.Shed; got != uint64(left.Load()) {
			t.Errorf("%d evictions counted, OnEvict was told of %d", got, left.Load())
		}
		if got := uint64(left.Load()) + st.Taken + uint64(st.Entries); got != st.Puts {
			t.Errorf("%d entries left or are held, %d were put", got, st.Puts)
		}
	}
}

func hammer(c *Cache[int, int], seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 20_000 {
		k := r.IntN(3000)
		switch r.IntN(10) {
		case 0, 1, 2:
			c.Put(k, i)
		case 3:
			c.PutFor(k, i, time.Duration(r.IntN(1e6)))
		case 4:
			c.Take(k)
		case 5:
			c.Cut(k, time.Duration(r.IntN(1e5)))
		case 6:
			c.Delete(k)
		default:
			c.Get(k)
		}
		if i%1000 == 0 {
			rarely(c, r)
		}
	}
}

func rarely(c *Cache[int, int], r *rand.Rand) {
	switch r.IntN(7) {
	case 0:
		c.Shed(100)
	case 1:
		c.SetCapacity(500 + r.IntN(1000))
	case 2:
		for range c.All() {
		}
	case 3:
		c.Len()
	case 4:
		c.Stats()
	case 5:
		c.SetLifetime(time.Duration(r.IntN(2)) * time.Millisecond)
	case 6:
		c.Clear()
	}
}

// TestOneTaker has many take the same key: exactly one gets it.
func TestOneTaker(t *testing.T) {
	c, err := New(Options[int, int]{Capacity: 10})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 200 {
		c.Put(round, round)
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, ok := c.Take(round); ok {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d takers got the entry, want 1", won.Load())
		}
	}
}
