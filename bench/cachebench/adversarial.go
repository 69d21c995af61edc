package cachebench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

// The patterns of lifetimes that a search for the earliest could stumble over, and two
// that are not, to be compared with. Each is one put with what comes with it.
const (
	plainInOrder  = "plain, in order"
	plainShuffled = "plain, order of use shuffled"
	falling       = "falling"
	random        = "random"
	reinsert      = "re-insert the earliest"
	cutSecond     = "cut every second"
)

var adversaries = []string{plainInOrder, plainShuffled, falling, random, reinsert, cutSecond}

// adversarial measures the puts of each pattern into a full cache. It returns for each
// the median put and the longest, in ns, what else the pattern does not counted, and
// the ratio of the median to those of the two plain ones: where the puts are all that
// there is, of a hundred in turn with a hundred plain ones.
func adversarial(size, n int) (string, error) {
	out := ""
	var plain []float64
	for _, name := range adversaries {
		watch := newStopwatch(n)
		var ratios []float64
		for range repeats {
			a, err := newAdversary(name, size)
			if err != nil {
				return "", err
			}
			if name == falling || name == random {
				more, err := a.againstPlain(n)
				if err != nil {
					return "", err
				}
				ratios = append(ratios, more...)
			}
			for range n {
				a.before()
				watch.time(a.put)
			}
			watch.rewind()
		}
		middle := watch.at(0.5)
		if len(plain) < 2 {
			plain = append(plain, middle)
		}
		order, shuffled := middle/plain[0], middle/plain[len(plain)-1]
		if len(ratios) > 0 {
			order, shuffled = median(everySecond(ratios, 0)), median(everySecond(ratios, 1))
		}
		out += fmt.Sprintf("%.0f %.0f %.3f %.3f ", middle, watch.at(1), order, shuffled)
	}
	return out, nil
}

func everySecond(x []float64, from int) (y []float64) {
	for i := from; i < len(x); i += 2 {
		y = append(y, x[i])
	}
	return y
}

// adversary is a full cache and a pattern of puts into it.
type adversary struct {
	name  string
	size  int
	c     *cache.Cache[Handle, *session]
	clock *fakeClock
	r     *rand.Rand
	life  time.Duration // at which entries expire about when they must go
	i     int           // number of the next put

	key      Handle
	lifetime time.Duration
}

func newAdversary(name string, size int) (*adversary, error) {
	a := &adversary{name: name, size: size, clock: &fakeClock{}, r: rand.New(rand.NewPCG(1, 2)), life: time.Duration(size) * step}
	var err error
	a.c, err = cache.New(cache.Options[Handle, *session]{Capacity: size, Shards: 1, Now: func() int64 { return a.clock.now }})
	if err != nil {
		return nil, err
	}
	for range size {
		a.next()
		a.put()
	}
	if name == plainShuffled {
		for range 2 * size {
			a.c.Get(handle(a.r.Uint64N(uint64(size))))
		}
	}
	runtime.GC()
	return a, nil
}

// next draws what the next put puts.
func (a *adversary) next() {
	a.clock.now += int64(step)
	a.key, a.lifetime = handle(uint64(a.i)), a.life
	switch a.name {
	case plainInOrder, plainShuffled:
		a.lifetime = 1000 * time.Hour
	case falling:
		a.lifetime = a.life*3 - time.Duration(a.i)*2*step%(a.life*2)
	case random:
		a.lifetime = 1 + time.Duration(a.r.Int64N(int64(2*a.life)))
	}
	a.i++
}

func (a *adversary) put() { a.c.PutFor(a.key, theSession, a.lifetime) }

// before draws the next put and does what the pattern does besides.
func (a *adversary) before() {
	i := a.i
	a.next()
	switch a.name {
	case reinsert:
		// The oldest entry is the earliest to expire: it goes, and comes again.
		if oldest := i - a.size + 1; oldest >= 0 {
			a.c.Delete(handle(uint64(oldest)))
			a.c.PutFor(handle(uint64(oldest)), theSession, a.life)
		}
	case cutSecond:
		if i%2 == 0 {
			a.c.Cut(handle(uint64(i-a.r.IntN(a.size/2))), time.Duration(a.r.Int64N(int64(a.life))))
		}
	}
}

// againstPlain returns the ratio of the pattern's puts to each of the two plain ones.
func (a *adversary) againstPlain(n int) (ratios []float64, err error) {
	for _, name := range []string{plainInOrder, plainShuffled} {
		plain, err := newAdversary(name, a.size)
		if err != nil {
			return nil, err
		}
		_, _, ratio := inTurn(n, func() { plain.next(); plain.put() }, func() { a.next(); a.put() })
		ratios = append(ratios, ratio)
	}
	return ratios, nil
}
