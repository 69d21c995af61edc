package cachebench

import (
	"slices"
	"time"
)

// A stopwatch takes the CPU time of single calls. Reading the thread's clock costs a
// system call, whose least time it subtracts.
type stopwatch struct {
	cost time.Duration
	took []time.Duration
}

func newStopwatch(n int) *stopwatch {
	s := &stopwatch{cost: time.Hour, took: make([]time.Duration, 0, n)}
	for range 2000 {
		t := threadCPU()
		s.cost = min(s.cost, threadCPU()-t)
	}
	return s
}

func (s *stopwatch) time(f func()) {
	t := threadCPU()
	f()
	s.took = append(s.took, max(0, threadCPU()-t-s.cost))
}

// at returns the time that a share q of the calls took at most, in ns. It sorts.
func (s *stopwatch) at(q float64) float64 {
	slices.Sort(s.took)
	return float64(s.took[min(len(s.took)-1, int(q*float64(len(s.took))))])
}

// batches calls f n times and returns the median, over batches, of its mean time in
// ns: not disturbed by the clock, nor by what happens now and then.
func batches(n int, f func()) float64 {
	const batch = 100
	var means []float64
	for range n / batch {
		t := threadCPU()
		for range batch {
			f()
		}
		means = append(means, float64(threadCPU()-t)/batch)
	}
	return median(means)
}
