package cachebench

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// repeats is how often a sequence of calls is run for a stopwatch.
const repeats = 3

// critical measures puts at the rate at which entries expire, beside plain puts into
// a full cache of that size, all by a clock that moves with each put. It returns ns:
// the median, 99th and 99.9th percentile and longest of plain puts, and the same of
// critical ones; after each longest, the longest in the best of the runs.
func critical(name string, size, n int) (string, error) {
	out := ""
	for _, lifetime := range []time.Duration{1000 * time.Hour, time.Duration(size) * step} {
		watch := newStopwatch(n)
		var medians []float64
		runs := repeats
		if size > 10_000_000 {
			runs = 2 // filling takes long
		}
		for range runs {
			m, err := putsAtRate(name, size, n, lifetime, watch)
			if err != nil {
				return "", err
			}
			medians = append(medians, m)
			watch.rewind()
		}
		out += fmt.Sprintf("%.0f %.0f %.0f %.0f %d ", median(medians), watch.at(0.99), watch.at(0.999), watch.at(1), watch.best)
	}
	return out, nil
}

// step is what the clock moves with each put.
const step = time.Microsecond

// putsAtRate fills a cache, returns the median of n puts more, and times n others.
func putsAtRate(name string, size, n int, lifetime time.Duration, watch *stopwatch) (float64, error) {
	clock := &fakeClock{}
	c, err := newClocked(name, size, lifetime, clock)
	if err != nil {
		return 0, err
	}
	next := uint64(0)
	put := func() {
		clock.now += int64(step)
		c.put(handle(next))
		next++
	}
	for range size {
		put()
	}
	runtime.GC()
	m := batches(n, put)
	for range n {
		clock.now += int64(step)
		k := handle(next)
		next++
		watch.time(func() { c.put(k) })
	}
	return m, nil
}

// paced measures puts at the critical rate by the real clock, as the Java program
// does: wall time, since that is what it measures too.
func paced(name string, size, lifetime int, seconds float64) (string, error) {
	c, err := newTarget[[32]byte](name, config{size: size, lifetime: time.Duration(lifetime) * time.Second})
	if err != nil {
		return "", err
	}
	gap := float64(lifetime) * 1e9 / float64(size)
	warmup, n := size*3/2, int(seconds*1e9/gap)
	took := make([]time.Duration, n)
	start := time.Now()
	for i := range warmup + n {
		k := handle(uint64(i))
		due := time.Duration(float64(i) * gap)
		for time.Since(start) < due {
		}
		t := time.Now()
		c.put(k)
		if i >= warmup {
			took[i-warmup] = time.Since(t)
		}
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[min(n-1, int(q*float64(n)))] }
	return fmt.Sprintf("%d %d %d %d", at(0.5), at(0.99), at(0.999), at(1)), nil
}
