package cachebench

import (
	"fmt"
	"math"

	"github.com/tlsproxy/tlsproxy/bench/cachebench/svg"
)

// measureCritical measures puts that come as fast as entries expire.
func (b *Bench) measureCritical(r *Report) error {
	s := Section{
		Title: "The critical rate",
		Text: "Each put finds one expired entry. A search that visits every entry does so at every put. Ours and the flat skip by a clock that moves\n" +
			"with each put. “Plain” is a put into another full cache of that size with nothing to expire. Medians and their ratio: of a hundred puts of either\n" +
			"in turn. Percentiles: of each put the least of three runs. Longest in one run: with all that the machine did meanwhile, in the best of the three.\n" +
			"Nanoseconds.",
		Header: []string{"cache", "entries", "plain put, median", "99.9 %", "critical, median", "ratio", "99 %", "99.9 %", "longest", "longest in one run"},
		File:   "cache-critical.svg",
	}
	sizes := pick(b, []int{20_480, 204_800, 1_024_000, 5_120_000, 20_000_000}, []int{20_480, 204_800, 1_024_000})
	var groups []string
	medians := map[string][]float64{}
	worstRatio, worstTail := 0.0, 0.0
	for _, size := range sizes {
		groups = append(groups, fmt.Sprint(size))
		for _, name := range []string{ours, "flat skip"} {
			n := 200_000
			if name != ours {
				if size > pick(b, 1_024_000, 204_800) {
					medians[name] = append(medians[name], math.NaN())
					continue
				}
				n = min(4000, max(100, 100_000_000/size/10))
			}
			x, err := b.once("critical %s %d %d", word(name), size, n)
			if err != nil {
				return err
			}
			s.row(name, size, x[0], x[2], x[5], x[10], x[6], x[7], x[8], x[9])
			medians[name] = append(medians[name], x[5])
			if name == ours {
				worstRatio, worstTail = max(worstRatio, x[10]), max(worstTail, x[7])
			}
		}
	}
	s.Chart = &svg.Chart{Title: "A put at the critical rate", Unit: "median, ns of CPU time; logarithmic", Panels: []svg.Panel{{
		Groups: groups, Log: true, Lines: true,
		Series: []svg.Series{{Name: ours, Values: medians[ours]}, {Name: "flat skip", Values: medians["flat skip"]}},
	}}}
	r.Sections = append(r.Sections, s)
	r.Verdicts = append(r.Verdicts,
		Verdict{"critical rate, median put", "≤ 2 × a plain put", fmt.Sprintf("at most %.2f ×", worstRatio), worstRatio <= 2},
		Verdict{"critical rate, 99.9 % of puts", "≤ 10 µs", fmt.Sprintf("at most %.1f µs", worstTail/1000), worstTail <= 10_000})
	return b.measurePaced(r)
}

// measurePaced measures the critical rate by the real clock, beside the JDK.
func (b *Bench) measurePaced(r *Report) error {
	s := Section{
		Title: "The critical rate in real time, beside the JDK",
		Text: "Lifetime 2 s, as many puts in 2 s as the cache holds. Time from call to return, so that what else the machine does shows in the upper\n" +
			"percentiles of both. Nanoseconds.",
		Header: []string{"cache", "entries", "median", "99 %", "99.9 %", "longest"},
	}
	for _, size := range []int{20_480, 204_800} {
		x, err := b.once("paced %s %d 2 %d", ours, size, pick(b, 5, 2))
		if err != nil {
			return err
		}
		s.row(ours, size, x[0], x[1], x[2], x[3])
		p, err := b.start("jdk-hard")
		if err != nil {
			return err
		}
		if _, err := p.do("prep hard handle %d 2", size); err != nil {
			return err
		}
		if x, err = p.do("critical 2 %d", pick(b, 5, 2)); err != nil {
			return err
		}
		s.row("jdk-hard", size, x[0], x[1], x[2], x[3])
		if err := p.stop(); err != nil {
			return err
		}
	}
	r.Sections = append(r.Sections, s)
	return nil
}

// measureShares measures with a share of the entries expired.
func (b *Bench) measureShares(r *Report) error {
	s := Section{
		Title: "With expired entries in the cache",
		Text: "The share of the entries that has expired is spread over the cache at random. Get and delete ask for live ones; each put reclaims one of\n" +
			"the expired. Nanoseconds; in brackets the ratio to a cache of that size without expired entries, measured in turn with it, a hundred calls\n" +
			"of either. The JDK's first put that overflows removes all of them; its ratio is to the figure of a round before.",
		Header: []string{"cache", "entries", "operation"},
	}
	for _, p := range sharesOf {
		s.Header = append(s.Header, fmt.Sprintf("%.1f %% expired", float64(p)/10))
	}
	worst, where := 0.0, ""
	for _, size := range pick(b, []int{204_800, 2_000_000, 20_000_000}, []int{204_800, 2_000_000}) {
		x, err := b.once("shares %s %d %d %d", ours, size, 20_000, map[bool]int{true: 3, false: 1}[size <= 2_000_000])
		if err != nil {
			return err
		}
		if most, at := sharesRows(&s, ours, size, x); most > worst {
			worst, where = most, at
		}
		if size > 1_000_000 {
			continue // the Java program takes minutes to fill and expire it
		}
		if x, err = b.jdkShares(size); err != nil {
			return err
		}
		sharesRows(&s, "jdk-hard", size, x)
	}
	r.Sections = append(r.Sections, s)
	r.Verdicts = append(r.Verdicts, Verdict{
		"1/10 to 1/2 of the entries expired; 2 M and 20 M entries", "within 1.5 ×", fmt.Sprintf("at most %.2f × (%s)", worst, where), worst <= 1.5,
	})
	return nil
}

