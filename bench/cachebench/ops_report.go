package cachebench

import (
	"fmt"
	"math"

	"github.com/tlsproxy/tlsproxy/bench/cachebench/svg"
)

var opNames = []string{"put", "get", "delete"}

// opsPlan says which rivals are measured where: all of them with handles and a
// lifetime, but for those that take too long to fill when they are large; the JDK and
// the fastest exact one everywhere that has a target.
func (b *Bench) opsPlan() (plan []opsCase) {
	all := make([]string, len(rivals))
	for i, r := range rivals {
		all[i] = r.name
	}
	few := []string{"jdk-hard", "golang-lru"}
	for _, size := range []int{20_480, 204_800} {
		plan = append(plan,
			opsCase{"handle", size, 86_400, all}, opsCase{"handle", size, 0, few},
			opsCase{"int", size, 86_400, few}, opsCase{"int", size, 0, few})
	}
	plan = append(plan, opsCase{"handle", 2_000_000, 86_400, few[:1]})
	if b.quick {
		return plan
	}
	const large = 5_120_000
	return append(plan,
		opsCase{"handle", large, 86_400, append(few, "otter")}, opsCase{"handle", large, 0, few},
		opsCase{"int", large, 86_400, few}, opsCase{"int", large, 0, few[:1]})
}

func (b *Bench) measureOps(r *Report) error {
	var rows []OpsRow
	for _, c := range b.opsPlan() {
		more, err := b.ops(c)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	s := Section{
		Title: "Put, get and delete",
		Text: "One goroutine; a cache that is full of live entries. Put: new keys, so each evicts one. Get and delete: random keys that are there.\n" +
			"Handles are 32 random bytes; integers are consecutive, as in the JDK's own benchmark: a hash table that keeps their order, as\n" +
			"Java's does, walks memory in line, and ours, whose seeded hash scatters them, does not. Nanoseconds.",
		Header: []string{"keys", "entries", "lifetime", "operation", "cache", "ours", "theirs", "ratio", "their hit ratio"},
		File:   "cache-operations.svg",
	}
	for _, row := range rows {
		hits := "–"
		if row.Op == "get" {
			hits = fmt.Sprintf("%.3f", row.HitRatio)
		}
		s.row(row.Keys, row.Size, lifetimeName(row.Lifetime), row.Op, row.Rival, row.Ours, row.Theirs, row.Ratio, hits)
	}
	for _, v := range rivals {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: %s; %s", v.name, v.note, exactness(v.exact)))
	}
	s.Chart = opsChart(rows)
	r.Sections = append(r.Sections, s)
	r.Verdicts = append(r.Verdicts,
		opsVerdict(rows, "put, get, delete, handles, against the JDK", "each ≤ 1.0 ×", "handle", "jdk-hard"),
		opsVerdict(rows, "put, get, delete, handles, against the fastest exact Go cache", "each ≤ 1.0 ×", "handle", "golang-lru"),
		opsVerdict(rows, "put, get, delete, consecutive integers, against the JDK", "aim ≤ 1.0 ×", "int", "jdk-hard"),
		opsVerdict(rows, "the same against the fastest exact Go cache", "≤ 1.0 ×", "int", "golang-lru"),
	)
	return nil
}

func exactness(exact bool) string {
	if exact {
		return "exact"
	}
	return "approximate: it may refuse or drop entries while there is room"
}

func lifetimeName(seconds int) string {
	if seconds == 0 {
		return "none"
	}
	return fmt.Sprint(seconds, " s")
}

func opsVerdict(rows []OpsRow, what, target, keys, rival string) Verdict {
	least, most, where := math.Inf(1), 0.0, ""
	over := 0
	for _, r := range rows {
		if r.Keys != keys || r.Rival != rival {
			continue
		}
		least = min(least, r.Ratio)
		if r.Ratio > most {
			most, where = r.Ratio, fmt.Sprintf("%s at %d, lifetime %s", r.Op, r.Size, lifetimeName(r.Lifetime))
		}
		if r.Ratio > 1 {
			over++
		}
	}
	return Verdict{what, target, fmt.Sprintf("%.2f to %.2f (%s); %d above 1", least, most, where, over), most <= 1}
}

// opsChart shows every cache with handles and a lifetime.
func opsChart(rows []OpsRow) *svg.Chart {
	c := &svg.Chart{Title: "One operation, random 32-byte keys, lifetime 86,400 s", Unit: "ns of CPU time; logarithmic"}
	for _, op := range opNames {
		p := svg.Panel{Title: op, Log: true}
		sizes := []int{}
		values := map[string][]float64{}
		mine := []float64{}
		for _, r := range rows {
			if r.Keys != "handle" || r.Lifetime == 0 || r.Op != op || r.Size == 2_000_000 || r.Size == 20_000_000 {
				continue
			}
			if len(sizes) == 0 || sizes[len(sizes)-1] != r.Size {
				sizes = append(sizes, r.Size)
				p.Groups = append(p.Groups, fmt.Sprint(r.Size))
				mine = append(mine, r.Ours)
			}
			values[r.Rival] = append(values[r.Rival], r.Theirs)
		}
		p.Series = append(p.Series, svg.Series{Name: ours, Values: mine})
		for _, v := range rivals {
			if x := values[v.name]; len(x) > 0 {
				for len(x) < len(sizes) { // not measured at the largest
					x = append(x, math.NaN())
				}
				p.Series = append(p.Series, svg.Series{Name: v.name, Values: x})
			}
		}
		c.Panels = append(c.Panels, p)
	}
	return c
}
