package cachebench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

// cliff measures single puts where a cache might stand still: while it fills from
// empty ("fill"), or after all entries have expired at the same instant ("expire").
// It returns the median, 99.9th percentile and longest put in ns, and the longest in
// the best of the runs. With the garbage collector on, which comes when it will, there
// is only one.
func cliff(kind string, size int, gc bool) (string, error) {
	watch := newStopwatch(size)
	runs := 1
	if !gc {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		runs = repeats
	}
	for range runs {
		runtime.GC()
		if err := timePuts(kind, size, watch); err != nil {
			return "", err
		}
		watch.rewind()
	}
	return fmt.Sprintf("%.0f %.0f %.0f %d", watch.at(0.5), watch.at(0.999), watch.at(1), watch.best), nil
}

func timePuts(kind string, size int, watch *stopwatch) error {
	clock := &fakeClock{}
	c, err := newClocked(ours, size, time.Hour, clock)
	if err != nil {
		return err
	}
	first := uint64(0)
	if kind == "expire" {
		for i := range uint64(size) {
			c.put(handle(i))
		}
		clock.now += int64(time.Hour)
		first = uint64(size)
	}
	for i := range uint64(size) {
		k := handle(first + i)
		watch.time(func() { c.put(k) })
	}
	return nil
}

// adversaries are patterns of lifetimes that a search for the earliest could stumble
// over. Each is one put with what comes with it.
var adversaries = []string{"plain, in order", "plain, order of use shuffled", "falling", "random", "re-insert the earliest", "cut every second"}

// adversarial measures the puts of each pattern into a full cache. It returns for each
// the median put and the longest, in ns; what else the pattern does is not counted.
func adversarial(size, n int) (string, error) {
	out := ""
	for _, name := range adversaries {
		watch := newStopwatch(n)
		for range repeats {
			if err := adversary(name, size, n, watch); err != nil {
				return "", err
			}
			watch.rewind()
		}
		out += fmt.Sprintf("%.0f %.0f ", watch.at(0.5), watch.at(1))
	}
	return out, nil
}

func adversary(name string, size, n int, watch *stopwatch) error {
	clock := &fakeClock{}
	c, err := cache.New(cache.Options[Handle, *session]{
		Capacity: size, Shards: 1, Now: func() int64 { return clock.now },
	})
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	life := time.Duration(size) * step // entries expire about when they must go
	lifetime := func(i int) time.Duration {
		switch name {
		case "plain, in order", "plain, order of use shuffled":
			return 1000 * time.Hour
		case "falling":
			return life*3 - time.Duration(i)*2*step%(life*2)
		case "random":
			return 1 + time.Duration(r.Int64N(int64(2*life)))
		}
		return life
	}
	beside := func(i int) {
		switch name {
		case "re-insert the earliest":
			// The oldest entry is the earliest to expire: it goes, and comes again.
			if oldest := i - size + 1; oldest >= 0 {
				c.Delete(handle(uint64(oldest)))
				c.PutFor(handle(uint64(oldest)), theSession, life)
			}
		case "cut every second":
			if i%2 == 0 {
				c.Cut(handle(uint64(i-r.IntN(size/2))), time.Duration(r.Int64N(int64(life))))
			}
		}
	}
	i := 0
	for ; i < size; i++ {
		clock.now += int64(step)
		c.PutFor(handle(uint64(i)), theSession, lifetime(i))
	}
	if name == "plain, order of use shuffled" {
		for range 2 * size {
			c.Get(handle(r.Uint64N(uint64(size))))
		}
	}
	runtime.GC()
	next := func() { clock.now += int64(step); beside(i); i++ }
	for range n {
		next()
		k, d := handle(uint64(i)), lifetime(i)
		watch.time(func() { c.PutFor(k, theSession, d) })
	}
	return nil
}
