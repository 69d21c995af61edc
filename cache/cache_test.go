package cache

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// clock is a clock that stands still until it is moved.
type clock struct{ now int64 }

func (c *clock) read() int64             { return c.now }
func (c *clock) advance(d time.Duration) { c.now += int64(d) }

func mustNew[K comparable, V any](t testing.TB, o Options[K, V]) *Cache[K, V] {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		o    Options[int, int]
		want string
	}{
		{Options[int, int]{Capacity: -1}, "capacity -1"},
		{Options[int, int]{MaxBytes: -2}, "max bytes -2"},
		{Options[int, int]{Lifetime: -time.Second}, "lifetime -1s"},
		{Options[int, int]{Shards: -1}, "-1 shards"},
		{Options[int, int]{Shards: maxShards + 1}, "1025 shards"},
	} {
		if _, err := New(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%+v) = %v; want an error with %q", test.o, err, test.want)
		}
	}
}

// TestZeroOptions says what a cache without bounds and lifetimes does.
func TestZeroOptions(t *testing.T) {
	c := mustNew(t, Options[string, int]{})
	for i := range 10_000 {
		c.Put(fmt.Sprint(i), i)
	}
	for i := range 10_000 {
		if v, ok := c.Get(fmt.Sprint(i)); !ok || v != i {
			t.Fatalf("Get(%d) = %d, %v", i, v, ok)
		}
	}
	if n := c.Len(); n != 10_000 {
		t.Errorf("Len = %d, want 10000", n)
	}
}

// TestLifetimeEdge says that an entry ends exactly when its lifetime has passed.
func TestLifetimeEdge(t *testing.T) {
	var now clock
	c := mustNew(t, Options[string, int]{Lifetime: time.Second, Now: now.read})
	c.Put("a", 1)
	now.advance(time.Second - 1)
	if _, ok := c.Get("a"); !ok {
		t.Error("the entry was gone a nanosecond before its end")
	}
	now.advance(1)
	if _, ok := c.Get("a"); ok {
		t.Error("the entry was there at its end")
	}
}

// TestRealClock says the same of the runtime's clock, which stands in when none is given.
func TestRealClock(t *testing.T) {
	c := mustNew(t, Options[string, int]{})
	c.PutFor("short", 1, time.Nanosecond)
	c.PutFor("long", 1, time.Hour)
	for start := time.Now(); time.Since(start) < time.Microsecond; {
	}
	if _, ok := c.Get("short"); ok {
		t.Error("an entry outlived its nanosecond")
	}
	if _, ok := c.Get("long"); !ok {
		t.Error("an entry did not live its hour")
	}
}

// TestNoLifetimeLeft says that what has no life left is neither stored nor kept.
func TestNoLifetimeLeft(t *testing.T) {
	var now clock
	c := mustNew(t, Options[string, int]{Now: now.read})
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		c.Put("a", 1)
		c.PutFor("a", 2, d)
		if v, ok := c.Get("a"); ok {
			t.Errorf("after PutFor(%d) Get = %d; want nothing", d, v)
		}
	}
	if n := c.Stats().Rejected; n != 3 {
		t.Errorf("%d puts rejected, want 3", n)
	}
}

// TestSetLifetime says that a change holds for entries put afterwards.
func TestSetLifetime(t *testing.T) {
	var now clock
	c := mustNew(t, Options[string, int]{Lifetime: time.Hour, Now: now.read})
	c.Put("old", 1)
	c.SetLifetime(time.Second)
	c.Put("new", 1)
	c.SetLifetime(0)
	c.Put("newest", 1)
	now.advance(time.Minute)
	for k, want := range map[string]bool{"old": true, "new": false, "newest": true} {
		if _, ok := c.Get(k); ok != want {
			t.Errorf("after a minute %s is there: %v; want %v", k, ok, want)
		}
	}
}