// sharesRows adds a row for each operation and returns the worst ratio.
func sharesRows(s *Section, name string, size int, x []float64) (worst float64, where string) {
	for i, op := range sharesOps {
		cells := []any{name, size, op}
		for j, perMille := range sharesOf {
			v := x[3*(len(sharesOps)*j+i):]
			cells = append(cells, fmt.Sprintf("%s (%.2f)", figure(v[1]), v[2]))
			if v[2] > worst {
				worst, where = v[2], fmt.Sprintf("%s at %d, %d ‰ expired", op, size, perMille)
			}
		}
		s.row(cells...)
	}
	return worst, where
}

func (b *Bench) jdkShares(size int) (x []float64, err error) {
	p, err := b.start("jdk-hard")
	if err != nil {
		return nil, err
	}
	for _, command := range []string{"prep hard handle 20480 86400", "warm", fmt.Sprintf("prep hard handle %d 86400", size)} {
		if _, err := p.do("%s", command); err != nil {
			return nil, err
		}
	}
	var base []float64
	for i, perMille := range append([]int{0}, sharesOf...) {
		if _, err := p.do("expire %d", perMille); err != nil {
			return nil, err
		}
		for j, op := range sharesOps {
			n, window := 20_000, size
			if op == "delete" {
				window = size / 2
			}
			y, err := p.do("run %s %d %d", op, n, window)
			if err != nil {
				return nil, err
			}
			took := y[0] / float64(n)
			if i == 0 {
				base = append(base, took)
				continue
			}
			x = append(x, base[j], took, took/base[j])
		}
	}
	return x, p.stop()
}

// measureCliffs looks for the longest put.
func (b *Bench) measureCliffs(r *Report) error {
	s := Section{
		Title: "Cliffs",
		Text: "Every put is timed while a cache fills from empty, and while one is put into whose entries have all expired at the same instant. With the\n" +
			"collector off, of each put the least of three runs counts. Nanoseconds.",
		Header: []string{"", "entries", "garbage collector", "median", "99.9 %", "longest put", "longest in one run"},
	}
	worst := 0.0
	for _, kind := range []string{"fill", "expire"} {
		for _, gc := range []int{0, 1} {
			for _, size := range pick(b, []int{5_000_000}, []int{1_000_000}) {
				x, err := b.once("cliff %s %d %d", kind, size, gc)
				if err != nil {
					return err
				}
				s.row(map[string]string{"fill": "filling from empty", "expire": "all expired at once"}[kind], size, []string{"off", "on"}[gc], x[0], x[1], x[2], x[3])
				if gc == 0 {
					worst = max(worst, x[3])
				}
			}
		}
	}
	r.Sections = append(r.Sections, s)
	r.Verdicts = append(r.Verdicts, Verdict{
		"5 M entries expire at once; filling from empty to 5 M", "worst put ≤ 1 ms", fmt.Sprintf("%.2f ms", worst/1e6), worst <= 1e6,
	})
	return nil
}

// measureAdversarial measures lifetimes that are meant to hurt.
func (b *Bench) measureAdversarial(r *Report) error {
	size := 1_024_000
	x, err := b.once("adversarial %d %d", size, pick(b, 300_000, 100_000))
	if err != nil {
		return err
	}
	s := Section{
		Title: "Adversarial lifetimes",
		Text: fmt.Sprintf("Puts into a full cache of %d entries whose lifetimes fall, are random, or are those of entries that are cut short, or deleted and put again\n", size) +
			"just when they are the earliest to expire. Of each put the least of three runs, in nanoseconds; the ratios of falling and of random lifetimes are of a\n" +
			"hundred puts in turn with a hundred plain ones.",
		Header: []string{"lifetimes", "median put", "ratio to plain, in order", "ratio to plain, shuffled", "longest put"},
		Notes:  []string{"Plain puts evict entries in the order in which they were put, whose slots lie in line, so that the processor fetches them ahead; after random gets they do not. What expires at random never does."},
	}
	worst, inOrder, shuffled := 0.0, 0.0, 0.0
	for i, name := range adversaries {
		v := x[4*i:]
		s.row(name, v[0], v[2], v[3], v[1])
		switch name {
		case plainInOrder, plainShuffled:
		case random:
			inOrder, shuffled = v[2], v[3]
		default:
			worst = max(worst, v[2])
		}
	}
	r.Sections = append(r.Sections, s)
	r.Verdicts = append(r.Verdicts,
		Verdict{"falling lifetimes, re-inserting the earliest, cutting every second", "within 2 × of plain puts", fmt.Sprintf("at most %.2f ×", worst), worst <= 2},
		Verdict{"random lifetimes", "within 2 × of plain puts", fmt.Sprintf("%.2f × of those with the order of use shuffled, too (%.2f × of those in order)", shuffled, inOrder), shuffled <= 2},
	)
	return nil
}
