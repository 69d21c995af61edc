package cachebench

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// sharesOf are the shares of expired entries that are compared, in thousandths.
var sharesOf = []int{0, 100, 250, 333, 500}

// shares measures get, put and delete with a share of the entries expired, chosen by
// hash, for each of sharesOf. It returns three times in ns for each share.
func shares(name string, size, n, rounds int) (string, error) {
	ns := make([]map[string][]float64, len(sharesOf))
	for range rounds {
		for i, perMille := range sharesOf {
			if ns[i] == nil {
				ns[i] = map[string][]float64{}
			}
			if err := sharesRound(name, size, n, uint64(perMille), ns[i]); err != nil {
				return "", err
			}
		}
	}
	var out []string
	for i := range sharesOf {
		for _, op := range []string{"get", "put", "delete"} {
			out = append(out, fmt.Sprintf("%.1f", median(ns[i][op])))
		}
	}
	return strings.Join(out, " "), nil
}

func sharesRound(name string, size, n int, perMille uint64, ns map[string][]float64) error {
	clock := &fakeClock{}
	c, err := newClocked(name, size, 24*time.Hour, clock)
	if err != nil {
		return err
	}
	short := func(i uint64) bool { return mix(^i)%1000 < perMille }
	for i := range uint64(size) {
		if short(i) {
			c.putFor(handle(i), time.Minute)
		} else {
			c.put(handle(i))
		}
	}
	clock.now += int64(time.Hour)
	runtime.GC()

	random := uint64(7)
	live := func() []Handle {
		keys := make([]Handle, 0, n)
		for len(keys) < n {
			random = mix(random)
			if i := random % uint64(size); !short(i) {
				keys = append(keys, handle(i))
			}
		}
		return keys
	}
	measure := func(op string, keys []Handle, f func(Handle)) {
		i := 0
		ns[op] = append(ns[op], batches(len(keys), func() { f(keys[i]); i++ }))
	}
	measure("get", live(), func(k Handle) { c.get(k) })
	fresh := make([]Handle, n)
	for i := range fresh {
		fresh[i] = handle(uint64(size + i))
	}
	measure("put", fresh, c.put)
	// Each once: what is asked for twice is not there the second time.
	once := map[Handle]bool{}
	var keys []Handle
	for _, k := range live() {
		if !once[k] {
			keys = append(keys, k)
		}
		once[k] = true
	}
	measure("delete", keys, c.remove)
	return nil
}