// TestTooHeavy says that an entry that cannot fit pushes nothing out, and does not
// leave the value that it should have replaced.
func TestTooHeavy(t *testing.T) {
	c := mustNew(t, Options[string, int]{
		MaxBytes: 2000, Shards: 1, Weigh: func(_ string, v int) int64 { return int64(v) },
	})
	c.Put("a", 100)
	c.Put("b", 100)
	c.Put("b", 1999)
	if _, ok := c.Get("a"); !ok {
		t.Error("an entry too heavy to hold pushed another out")
	}
	if v, ok := c.Get("b"); ok {
		t.Errorf("Get = %d; the old value stayed", v)
	}
}

// TestZeroShareHoldsNothing says that a shard without a share is not unbounded.
func TestZeroShareHoldsNothing(t *testing.T) {
	for want, o := range []Options[int, int]{
		{MaxBytes: 7, Shards: 8}, {Capacity: 1, Shards: 8}, {Capacity: 2, Shards: 8},
	} {
		c := mustNew(t, o)
		for i := range 1000 {
			c.Put(i, i)
		}
		if n := c.Len(); n != want {
			t.Errorf("bounded to %d entries and %d bytes the cache holds %d entries, want %d", o.Capacity, o.MaxBytes, n, want)
		}
		mustCheck(t, c)
	}
}

// TestOnEvictMayUseTheCache says that OnEvict is called without a lock held.
func TestOnEvictMayUseTheCache(t *testing.T) {
	var c *Cache[int, int]
	var reasons []Reason
	var now clock
	c = mustNew(t, Options[int, int]{Capacity: 4, Now: now.read, OnEvict: func(k, v int, r Reason) {
		c.Len()
		c.Get(k)
		reasons = append(reasons, r)
	}})
	c.Put(1, 1)
	c.Put(1, 2)
	c.Put(2, 1)
	c.PutFor(3, 1, 1)
	c.Put(4, 1)
	now.advance(1)
	c.Put(5, 1)
	c.Put(6, 1)
	c.Delete(2)
	c.Shed(1)
	c.Clear()
	want := fmt.Sprint([]Reason{ReasonReplaced, ReasonExpired, ReasonCapacity, ReasonDeleted, ReasonShed, ReasonDeleted, ReasonDeleted})
	if got := fmt.Sprint(reasons); got != want {
		t.Errorf("OnEvict was told %v, want %v", got, want)
	}
}

// TestOnEvictMayCallAnything has OnEvict call each method while each call that removes
// entries is under way.
func TestOnEvictMayCallAnything(t *testing.T) {
	calls := map[string]func(c *Cache[int, int]){
		"Get":         func(c *Cache[int, int]) { c.Get(1) },
		"Put":         func(c *Cache[int, int]) { c.Put(2, 1) },
		"PutFor":      func(c *Cache[int, int]) { c.PutFor(3, 1, time.Hour) },
		"TryPutFor":   func(c *Cache[int, int]) { c.TryPutFor(4, 1, time.Hour) },
		"Cut":         func(c *Cache[int, int]) { c.Cut(5, 0) },
		"Take":        func(c *Cache[int, int]) { c.Take(6) },
		"Delete":      func(c *Cache[int, int]) { c.Delete(7) },
		"SetLifetime": func(c *Cache[int, int]) { c.SetLifetime(time.Hour) },
		"SetCapacity": func(c *Cache[int, int]) { c.SetCapacity(50) },
		"Len":         func(c *Cache[int, int]) { c.Len() },
		"Bytes":       func(c *Cache[int, int]) { c.Bytes() },
		"Stats":       func(c *Cache[int, int]) { c.Stats() },
		"Shed":        func(c *Cache[int, int]) { c.Shed(3) },
		"Clear":       func(c *Cache[int, int]) { c.Clear() },
		"All": func(c *Cache[int, int]) {
			for k := range c.All() {
				c.Delete(k)
			}
		},
	}
	if n := reflect.TypeFor[*Cache[int, int]]().NumMethod(); n != len(calls) {
		t.Errorf("the cache has %d methods, %d are called", n, len(calls))
	}
	for name, call := range calls {
		for outerName, outer := range calls {
			depth := 0 // OnEvict runs on this goroutine alone
			var c *Cache[int, int]
			c = mustNew(t, Options[int, int]{Capacity: 200, Shards: 2, OnEvict: func(int, int, Reason) {
				if depth++; depth < 10 {
					call(c)
				}
				depth--
			}})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := range 200 {
					c.Put(i, i)
				}
				outer(c)
			}()
			select {
			case <-done:
				mustCheck(t, c)
			case <-time.After(30 * time.Second):
				t.Fatalf("%s waits for ever when OnEvict calls %s", outerName, name)
			}
		}
	}
}

