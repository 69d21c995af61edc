package cachebench

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// critical measures puts at the rate at which entries expire, beside plain puts into
// a full cache of that size, all by a clock that moves with each put. It returns ns:
// the median of a plain put and of a critical one, and of the latter the 99th and
// 99.9th percentile and the longest.
func critical(name string, size, n int) (string, error) {
	var plain, p50 float64
	var watch *stopwatch
	for _, expiring := range []bool{false, true} {
		clock := &fakeClock{}
		const step = time.Microsecond
		lifetime := 1000 * time.Hour
		if expiring {
			lifetime = time.Duration(size) * step
		}
		c, err := newClocked(name, size, lifetime, clock)
		if err != nil {
			return "", err
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
		if !expiring {
			plain = m
			continue
		}
		p50 = m
		watch = newStopwatch(n)
		for range n {
			clock.now += int64(step)
			k := handle(next)
			next++
			watch.time(func() { c.put(k) })
		}
	}
	return fmt.Sprintf("%.0f %.0f %.0f %.0f %.0f", plain, p50, watch.at(0.99), watch.at(0.999), watch.at(1)), nil
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
