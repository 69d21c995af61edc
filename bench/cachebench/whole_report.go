package cachebench

import (
	"fmt"
	"math"

	"github.com/tlsproxy/tlsproxy/bench/cachebench/designs"
	"github.com/tlsproxy/tlsproxy/bench/cachebench/svg"
)

// goCaches are the names of ours and of the Go caches.
func goCaches() []string {
	names := []string{ours}
	for _, r := range rivals {
		if r.name != "jdk-hard" && r.name != "jdk-soft" {
			names = append(names, r.name)
		}
	}
	return names
}

// measureContention has one and eight goroutines at work.
func (b *Bench) measureContention(r *Report) error {
	const size = 204_800
	s := Section{
		Title: "Contention",
		Text: fmt.Sprintf("Goroutines get (80 %%) and put (20 %%) random handles in a cache of %d entries, of which every second is there. Millions of operations a second, and\n", size) +
			"nanoseconds of CPU time of the whole process for one. “Apart”: a goroutine for each processor, each with a cache of that size of its own: what this machine\n" +
			"gains from its processors where nothing is shared. Throughput is what other programs on the machine leave; CPU time that does not grow with the goroutines\n" +
			"scales with the processors.",
		Header: []string{"cache", "1 goroutine, M/s", "8 goroutines, M/s", "gain", "CPU each, 1", "CPU each, 8", "ratio"},
		File:   "cache-contention.svg",
	}
	var rate, cpu [2]map[string][]float64
	for i := range rate {
		rate[i], cpu[i] = map[string][]float64{}, map[string][]float64{}
	}
	names := append(goCaches(), apart)
	for range pick(b, 7, 2) {
		for _, name := range names {
			for i, goroutines := range []int{1, 8} {
				x, err := b.once("contention %s %d %d 700", word(name), size, goroutines)
				if err != nil {
					return err
				}
				rate[i][name], cpu[i][name] = append(rate[i][name], x[0]/1e6), append(cpu[i][name], x[1])
			}
		}
	}
	more := map[string]float64{} // CPU time of an operation among eight, by that of one alone
	var series []svg.Series
	for _, name := range names {
		one, eight := median(rate[0][name]), median(rate[1][name])
		more[name] = median(cpu[1][name]) / median(cpu[0][name])
		s.row(name, one, eight, eight/one, median(cpu[0][name]), median(cpu[1][name]), more[name])
		series = append(series, svg.Series{Name: name, Values: []float64{one, eight}})
	}
	s.Chart = &svg.Chart{Title: "80 % get, 20 % put", Unit: "million operations a second", Panels: []svg.Panel{{
		Groups: []string{"1 goroutine", "8 goroutines"}, Series: series,
	}}}
	r.Sections = append(r.Sections, s)
	against := median(cpu[1][ours]) / median(cpu[1]["otter"])
	r.Verdicts = append(r.Verdicts, Verdict{
		"8 goroutines against one, and against otter", "scales with the cores; no worse than otter",
		fmt.Sprintf("an operation costs %.2f × the CPU time that it costs one goroutine (where nothing is shared %.2f ×), and %.2f × otter's", more[ours], more[apart], against),
		more[ours] <= 1.1*max(1, more[apart]) && against <= 1,
	})
	return nil
}

