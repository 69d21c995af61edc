package cachebench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Yiling-J/theine-go"
	"github.com/dgraph-io/ristretto/v2"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/jellydator/ttlcache/v3"
	"github.com/maypok86/otter/v2"

	"github.com/tlsproxy/tlsproxy/cache"
)

// sessions makes the named cache for n entries with a value of 130 bytes each of
// their own, and returns how to put one. Ours holds the bytes themselves, the others
// a pointer, as anybody would write it.
func sessions(name string, n int) (func(Handle), error) {
	const lifetime = 24 * time.Hour
	switch name {
	case ours:
		c, err := cache.New(cache.Options[Handle, session]{Capacity: n, Lifetime: lifetime})
		return func(k Handle) { c.Put(k, session{}) }, err
	case "golang-lru":
		c := expirable.NewLRU[Handle, *session](n, nil, lifetime)
		return func(k Handle) { c.Add(k, new(session)) }, nil
	case "ttlcache":
		c := ttlcache.New(ttlcache.WithCapacity[Handle, *session](uint64(n)), ttlcache.WithTTL[Handle, *session](lifetime))
		return func(k Handle) { c.Set(k, new(session), ttlcache.DefaultTTL) }, nil
	case "otter":
		c, err := otter.New(&otter.Options[Handle, *session]{MaximumSize: n, ExpiryCalculator: otter.ExpiryWriting[Handle, *session](lifetime)})
		return func(k Handle) { c.Set(k, new(session)) }, err
	case "theine":
		c, err := theine.NewBuilder[Handle, *session](int64(n)).Build()
		return func(k Handle) { c.SetWithTTL(k, new(session), 1, lifetime) }, err
	case "ristretto":
		c, err := ristretto.NewCache(&ristretto.Config[[]byte, *session]{
			NumCounters: 10 * int64(n), MaxCost: int64(n), BufferItems: 64, IgnoreInternalCost: true,
		})
		return func(k Handle) { c.SetWithTTL(k[:], new(session), 1, lifetime) }, err
	}
	return nil, fmt.Errorf("no cache is named %q", name)
}

// footprint fills the named cache with n sessions and returns the bytes of heap for
// each, and the CPU time in ns of one forced collection with them and with none.
func footprint(name string, n int) (string, error) {
	put, err := sessions(name, 1) // so that what the library sets up once is not counted
	if err != nil {
		return "", err
	}
	put(Handle{})
	before, none := liveHeap(), collection()
	if put, err = sessions(name, n); err != nil {
		return "", err
	}
	for i := range uint64(n) {
		put(handle(i))
	}
	each := (liveHeap() - before) / int64(n)
	with := collection()
	put(Handle{}) // keeps it alive
	return fmt.Sprintf("%d %d %d", each, with, none), nil
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// collection returns the CPU time of a forced collection: the median of some.
func collection() time.Duration {
	var took []time.Duration
	for range 3 {
		t := processCPU()
		runtime.GC()
		took = append(took, processCPU()-t)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// apart is ours with a cache of its own for each goroutine, and no more of them than
// processors: what there is to gain on a machine where nothing is shared.
const apart = "tlsproxy, apart"

// contention has goroutines get (four of five times) and put random keys, of which
// half are there at first. It returns operations a second, and the CPU time of an
// operation in ns.
func contention(name string, size, goroutines, milliseconds int) (string, error) {
	parts := 1
	if name == apart {
		goroutines = min(goroutines, runtime.GOMAXPROCS(0))
		name, parts = ours, goroutines
	}
	caches := make([]target[[32]byte], parts)
	for i := range caches {
		var err error
		if caches[i], err = newTarget[[32]byte](name, config{size: size, lifetime: 24 * time.Hour}); err != nil {
			return "", err
		}
		for k := range uint64(size) {
			caches[i].put(handle(k))
		}
	}
	runtime.GC()
	var stop atomic.Bool
	var total atomic.Int64
	var wg sync.WaitGroup
	cpu, start := processCPU(), time.Now()
	for g := range goroutines {
		wg.Go(func() {
			c := caches[g%parts]
			random, n := uint64(g), int64(0)
			for ; !stop.Load(); n++ {
				random = mix(random)
				k := handle(random % uint64(2*size))
				if random>>40%5 == 0 {
					c.put(k)
				} else {
					c.get(k)
				}
			}
			total.Add(n)
		})
	}
	time.Sleep(time.Duration(milliseconds) * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	wall, used := time.Since(start), processCPU()-cpu
	return fmt.Sprintf("%.0f %.1f", float64(total.Load())/wall.Seconds(), float64(used)/float64(total.Load())), nil
}