// TestSetCapacityAtOnce says that the last of several calls at once wins in every shard.
func TestSetCapacityAtOnce(t *testing.T) {
	c := mustNew(t, Options[int, int]{Shards: 8})
	for range 200 {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { c.SetCapacity(100 + 100*i) })
		}
		wg.Wait()
		total := 0
		for i := range c.shards {
			total += c.shards[i].capacity
		}
		if want := c.Stats().Capacity; total != want {
			t.Fatalf("the shards may hold %d entries, the whole %d", total, want)
		}
	}
}

// TestShedTakesPartsByWhatIsHeld says that each shard drops its part of n, not the first
// ones all of it.
func TestShedTakesPartsByWhatIsHeld(t *testing.T) {
	const shards = 4
	c := mustNew(t, Options[int, int]{Shards: shards})
	for i := range 8000 {
		c.Put(i, i)
	}
	var before [shards]int
	for i := range c.shards {
		before[i] = c.shards[i].held
	}
	if n := c.Shed(2000); n != 2000 {
		t.Fatalf("Shed = %d, want 2000", n)
	}
	for i := range c.shards {
		if dropped := before[i] - c.shards[i].held; dropped < before[i]/4-1 || dropped > before[i]/4+2 {
			t.Errorf("shard %d dropped %d of %d entries, want a quarter", i, dropped, before[i])
		}
	}
}

// TestRemovedIsOverwritten says that no memory that the cache once used holds a key or a
// value that it does not.
func TestRemovedIsOverwritten(t *testing.T) {
	type secret [64]byte
	fill := func(c *Cache[int, secret], from, n int) {
		for i := range n {
			c.Put(from+i, secret{0xAB})
		}
	}
	for name, remove := range map[string]func(c *Cache[int, secret]){
		"growing":     func(c *Cache[int, secret]) { fill(c, 10, 500); c.Shed(600) },
		"Delete":      func(c *Cache[int, secret]) { deleteAll(c) },
		"Clear":       (*Cache[int, secret]).Clear,
		"Shed":        func(c *Cache[int, secret]) { c.Shed(95) },
		"SetCapacity": func(c *Cache[int, secret]) { c.SetCapacity(3) },
		"compacting":  func(c *Cache[int, secret]) { fill(c, 2000, 2500); c.Delete(1005); c.Shed(1700) },
	} {
		c := mustNew(t, Options[int, secret]{Shards: 1})
		fill(c, 1000, 100)
		seen := map[*entry[int, secret]][]entry[int, secret]{}
		note := func() {
			for _, page := range c.shards[0].entries.pages {
				seen[&page[0]] = page
			}
		}
		note()
		remove(c)
		note()
		left := 0
		for _, page := range seen {
			for i := range page {
				if page[i].value != (secret{}) {
					left++
				}
			}
		}
		if left != c.Len() {
			t.Errorf("%s: memory holds %d values, the cache %d", name, left, c.Len())
		}
	}
}

func deleteAll[K comparable, V any](c *Cache[K, V]) {
	for k := range c.All() {
		c.Delete(k)
	}
}

