package cache

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A trial runs a sequence of operations, written as bytes, on a cache and on one
// model for each shard, and compares them after each.
type trial struct {
	t      testing.TB
	data   []byte
	now    int64
	keys   int
	c      *Cache[int, int]
	models []*model
	gone   []eviction[int, int]
	puts   int
	due    map[eviction[int, int]]int // expired in the model, not yet in the cache
}

func (x *trial) byte() int {
	if len(x.data) == 0 {
		return 0
	}
	b := x.data[0]
	x.data = x.data[1:]
	return int(b)
}

func (x *trial) word() int { return x.byte()<<8 | x.byte() }

// newTrial takes the cache's options from the first bytes.
func newTrial(t testing.TB, data []byte, shards int) *trial {
	x := &trial{t: t, data: data, due: map[eviction[int, int]]int{}}
	x.keys = []int{4, 40, 400, 8000}[x.byte()%4]
	o := Options[int, int]{
		Shards:  shards,
		Now:     func() int64 { return x.now },
		OnEvict: func(k, v int, r Reason) { x.gone = append(x.gone, eviction[int, int]{entry[int, int]{k, v}, r}) },
	}
	o.Capacity = x.byte() * x.keys / 200
	weigh := func(int, int) int64 { return 0 }
	if x.byte()%2 == 1 {
		weigh = func(k, v int) int64 { return int64(v%97 - 5) }
		o.Weigh = weigh
	}
	o.MaxBytes = int64(x.byte()%4) * int64(x.keys) * 30
	o.Lifetime = x.duration()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	x.c = c
	for i := range shards {
		x.models = append(x.models, &model{
			capacity: int(share(int64(o.Capacity), i, shards)),
			maxBytes: share(o.MaxBytes, i, shards),
			lifetime: forEver(o.Lifetime),
			overhead: c.overhead,
			weigh:    weigh,
		})
	}
	return x
}

func forEver(d time.Duration) time.Duration {
	if d <= 0 {
		return math.MaxInt64
	}
	return d
}

func (x *trial) duration() time.Duration {
	switch b := x.byte(); {
	case b < 16:
		return 0
	case b == 16:
		return math.MaxInt64
	case b == 17:
		return math.MaxInt64 - 2
	default:
		return time.Duration(b) * time.Duration(1+x.keys/100)
	}
}

func (x *trial) modelOf(k int) *model {
	s, _ := x.c.place(&k)
	for i := range x.c.shards {
		if s == &x.c.shards[i] {
			return x.models[i]
		}
	}
	panic("no such shard")
}

func (x *trial) total(f func(m *model) int) (n int) {
	for _, m := range x.models {
		n += f(m)
	}
	return n
}

func (x *trial) compare(op string, got, want any) {
	x.t.Helper()
	if got != want {
		x.t.Fatalf("%s = %v; the model says %v", op, got, want)
	}
}

// step runs one operation.
func (x *trial) step() {
	k := x.word() % x.keys
	m := x.modelOf(k)
	switch op := x.byte() % 32; {
	case op < 10:
		x.puts++
		x.c.Put(k, x.puts)
		m.put(x.now, k, x.puts, m.lifetime)
	case op < 14:
		d := x.duration() - 18
		x.puts++
		x.compare("TryPutFor", x.c.TryPutFor(k, x.puts, d), m.put(x.now, k, x.puts, d))
	case op < 20:
		v, ok := x.c.Get(k)
		wantV, wantOK := m.get(x.now, k)
		x.compare("Get", [2]any{v, ok}, [2]any{wantV, wantOK})
	case op < 22:
		d := x.duration() - 20
		x.compare("Cut", x.c.Cut(k, d), m.cut(x.now, k, d))
	case op < 24:
		v, ok := x.c.Take(k)
		wantV, wantOK := m.take(x.now, k)
		x.compare("Take", [2]any{v, ok}, [2]any{wantV, wantOK})
	case op < 26:
		x.compare("Delete", x.c.Delete(k), m.remove(x.now, k))
	case op < 28:
		x.now += int64(x.byte())
	case op < 29:
		x.burst(k, x.byte()*x.keys/1000)
	default:
		x.rare(op)
	}
}

// burst puts n keys in a row.
func (x *trial) burst(k, n int) {
	for i := range n {
		k := (k + i) % x.keys
		m := x.modelOf(k)
		x.puts++
		x.c.Put(k, x.puts)
		m.put(x.now, k, x.puts, m.lifetime)
	}
}

// rare runs one of the operations on the whole cache.
func (x *trial) rare(op int) {
	switch b := x.byte(); {
	case op == 29 && b < 16:
		x.c.Clear()
		x.total(func(m *model) int { m.clear(x.now); return 0 })
	case op == 29 && b < 100:
		x.shed(x.byte() * x.keys / 1000)
	case op == 29:
		n := x.byte() * x.keys / 200
		x.c.SetCapacity(n)
		for i, m := range x.models {
			m.setCapacity(x.now, int(share(int64(n), i, len(x.models))))
		}
	case op == 30 && b < 64:
		d := x.duration()
		x.c.SetLifetime(d)
		x.total(func(m *model) int { m.lifetime = forEver(d); return 0 })
	case op == 30:
		x.compare("Len", x.c.Len(), x.total(func(m *model) int { return m.len(x.now) }))
	default:
		x.all()
	}
}

