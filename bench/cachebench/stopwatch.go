package cachebench

import (
	"slices"
	"time"
)

// A stopwatch takes the CPU time of single calls. Reading the thread's clock costs a
// system call, whose least time it subtracts.
//
// Even a thread's CPU time is disturbed: by interrupts, by a hypervisor, by caches
// that others have emptied. So the same sequence of calls is run several times, with
// rewind before each, and of each call the least time counts: what a cache of one
// shard does at that call it does every time, what the machine does it does somewhere
// else. What either did in the best of the runs is kept as well.
type stopwatch struct {
	cost    time.Duration
	took    []time.Duration
	call    int           // the next one
	longest time.Duration // in this run
	best    time.Duration // the least of the runs' longest
}

func newStopwatch(n int) *stopwatch {
	s := &stopwatch{cost: time.Hour, best: time.Hour, took: make([]time.Duration, 0, n)}
	for range 2000 {
		t := threadCPU()
		s.cost = min(s.cost, threadCPU()-t)
	}
	return s
}

// time calls f and returns how long that took.
func (s *stopwatch) time(f func()) time.Duration {
	t := threadCPU()
	f()
	t = max(0, threadCPU()-t-s.cost)
	s.longest = max(s.longest, t)
	if s.call == len(s.took) {
		s.took = append(s.took, t)
	} else {
		s.took[s.call] = min(s.took[s.call], t)
	}
	s.call++
	return t
}

// rewind ends a run of the sequence of calls, and starts it anew.
func (s *stopwatch) rewind() {
	s.best = min(s.best, s.longest)
	s.call, s.longest = 0, 0
}

// at returns the time that a share q of the calls took at most, in ns. It sorts, so
// it comes last.
func (s *stopwatch) at(q float64) float64 {
	slices.Sort(s.took)
	return float64(s.took[min(len(s.took)-1, int(q*float64(len(s.took))))])
}

// perBatch is how many calls are timed at once where a mean will do.
const perBatch = 100

// inTurn calls f and g n times each, a batch of one after a batch of the other, so
// that what the machine does meanwhile befalls both. It returns the median of the
// batches' mean times of either in ns, and the median of g's as a multiple of f's.
func inTurn(n int, f, g func()) (ofF, ofG, ratio float64) {
	var first, second, ratios []float64
	for range n / perBatch {
		x, y := timeBatch(f), timeBatch(g)
		first, second = append(first, x), append(second, y)
		ratios = append(ratios, y/x)
	}
	return median(first), median(second), median(ratios)
}

// timeBatch returns the mean time of perBatch calls in ns.
func timeBatch(f func()) float64 {
	t := threadCPU()
	for range perBatch {
		f()
	}
	return float64(threadCPU()-t) / perBatch
}
