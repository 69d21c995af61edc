package cachebench

import (
	"fmt"
	"slices"
)

// An OpsRow compares one operation of a rival with ours, in the same run.
type OpsRow struct {
	Keys     string  `json:"keys"`
	Size     int     `json:"size"`
	Lifetime int     `json:"lifetime"`
	Op       string  `json:"op"`
	Rival    string  `json:"rival"`
	Ours     float64 `json:"ours_ns"`
	Theirs   float64 `json:"theirs_ns"`
	Ratio    float64 `json:"ratio"`    // median over rounds of ours / theirs
	HitRatio float64 `json:"hitRatio"` // of the rival's gets, all of which an exact cache would hit
}

// compareOps runs rounds of put, get and delete on ours and on a rival in turn. What
// is compared is the CPU time of the thread that calls.
func (b *Bench) compareOps(ourProc *process, rivalName, keys string, size, lifetime int) ([]OpsRow, error) {
	p, err := b.start(rivalName)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	kind := rivalName
	if len(kind) > 4 && kind[:4] == "jdk-" {
		kind = kind[4:]
	}
	if _, err := p.do("prep %s %s %d %d", kind, keys, min(size, 20480), lifetime); err != nil {
		return nil, err
	}
	if _, err := p.do("warm"); err != nil {
		return nil, err
	}
	if _, err := p.do("prep %s %s %d %d", kind, keys, size, lifetime); err != nil {
		return nil, err
	}
	rounds, n := 7, 100_000
	if b.quick {
		rounds = 3
	}
	var rows []OpsRow
	for _, op := range []string{"put", "get", "delete"} {
		row := OpsRow{Keys: keys, Size: size, Lifetime: lifetime, Op: op, Rival: rivalName}
		var mine, theirs, ratios []float64
		hits := 0.0
		for range rounds {
			a, err := round(ourProc, op, size, n)
			if err != nil {
				return nil, err
			}
			t, err := round(p, op, size, n)
			if err != nil {
				return nil, err
			}
			mine, theirs = append(mine, a[0]), append(theirs, t[0])
			ratios = append(ratios, a[0]/t[0])
			hits += t[1] / float64(rounds)
		}
		row.Ours, row.Theirs, row.Ratio, row.HitRatio = median(mine), median(theirs), median(ratios), hits
		rows = append(rows, row)
	}
	return rows, nil
}

// round runs one round and returns the ns of an operation and the hit ratio. Small
// caches are refilled before each round so that every key of the window is there.
func round(p *process, op string, size, n int) ([2]float64, error) {
	window := size / 2
	if size <= 300_000 {
		window = size
		if _, err := p.do("fill %d", size); err != nil {
			return [2]float64{}, err
		}
	}
	if op == "delete" {
		n = min(n, window)
	}
	r, err := p.do("run %s %d %d", op, n, window)
	if err != nil {
		return [2]float64{}, err
	}
	if op == "delete" {
		if _, err := p.do("fill %d", n); err != nil {
			return [2]float64{}, err
		}
	}
	return [2]float64{r[0] / float64(n), r[2] / float64(n)}, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if len(x) == 0 {
		return 0
	}
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// Ops compares ours with every rival at each size, lifetime and kind of key.
func (b *Bench) Ops(names []string, sizes []int, keyKinds []string, lifetimes []int) ([]OpsRow, error) {
	var rows []OpsRow
	for _, size := range sizes {
		for _, keys := range keyKinds {
			for _, lifetime := range lifetimes {
				p, err := b.start(ours)
				if err != nil {
					return nil, err
				}
				if _, err := p.do("prep %s %s %d %d", ours, keys, size, lifetime); err != nil {
					return nil, err
				}
				for _, name := range names {
					r, err := b.compareOps(p, name, keys, size, lifetime)
					if err != nil {
						return nil, fmt.Errorf("%s at %d: %w", name, size, err)
					}
					for _, row := range r {
						b.say("%-7s %8d %6d %-7s %-11s %7.1f %7.1f  %.2f  %.3f", row.Keys, row.Size, row.Lifetime, row.Op, row.Rival, row.Ours, row.Theirs, row.Ratio, row.HitRatio)
					}
					rows = append(rows, r...)
				}
				if err := p.stop(); err != nil {
					return nil, err
				}
			}
		}
	}
	return rows, nil
}
