package cachebench

import (
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

// compareOps runs rounds of put, get and delete on ours and on a rival in turn. What
// is compared is the CPU time of the thread that calls.
func (b *Bench) compareOps(mine *process, rivalName string, c opsCase) ([]OpsRow, error) {
	p, err := b.start(rivalName)
	if err != nil {
		return nil, err
	}
	kind := strings.TrimPrefix(rivalName, "jdk-")
	warm := min(c.size, 20480)
	for _, command := range []string{
		fmt.Sprintf("prep %s %s %d %d", kind, c.keys, warm, c.lifetime),
		"warm",
		fmt.Sprintf("prep %s %s %d %d", kind, c.keys, c.size, c.lifetime),
	} {
		if _, err := p.do("%s", command); err != nil {
			return nil, err
		}
	}
	var rows []OpsRow
	for _, op := range opNames {
		row := OpsRow{Keys: c.keys, Size: c.size, Lifetime: c.lifetime, Op: op, Rival: rivalName}
		if err := b.compareOp(mine, p, &row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, p.stop()
}

// compareOp fills in a row.
func (b *Bench) compareOp(mine, theirs *process, row *OpsRow) error {
	const n = 100_000
	rounds := pick(b, 7, 3)
	var a, t, ratios []float64
	for range rounds {
		x, err := round(mine, row.Op, row.Size, n)
		if err != nil {
			return err
		}
		y, err := round(theirs, row.Op, row.Size, n)
		if err != nil {
			return err
		}
		a, t, ratios = append(a, x[0]), append(t, y[0]), append(ratios, x[0]/y[0])
		row.HitRatio += y[1] / float64(rounds)
	}
	row.Ours, row.Theirs, row.Ratio = median(a), median(t), median(ratios)
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
	p, err := b.start(ours)
	if err != nil {
		return nil, err
	}
	if _, err := p.do("prep %s %s %d %d", ours, c.keys, c.size, c.lifetime); err != nil {
		return nil, err
	}
	var rows []OpsRow
	for _, name := range c.rivals {
		more, err := b.compareOps(p, name, c)
		if err != nil {
			return nil, fmt.Errorf("%s at %d: %w", name, c.size, err)
		}
		for _, r := range more {
			b.say("%-6s %8d %6d %-6s %-10s %6.1f %7.1f  %.2f  %.3f", r.Keys, r.Size, r.Lifetime, r.Op, r.Rival, r.Ours, r.Theirs, r.Ratio, r.HitRatio)
		}
		rows = append(rows, more...)
	}
	return rows, p.stop()
}