// measureMemory weighs caches full of sessions, and what a collection of them costs.
func (b *Bench) measureMemory(r *Report) error {
	s := Section{
		Title: "Memory and the garbage collector",
		Text: "Sessions of a 32-byte handle and 130 bytes of state. Ours holds the bytes themselves, the others a pointer to them. Bytes of heap for each entry, everything\n" +
			"included, and the CPU time that one forced collection takes more than with an empty cache.",
		Header: []string{"cache", "entries", "bytes each", "collection, ms of CPU"},
		File:   "cache-memory.svg",
	}
	names := append(goCaches(), "jdk-soft")
	sizes := pick(b, []int{1_000_000, 5_000_000}, []int{200_000, 1_000_000})
	var series []svg.Series
	each, gc := 0.0, 0.0
	for _, name := range names {
		var values []float64
		for _, size := range sizes {
			if size > 1_000_000 && (name == "ttlcache" || name == "theine" || name == "ristretto") {
				values = append(values, math.NaN()) // they take minutes to fill
				continue
			}
			if name == "jdk-soft" {
				x, err := b.jdkMemory(size)
				if err != nil {
					return err
				}
				s.row(name, size, x, "–")
				values = append(values, x)
				continue
			}
			x, err := b.once("footprint %s %d", name, size)
			if err != nil {
				return err
			}
			s.row(name, size, x[0], (x[1]-x[2])/1e6)
			values = append(values, x[0])
			if name == ours {
				each, gc = max(each, x[0]), max(gc, (x[1]-x[2])/1e6)
			}
		}
		series = append(series, svg.Series{Name: name, Values: values})
	}
	s.Chart = &svg.Chart{Title: "Memory for one session", Unit: "bytes of heap", Panels: []svg.Panel{{
		Groups: []string{fmt.Sprint(sizes[0]), fmt.Sprint(sizes[1])}, Series: series,
	}}}
	r.Sections = append(r.Sections, s)
	r.Verdicts = append(r.Verdicts,
		Verdict{fmt.Sprintf("memory for %d and %d sessions", sizes[0], sizes[1]), "≤ 256 bytes each", fmt.Sprintf("%.0f bytes", each), each <= 256},
		Verdict{fmt.Sprintf("one collection with %d sessions held", sizes[1]), "≤ 20 ms of CPU more than with none", fmt.Sprintf("%.1f ms", gc), gc <= 20})
	return nil
}

func (b *Bench) jdkMemory(size int) (float64, error) {
	p, err := b.start("jdk-soft")
	if err != nil {
		return 0, err
	}
	x, err := p.do("memory %d 130", size)
	if err != nil {
		return 0, err
	}
	return x[0], p.stop()
}

// measureDesigns replays arrivals on ours and on the designs of the review.
func (b *Bench) measureDesigns(r *Report) error {
	const size = 20_480
	s := Section{
		Title: "The designs of the review",
		Text: fmt.Sprintf("A cache of %d entries with a lifetime of one hour, replayed by a clock that moves with the arrivals. A client that is not remembered is stored. Zipf: a\n", size) +
			"fixed crowd of twenty times the capacity. Returning: clients who come back within seconds (60 %) or hours (20 %) of each visit, or never. Pressure: new\n" +
			"clients in an hour (Zipf: a quarter of the arrivals), as a multiple of the capacity. Held expired: mean share of the capacity taken by expired entries.",
		Header: []string{"arrivals", "pressure", "design", "hit ratio", "held expired", "ns each", "longest put, µs"},
		File:   "cache-designs.svg",
	}
	names := []string{ours}
	for _, d := range designs.All {
		names = append(names, d.Name)
		s.Notes = append(s.Notes, fmt.Sprintf("%s: %s", d.Name, d.Note))
	}
	chart := &svg.Chart{Title: "The designs of the review", Unit: "ns of CPU time for an arrival; logarithmic"}
	for _, kind := range []string{"zipf", "returning"} {
		panel := svg.Panel{Title: kind, Log: true}
		values := map[string][]float64{}
		for _, pressure := range []int{50, 100, 300} {
			panel.Groups = append(panel.Groups, fmt.Sprintf("pressure %.1f", float64(pressure)/100))
			for _, name := range names {
				n := pick(b, 200_000, 60_000)
				x, err := b.once("replay %s %s %d %d %d", word(name), kind, size, n, pressure)
				if err != nil {
					return err
				}
				s.row(kind, float64(pressure)/100, name, fmt.Sprintf("%.4f", x[0]), fmt.Sprintf("%.2f %%", 100*x[1]), x[2], x[3]/1000)
				values[name] = append(values[name], x[2])
			}
		}
		for _, name := range names {
			panel.Series = append(panel.Series, svg.Series{Name: name, Values: values[name]})
		}
		chart.Panels = append(chart.Panels, panel)
	}
	s.Chart = chart
	r.Sections = append(r.Sections, s)
	return nil
}