// TestAllMayChangeTheCache says that the loop may delete what it is given, and stop.
func TestAllMayChangeTheCache(t *testing.T) {
	c := mustNew(t, Options[int, int]{Shards: 4})
	for i := range 5000 {
		c.Put(i, i)
	}
	seen := 0
	for k := range c.All() {
		if !c.Delete(k) {
			t.Fatalf("All gave %d twice", k)
		}
		if seen++; seen == 3000 {
			break
		}
	}
	if n := c.Len(); n != 2000 {
		t.Errorf("%d entries left, want 2000", n)
	}
}

func TestStatsIdle(t *testing.T) {
	var now clock
	c := mustNew(t, Options[int, int]{Capacity: 2, Lifetime: time.Hour, Shards: 1, Now: now.read})
	c.Put(1, 1)
	now.advance(10 * time.Second)
	c.Put(2, 1)
	now.advance(10 * time.Second)
	c.Put(3, 1) // 1 goes, idle for 20 s
	now.advance(5 * time.Second)
	st := c.Stats()
	near := func(got, want time.Duration) bool { return (got - want).Abs() < 300*time.Millisecond }
	if !near(st.EvictedIdle, 20*time.Second) || !near(st.OldestIdle, 15*time.Second) {
		t.Errorf("idle %v when evicted and %v at the oldest; want 20s and 15s", st.EvictedIdle, st.OldestIdle)
	}
	if st.Evictions.By(ReasonCapacity) != 1 || st.Capacity != 2 || st.Shards != 1 {
		t.Errorf("stats are %+v", st)
	}
}

// TestEvictedIdleOfAnOvertaken has a put read the clock, be overtaken by another, and
// evict that one's entry: it was idle for no time, not for the whole range of stamps.
func TestEvictedIdleOfAnOvertaken(t *testing.T) {
	var now clock
	hold := false
	read, goOn := make(chan struct{}), make(chan struct{})
	c := mustNew(t, Options[int, int]{Capacity: 1, Shards: 1, Lifetime: time.Hour, Now: func() int64 {
		at := now.now
		if hold {
			hold = false
			read <- struct{}{}
			<-goOn
		}
		return at
	}})
	c.Put(0, 0)
	hold = true
	done := make(chan struct{})
	go func() { c.Put(1, 1); close(done) }()
	<-read
	now.advance(time.Minute)
	c.Put(2, 2)
	goOn <- struct{}{}
	<-done
	if st := c.Stats(); st.EvictedIdle != 0 || st.OldestIdle != 0 {
		t.Errorf("evicted after %v unused, the oldest has been for %v; want 0", st.EvictedIdle, st.OldestIdle)
	}
}

// TestLongLife says what a cache knows after years, and at the end of its time.
func TestLongLife(t *testing.T) {
	const year = 365 * 24 * time.Hour
	var now clock
	c := mustNew(t, Options[int, int]{Capacity: 10, Shards: 1, Now: now.read})
	c.Put(1, 1)
	for years := range 19 {
		now.now = int64(time.Duration(years) * year)
		want := min(time.Duration(years)*year, forever)
		c.PutFor(2, 1, time.Hour)
		if idle := c.Stats().OldestIdle; (idle - want).Abs() > time.Second {
			t.Errorf("after %d years the oldest is unused for %v", years, idle)
		}
	}
	for _, at := range []int64{forever - 1, forever, free, free + 1, math.MaxInt64} {
		now.now = at
		c.Put(3, 1)
		_, ok := c.Get(3)
		if _, old := c.Get(1); !ok || !old || c.Len() < 2 {
			t.Errorf("at %d: %v, %v, %d entries", at, ok, old, c.Len())
		}
		mustCheck(t, c)
	}
}