// shed compares what Shed drops. How many each shard drops is up to the cache; that
// they are its least recently used, and n in all, is not.
func (x *trial) shed(n int) {
	live := x.total(func(m *model) int { return m.len(x.now) })
	before := make([]uint64, len(x.models))
	for i := range x.models {
		before[i] = x.c.shards[i].counts.reasons[ReasonShed]
	}
	x.compare("Shed", x.c.Shed(n), min(n, live))
	for i, m := range x.models {
		m.shed(x.now, int(x.c.shards[i].counts.reasons[ReasonShed]-before[i]))
	}
	for i := range x.c.shards {
		if f := x.c.shards[i].freeSlots(); f != 0 {
			x.t.Fatalf("Shed left %d free slots in shard %d", f, i)
		}
	}
}

func (x *trial) all() {
	got, want := map[int]int{}, map[int]int{}
	for k, v := range x.c.All() {
		if _, twice := got[k]; twice {
			x.t.Fatalf("All returned key %d twice", k)
		}
		got[k] = v
	}
	for _, m := range x.models {
		m.expire(x.now)
		for _, e := range m.entries {
			want[e.key] = e.value
		}
	}
	if !maps.Equal(got, want) {
		x.t.Fatalf("All = %v; the model says %v", got, want)
	}
}

// settle compares what OnEvict was told: the same, except that the cache may be
// later with what has expired.
func (x *trial) settle() {
	var want []eviction[int, int]
	for _, m := range x.models {
		for _, e := range m.gone {
			if e.reason == ReasonExpired {
				x.due[e]++
			} else {
				want = append(want, e)
			}
		}
		m.gone = m.gone[:0]
	}
	var got []eviction[int, int]
	for _, e := range x.gone {
		if e.reason != ReasonExpired {
			got = append(got, e)
			continue
		}
		if x.due[e]--; x.due[e] < 0 {
			x.t.Fatalf("OnEvict(%d, %d, expired) too early", e.key, e.value)
		} else if x.due[e] == 0 {
			delete(x.due, e)
		}
	}
	x.gone = x.gone[:0]
	if len(x.models) > 1 || len(want) > 1 {
		byKey := func(a, b eviction[int, int]) int { return a.value - b.value }
		slices.SortFunc(got, byKey)
		slices.SortFunc(want, byKey)
	}
	if !slices.Equal(got, want) {
		x.t.Fatalf("OnEvict was told %v; the model says %v", got, want)
	}
}

// counts compares the counters and gauges.
func (x *trial) counts() {
	st := x.c.Stats()
	live := x.total(func(m *model) int { return m.len(x.now) })
	x.settle()
	late := 0
	for _, n := range x.due {
		late += n
	}
	x.compare("entries", st.Entries, live+late)
	e := st.Evictions
	left := e.Expired + e.Capacity + e.Bytes + e.Replaced + e.Deleted + e.Shed + st.Taken
	x.compare("puts", st.Puts, left+uint64(st.Entries))
	if late == 0 {
		x.compare("bytes", x.c.Bytes(), int64(x.total(func(m *model) int { return int(m.bytes()) })))
	}
}

// run runs the whole sequence; deep is how many steps pass between looks inside.
func (x *trial) run(deep int) {
	for n := 1; len(x.data) > 0; n++ {
		x.step()
		x.total(func(m *model) int { m.expire(x.now); return 0 })
		x.settle()
		if n%deep == 0 {
			x.counts()
			mustCheck(x.t, x.c)
		}
	}
	x.counts()
	mustCheck(x.t, x.c)
}

func randomOps(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestModel(t *testing.T) {
	for seed := range 200 {
		data := randomOps(uint64(seed), 3000)
		data[0] = byte(seed % 3) // few keys
		shards := []int{1, 2, 3, 8}[seed%4]
		newTrial(t, data, shards).run(100)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestModelLarge goes over many pages and many levels of the tree of minima.
func TestModelLarge(t *testing.T) {
	length := 10_000
	if raceDetector {
		length = 1000
	}
	for seed, head := range [][]byte{
		{3, 150, 0, 0, 250}, {3, 255, 1, 0, 200}, {3, 0, 1, 3, 0}, {3, 200, 0, 3, 255},
	} {
		data := append(head, randomOps(uint64(seed), length)...)
		newTrial(t, data, 1+seed%2*2).run(200)
	}
}

func FuzzOps(f *testing.F) {
	for seed := range 8 {
		f.Add(randomOps(uint64(1000+seed), 300), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte, shards uint8) {
		if len(data) == 0 || len(data) > 1<<12 {
			return
		}
		data = slices.Clone(data)
		data[0] %= 3 // few keys
		newTrial(t, data, 1+int(shards%8)).run(20)
	})
}
