package cachebench

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// profiled runs rounds of one operation on ours for so many seconds of CPU time, and
// writes where that went to a file.
func profiled(keys, op string, size, seconds int, path string) (string, error) {
	var prepared *worker
	w := &worker{}
	if _, err := w.command([]string{"prep", ours, keys, fmt.Sprint(size), "86400"}, &prepared); err != nil {
		return "", err
	}
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return "", err
	}
	const n = 100_000
	for end := threadCPU() + time.Duration(seconds)*time.Second; threadCPU() < end; {
		prepared.run(op, n, size/2)
		if op == "delete" {
			prepared.fill(n)
		}
	}
	pprof.StopCPUProfile()
	return "ok", f.Close()
}

// A lineShare is a line of code and the share of the time that was spent there.
type lineShare struct {
	file  string // its base name
	line  int64
	share float64
	code  string
}

// linesOf returns the lines where the calls of a method of the cache spend their
// time, the costliest first.
func linesOf(path, method string) ([]lineShare, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	times := map[profile.Line]int64{}
	total := int64(0)
	for _, s := range p.Sample {
		if at, ok := within(s, "."+method); ok {
			times[at] += s.Value[1]
			total += s.Value[1]
		}
	}
	byPlace := map[string]*lineShare{}
	for at, t := range times {
		place := fmt.Sprintf("%s:%d", at.Function.Filename, at.Line)
		if byPlace[place] == nil {
			byPlace[place] = &lineShare{filepath.Base(at.Function.Filename), at.Line, 0, sourceLine(at.Function.Filename, at.Line)}
		}
		byPlace[place].share += float64(t) / float64(total)
	}
	var lines []lineShare
	for _, l := range byPlace {
		lines = append(lines, *l)
	}
	slices.SortFunc(lines, func(a, b lineShare) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return lines, nil
}

// within returns the line of package cache where a sample was taken, if that was in a
// call of a method of the cache. What only computes an address says nothing: the line
// that wants it counts.
func within(s *profile.Sample, method string) (at profile.Line, ok bool) {
	for _, loc := range s.Location {
		for _, l := range loc.Line {
			name := l.Function.Name
			if !strings.Contains(name, "/tlsproxy/cache.") {
				continue
			}
			if !ok && !strings.HasSuffix(l.Function.Filename, "/pages.go") {
				at, ok = l, true
			}
			if strings.Contains(name, ".(*Cache") && strings.HasSuffix(name, method) {
				return at, ok
			}
		}
	}
	return at, false
}

// sourceLine returns a line of a file, or "" where the source is not at hand.
func sourceLine(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for i := int64(1); lines.Scan(); i++ {
		if i == n {
			return strings.TrimSpace(lines.Text())
		}
	}
	return ""
}

// coldRead returns the time in ns of a read of a cache line that no cache of the
// processor holds, each waiting for the one before, among so many bytes.
func coldRead(size int) string {
	const line = 64
	n := size / line
	words := make([]uint64, size/8) // the first word of each line leads to the next
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	random := uint64(1)
	for i := n - 1; i > 0; i-- { // one cycle through all of them
		random = mix(random)
		j := int(random % uint64(i))
		order[i], order[j] = order[j], order[i]
	}
	for i := range order {
		words[uint64(i)*line/8] = uint64(order[i])
	}
	const reads = 2_000_000
	at := uint64(0)
	t := threadCPU()
	for range reads {
		at = words[at*line/8]
	}
	took := threadCPU() - t
	return fmt.Sprintf("%.1f %d", float64(took)/reads, at&1) // at is read, so that it is computed
}
