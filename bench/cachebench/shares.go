package cachebench

import (
	"fmt"
	"runtime"
	"time"
)

// sharesOf are the shares of expired entries that are compared with none, in
// thousandths.
var sharesOf = []int{100, 250, 333, 500}

// sharesOps are the operations that are compared.
var sharesOps = []string{"get", "put", "delete"}

// shares measures get, put and delete with each of sharesOf of the entries expired, in
// turn with a cache of which none has. It returns for each share and operation the
// time without, the time with, and the ratio.
func shares(name string, size, n, rounds int) (string, error) {
	out := ""
	for _, perMille := range sharesOf {
		ns := map[string]*[3][]float64{}
		for range rounds {
			if err := sharesRound(name, size, n, uint64(perMille), ns); err != nil {
				return "", err
			}
		}
		for _, op := range sharesOps {
			out += fmt.Sprintf("%.1f %.1f %.3f ", median(ns[op][0]), median(ns[op][1]), median(ns[op][2]))
		}
	}
	return out, nil
}

func sharesRound(name string, size, n int, perMille uint64, ns map[string]*[3][]float64) error {
	runtime.GC() // what the last round held
	fresh, err := newAged(name, size, 0)
	if err != nil {
		return err
	}
	aged, err := newAged(name, size, perMille)
	if err != nil {
		return err
	}
	runtime.GC()
	for _, op := range sharesOps {
		a, b, ratio := inTurn(n, fresh.next(op, n), aged.next(op, n))
		if ns[op] == nil {
			ns[op] = new([3][]float64)
		}
		for i, v := range []float64{a, b, ratio} {
			ns[op][i] = append(ns[op][i], v)
		}
	}
	return nil
}

// aged is a full cache of which a share has expired, chosen by hash.
type aged struct {
	c        clocked
	size     int
	perMille uint64
	random   uint64
}

func newAged(name string, size int, perMille uint64) (*aged, error) {
	clock := &fakeClock{}
	c, err := newClocked(name, size, 24*time.Hour, clock)
	if err != nil {
		return nil, err
	}
	a := &aged{c, size, perMille, 7}
	for i := range uint64(size) {
		if a.short(i) {
			c.putFor(handle(i), time.Minute)
		} else {
			c.put(handle(i))
		}
	}
	clock.now += int64(time.Hour)
	return a, nil
}

func (a *aged) short(i uint64) bool { return mix(^i)%1000 < a.perMille }

// next returns a function that does op once, to be called n times: with keys that
// were never put, or with live ones, each of them once.
func (a *aged) next(op string, n int) func() {
	keys := make([]Handle, 0, n)
	once := map[uint64]bool{}
	for i := uint64(a.size); len(keys) < n; i++ {
		if op == "put" {
			keys = append(keys, handle(i))
			continue
		}
		a.random = mix(a.random)
		if i := a.random % uint64(a.size); !a.short(i) && !once[i] {
			once[i] = true
			keys = append(keys, handle(i))
		}
	}
	f := map[string]func(Handle){"get": func(k Handle) { a.c.get(k) }, "put": a.c.put, "delete": a.c.remove}[op]
	i := 0
	return func() { f(keys[i]); i++ }
}
