package cachebench

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// repeats is how often a sequence of calls is run for a stopwatch.
const repeats = 3

// critical measures puts at the rate at which entries expire, in turn with plain puts
// into another full cache of that size, both by a clock that moves with each put. It
// returns ns: the median, 99th and 99.9th percentile and longest of plain puts, and
// the same of critical ones, after each longest the longest in the best of the runs;
// and then the ratio of the medians.
func critical(name string, size, n int) (string, error) {
	watches := [2]*stopwatch{newStopwatch(n), newStopwatch(n)}
	var medians [2][]float64
	var ratios []float64
	runs := repeats
	if size > 10_000_000 {
		runs = 2 // filling takes long
	}
	for range runs {
		plain, err := newFull(name, size, 1000*time.Hour)
		if err != nil {
			return "", err
		}
		due, err := newFull(name, size, time.Duration(size)*step)
		if err != nil {
			return "", err
		}
		runtime.GC()
		a, b, ratio := inTurn(n, plain.put, due.put)
		medians[0], medians[1], ratios = append(medians[0], a), append(medians[1], b), append(ratios, ratio)
		for range n {
			watches[0].time(plain.put)
			watches[1].time(due.put)
		}
		watches[0].rewind()
		watches[1].rewind()
	}
	out := ""
	for i, w := range watches {
		out += fmt.Sprintf("%.0f %.0f %.0f %.0f %d ", median(medians[i]), w.at(0.99), w.at(0.999), w.at(1), w.best)
	}
	return out + fmt.Sprintf("%.3f", median(ratios)), nil
}

// step is what the clock moves with each put.
const step = time.Microsecond

// full is a cache that is full, with a clock that moves with each put.
type full struct {
	c     clocked
	clock *fakeClock
	next  uint64
}

func newFull(name string, size int, lifetime time.Duration) (*full, error) {
	f := &full{clock: &fakeClock{}}
	var err error
	if f.c, err = newClocked(name, size, lifetime, f.clock); err != nil {
		return nil, err
	}
	for range size {
		f.put()
	}
	return f, nil
}

func (f *full) put() {
	f.clock.now += int64(step)
	f.c.put(handle(f.next))
	f.next++
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
