package cachebench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
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