// TestHugeWeights says that sums of weights do not overflow.
func TestHugeWeights(t *testing.T) {
	for _, most := range []int64{0, math.MaxInt64} {
		c := mustNew(t, Options[int, int]{MaxBytes: most, Shards: 1, Weigh: func(int, int) int64 { return math.MaxInt64 }})
		for i := range 5000 {
			c.Put(i, i)
		}
		if n, b := c.Len(), c.Bytes(); n != 5000 || b < 5000<<40 {
			t.Errorf("%d entries of %d bytes", n, b)
		}
	}
}

// TestReasonNames keeps reasons, their names and their counters together.
func TestReasonNames(t *testing.T) {
	e := Evictions{1, 2, 3, 4, 5, 6}
	want := []string{"expired", "capacity", "bytes", "replaced", "deleted", "shed"}
	for r := range reasons {
		if r.String() != want[r] || e.By(r) != uint64(r)+1 {
			t.Errorf("reason %d is %q and counts %d", r, r, e.By(r))
		}
	}
	if m := e.ByName(); len(m) != len(want) || m["expired"] != 1 || m["shed"] != 6 {
		t.Errorf("by name: %v", m)
	}
	if taken.String() != "unknown" || e.By(taken) != 0 {
		t.Errorf("reason %d is %q", taken, taken)
	}
}

func TestShardCount(t *testing.T) {
	for _, test := range []struct {
		procs, capacity int
		maxBytes        int64
		want            int
	}{
		{1, 0, 0, 1},
		{2, 0, 0, 64},
		{64, 0, 0, 1024},
		{64, 256, 0, 1},
		{8, 20480, 0, 8},
		{8, 20480, 64 << 20, 8},
		{8, 5_000_000, 64 << 20, 16},
		{8, 5_000_000, 5 << 20, 1},
		{1000, 0, 0, maxShards},
	} {
		if got := shardCount(test.procs, test.capacity, test.maxBytes); got != test.want {
			t.Errorf("shardCount(%d, %d, %d) = %d, want %d", test.procs, test.capacity, test.maxBytes, got, test.want)
		}
	}
}

// TestGetDoesNotAllocate holds for Put into a full cache too.
func TestGetDoesNotAllocate(t *testing.T) {
	type handle [32]byte
	for name, alloc := range map[string]func() float64{
		"handles": func() float64 {
			c := mustNew(t, Options[[32]byte, [130]byte]{Capacity: 100, Lifetime: time.Hour})
			return allocsPerCall(c, func(i byte) [32]byte { return [32]byte{i} })
		},
		"named handles": func() float64 {
			c := mustNew(t, Options[handle, *int]{Capacity: 100, Lifetime: time.Hour})
			return allocsPerCall(c, func(i byte) handle { return handle{i} })
		},
		"strings": func() float64 {
			names := strings.Split(strings.Repeat("x,", 256), ",")
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			c := mustNew(t, Options[string, any]{Capacity: 100, Lifetime: time.Hour})
			return allocsPerCall(c, func(i byte) string { return names[i] })
		},
	} {
		if n := alloc(); n != 0 {
			t.Errorf("%s: %v allocations for a Get and a Put, want 0", name, n)
		}
	}
}

func allocsPerCall[K comparable, V any](c *Cache[K, V], key func(byte) K) float64 {
	var v V
	for i := range 256 {
		c.Put(key(byte(i)), v)
	}
	i := byte(0)
	return testing.AllocsPerRun(1000, func() {
		c.Get(key(i))
		c.Put(key(i), v)
		i++
	})
}

// heapAfter returns the live heap.
func heapAfter() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCapacityCostsNothing says that memory comes with use.
func TestCapacityCostsNothing(t *testing.T) {
	before := heapAfter()
	c := mustNew(t, Options[[32]byte, [130]byte]{Capacity: 20_000_000, Lifetime: time.Hour})
	if got := heapAfter() - before; got > 1<<20 {
		t.Errorf("an empty cache for 20 million entries takes %d bytes", got)
	}
	runtime.KeepAlive(c)
}

