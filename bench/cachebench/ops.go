package cachebench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// A pair is two processes that are compared.
type pair struct {
	mine, theirs *process
}

// startPair starts ours and a rival, filled, the rival first if asked to.
func (b *Bench) startPair(rivalName string, c opsCase, rivalFirst bool) (p pair, err error) {
	begin := func(name string) (*process, error) {
		q, err := b.start(name)
		if err != nil {
			return nil, err
		}
		kind := strings.TrimPrefix(name, "jdk-")
		for _, command := range []string{
			fmt.Sprintf("prep %s %s %d %d", kind, c.keys, min(c.size, 20480), c.lifetime),
			"warm",
			fmt.Sprintf("prep %s %s %d %d", kind, c.keys, c.size, c.lifetime),
		} {
			if _, err := q.do("%s", command); err != nil {
				return nil, err
			}
		}
		return q, nil
	}
	if rivalFirst {
		if p.theirs, err = begin(rivalName); err != nil {
			return p, err
		}
	}
	if p.mine, err = begin(ours); err != nil {
		return p, err
	}
	if !rivalFirst {
		p.theirs, err = begin(rivalName)
	}
	return p, err
}

func (p pair) stop() error { return errors.Join(p.mine.stop(), p.theirs.stop()) }

// compare runs rounds of put, get and delete on ours and on a rival in turn. What is
// compared is the CPU time of the thread that calls.
//
// Which of two large processes came first decides how its memory lies, and that is
// worth a third of its speed in a virtual machine. So there are two sessions, with
// either order.
func (b *Bench) compare(rivalName string, c opsCase) ([]OpsRow, error) {
	sessions, rounds := 1, pick(b, 5, 3)
	if c.size >= 1_000_000 {
		sessions, rounds = 2, pick(b, 3, 2)
	}
	samples := make([]opsSamples, len(opNames))
	for session := range sessions {
		p, err := b.startPair(rivalName, c, session == 1)
		if err != nil {
			return nil, err
		}
		for i, op := range opNames {
			for range rounds {
				if err := samples[i].add(p, op, c.size); err != nil {
					return nil, err
				}
			}
		}
		if err := p.stop(); err != nil {
			return nil, err
		}
	}
	var rows []OpsRow
	for i, op := range opNames {
		s := samples[i]
		row := OpsRow{Keys: c.keys, Size: c.size, Lifetime: c.lifetime, Op: op, Rival: rivalName}
		row.Ours, row.Theirs, row.Ratio, row.HitRatio = median(s.mine), median(s.theirs), median(s.ratio), median(s.hits)
		rows = append(rows, row)
		b.say("%-6s %8d %6d %-6s %-10s %6.1f %7.1f  %.2f  %.3f", row.Keys, row.Size, row.Lifetime, row.Op, row.Rival, row.Ours, row.Theirs, row.Ratio, row.HitRatio)
	}
	return rows, nil
}

// opsSamples are what rounds of one operation have shown.
type opsSamples struct{ mine, theirs, ratio, hits []float64 }

// add runs one round of each.
func (s *opsSamples) add(p pair, op string, size int) error {
	const n = 100_000
	x, err := round(p.mine, op, size, n)
	if err != nil {
		return err
	}
	y, err := round(p.theirs, op, size, n)
	if err != nil {
		return err
	}
	s.mine, s.theirs = append(s.mine, x[0]), append(s.theirs, y[0])
	s.ratio, s.hits = append(s.ratio, x[0]/y[0]), append(s.hits, y[1])
	return nil
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

// An opsCase is a cache and the rivals that it is compared with.
type opsCase struct {
	keys     string
	size     int
	lifetime int // seconds
	rivals   []string
}

// ops compares ours with each of a case's rivals.
func (b *Bench) ops(c opsCase) ([]OpsRow, error) {
	var rows []OpsRow
	for _, name := range c.rivals {
		more, err := b.compare(name, c)
		if err != nil {
			return nil, fmt.Errorf("%s at %d: %w", name, c.size, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}
