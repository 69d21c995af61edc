package cachebench

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// An arrival is a client at a time. It resumes if the cache has its session, and
// stores one if not.
type arrivals interface {
	next() (client uint64, at time.Duration)
}

// zipf has a fixed crowd, some of whom come far more often than others.
type zipf struct {
	r    *rand.Rand
	z    *rand.Zipf
	now  float64
	rate float64
}

func newZipf(seed uint64, clients int, rate float64) *zipf {
	r := rand.New(rand.NewPCG(seed, 1))
	return &zipf{r: r, z: rand.NewZipf(r, 1.1, 10, uint64(clients-1)), rate: rate}
}

func (a *zipf) next() (uint64, time.Duration) {
	a.now += a.r.ExpFloat64() / a.rate
	return mix(a.z.Uint64()), time.Duration(a.now * 1e9)
}

// returning has clients that come for the first time, return some times, and are
// never seen again: after seconds while they browse, or after hours.
type returning struct {
	r     *rand.Rand
	now   float64
	rate  float64 // of new clients
	fresh uint64
	due   visits
}

type visit struct {
	at     float64
	client uint64
}

type visits []visit

func (v visits) Len() int           { return len(v) }
func (v visits) Less(i, j int) bool { return v[i].at < v[j].at }
func (v visits) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v *visits) Push(x any)        { *v = append(*v, x.(visit)) }
func (v *visits) Pop() any {
	last := len(*v) - 1
	x := (*v)[last]
	*v = (*v)[:last]
	return x
}

func newReturning(seed uint64, rate float64) *returning {
	a := &returning{r: rand.New(rand.NewPCG(seed, 2)), rate: rate}
	heap.Push(&a.due, visit{0, 0})
	return a
}

func (a *returning) next() (uint64, time.Duration) {
	v := heap.Pop(&a.due).(visit)
	if v.client == a.fresh { // a first visit brings the next first visit
		a.fresh++
		heap.Push(&a.due, visit{v.at + a.r.ExpFloat64()/a.rate, a.fresh})
	}
	switch p := a.r.Float64(); {
	case p < 0.60:
		heap.Push(&a.due, visit{v.at + a.r.ExpFloat64()*30, v.client})
	case p < 0.80:
		heap.Push(&a.due, visit{v.at + a.r.ExpFloat64()*4*3600, v.client})
	}
	return v.client, time.Duration(v.at * 1e9)
}

// replay lets clients arrive at the named cache, three times over, and returns the hit
// ratio, the mean share of the capacity held by expired entries, the CPU time in ns of
// an arrival, and the longest put in ns. The lifetime is an hour; pressure is how many
// times the capacity arrives anew in that time.
func replay(name, kind string, size, n int, pressure float64) (string, error) {
	const lifetime = time.Hour
	rate := pressure * float64(size) / lifetime.Seconds()
	var from arrivals = newReturning(1, rate)
	if kind == "zipf" {
		from = newZipf(1, 20*size, 4*rate)
	}
	events := make([]event, n)
	for i := range events {
		client, at := from.next()
		events[i] = event{handle(client), int64(at)}
	}
	r := replayed{puts: newStopwatch(n)}
	var each []float64
	for range repeats {
		clock := &fakeClock{}
		c, err := newClocked(name, size, lifetime, clock)
		if err != nil {
			return "", err
		}
		r.run(c, clock, events, size)
		each = append(each, r.each)
		r.puts.rewind()
	}
	return fmt.Sprintf("%f %f %.0f %.0f", r.hits, r.share, median(each), r.puts.at(1)), nil
}

// An event is one arrival.
type event struct {
	k  Handle
	at int64
}

// replayed is what a replay has measured after the first third of it.
type replayed struct {
	hits  float64 // share of the arrivals
	share float64 // of the capacity, held by expired entries
	each  float64 // ns of an arrival
	puts  *stopwatch
}

func (r *replayed) run(c clocked, clock *fakeClock, events []event, size int) {
	warm := len(events) / 3
	hits, samples, share := 0, 0, 0.0
	var used time.Duration
	for i, e := range events {
		clock.now = e.at
		before := threadCPU()
		hit := c.get(e.k)
		used += threadCPU() - before - r.puts.cost
		if !hit {
			used += r.puts.time(func() { c.put(e.k) })
		}
		if i == warm {
			hits, used = 0, 0
		}
		if hit {
			hits++
		}
		if i > warm && i%(size/4) == 0 {
			_, expired := c.held()
			share += float64(expired) / float64(size)
			samples++
		}
	}
	measured := float64(len(events) - warm)
	r.hits, r.share, r.each = float64(hits)/measured, share/float64(max(1, samples)), float64(used)/measured
}