// TestMemory says that an entry costs what Bytes says, that a session's costs at most
// 256 bytes, and that Shed gives the memory back.
func TestMemory(t *testing.T) {
	const n = 200_000
	keys := benchKeys(n)
	before := heapAfter()
	c := mustNew(t, Options[[32]byte, [130]byte]{Capacity: n * 2, Lifetime: time.Hour, Shards: 1})
	for _, k := range keys {
		c.Put(k, [130]byte{})
	}
	held := heapAfter() - before
	if each := held / n; each > 256 {
		t.Errorf("an entry takes %d bytes, want at most 256", each)
	}
	if b := c.Bytes(); b < held*9/10 || b > held*11/10 {
		t.Errorf("Bytes = %d, the heap grew by %d", b, held)
	}
	if got := c.Shed(n * 9 / 10); got != n*9/10 {
		t.Fatalf("Shed = %d, want %d", got, n*9/10)
	}
	mustCheck(t, c)
	if left := heapAfter() - before; left > held*15/100 {
		t.Errorf("with a tenth of the entries left the heap holds %d of %d bytes", left, held)
	}
	runtime.KeepAlive(keys)
	runtime.KeepAlive(c)
}

// TestBytesAgainstTheHeap says how far Bytes is from what a cache takes: a tenth where
// shards hold much, and beyond that a page of each array for each shard. Lighter entries
// that make room for heavy ones give their pages back.
func TestBytesAgainstTheHeap(t *testing.T) {
	for _, test := range []struct {
		maxBytes int64
		shards   int
	}{{1 << 20, 1}, {4 << 20, 1}, {32 << 20, 1}, {32 << 20, 8}} {
		before := heapAfter()
		c := mustNew(t, Options[int, []byte]{MaxBytes: test.maxBytes, Shards: test.shards, Lifetime: time.Hour,
			Weigh: func(_ int, v []byte) int64 { return int64(cap(v)) }})
		page := pageSize * (c.overhead + bucketFill*8)
		check := func(what string) {
			t.Helper()
			heap, limit := heapAfter()-before, test.maxBytes*11/10+int64(test.shards)*page
			if heap > limit {
				t.Errorf("%s, %d bytes in %d shards: the heap holds %d, want at most %d", what, test.maxBytes, test.shards, heap, limit)
			}
		}
		for i := range int(test.maxBytes / 50) {
			c.Put(i, nil)
		}
		check("light entries")
		for i := range int(test.maxBytes / 4096) {
			c.Put(-1-i, make([]byte, 8192))
		}
		check("heavy entries")
		mustCheck(t, c)
		runtime.KeepAlive(c)
	}
}

// TestSetCapacityGivesMemoryBack says the same of a smaller capacity, whatever part of
// the old one it is, but for a page a shard, and of Clear.
func TestSetCapacityGivesMemoryBack(t *testing.T) {
	const n = 100_000
	for _, shards := range []int{1, 8} {
		for _, part := range []int64{0, 10, 40, 51, 60, 90} {
			before := heapAfter()
			c := mustNew(t, Options[int, [100]byte]{Shards: shards})
			for i := range n {
				c.Put(i, [100]byte{})
			}
			held := heapAfter() - before
			c.SetCapacity(max(shards, n*int(part)/100))
			mustCheck(t, c)
			slack := int64(shards)*pageSize*c.overhead + held/25
			if left := heapAfter() - before; left > held*part/100+slack {
				t.Errorf("at %d %% of the entries in %d shards the heap holds %d of %d bytes", part, shards, left, held)
			}
			if got, want := c.Stats().Capacity, max(shards, n*int(part)/100); got != want {
				t.Errorf("Stats().Capacity = %d, want %d", got, want)
			}
			c.Clear()
			if left := heapAfter() - before; left > held/100 {
				t.Errorf("after Clear the heap holds %d of %d bytes", left, held)
			}
			runtime.KeepAlive(c)
		}
	}
}
