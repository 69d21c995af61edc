package proxybench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run has measured.
type Report struct {
	bench   *Bench
	servers []*server
	begun   time.Time
	load    string // of the machine at the beginning
	machine []string
	lines   []line
	notes   []string
}

// line is a row with the medians of the servers.
type line struct {
	row    row
	values map[*server]result
}

func newReport(b *Bench, list []*server) *Report {
	return &Report{bench: b, servers: list, begun: time.Now(), load: loadAverage()}
}

// add takes the rounds of a row. Those with an error do not count and are told.
func (r *Report) add(row row, rounds map[*server][]result) {
	l := line{row: row, values: make(map[*server]result)}
	for _, s := range r.servers {
		good := slices.DeleteFunc(slices.Clone(rounds[s]), func(x result) bool { return x.err != nil })
		for _, x := range rounds[s] {
			if x.err != nil {
				r.notes = append(r.notes, fmt.Sprintf("%s, %s: a round does not count: %v", s.name, row.title, x.err))
			}
		}
		if len(rounds[s]) > 0 && len(good) == 0 {
			l.values[s] = result{err: errors.New("failed")}
		} else if len(good) > 0 {
			l.values[s] = median(good)
		}
	}
	r.lines = append(r.lines, l)
}

// median returns the middle value, with the middle p99.
func median(rounds []result) result {
	slices.SortFunc(rounds, func(a, b result) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	m := rounds[len(rounds)/2]
	if len(rounds)%2 == 0 {
		m.value = (m.value + rounds[len(rounds)/2-1].value) / 2
	}
	slices.SortFunc(rounds, func(a, b result) int { return int(a.p99 - b.p99) })
	m.p99 = rounds[len(rounds)/2].p99
	return m
}

// end notes what the run was made on.
func (r *Report) end() {
	took := time.Since(r.begun).Round(time.Second)
	r.machine = []string{
		fmt.Sprintf("Measured on %s in %s: %d processors (%s), Linux %s, %s; load average %s at the beginning, %s at the end.",
			r.begun.Format("2006-01-02"), took, runtime.NumCPU(), processor(), kernel(), runtime.Version(), r.load, loadAverage()),
	}
	versions := map[string]string{
		"nginx":   version("/usr/sbin/nginx", "-v"),
		"haproxy": version("/usr/sbin/haproxy", "-v"),
		"hitch":   version("/usr/sbin/hitch", "--version"),
		"caddy":   "Caddy " + caddyVersion,
	}
	var used []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if slices.ContainsFunc(r.servers, func(s *server) bool { return s.name == name }) {
			used = append(used, versions[name])
		}
	}
	if len(used) > 0 {
		r.machine = append(r.machine, "Versions: "+strings.Join(used, "; ")+".")
	}
	r.machine = append(r.machine, fmt.Sprintf("Rounds: %d, median; a round is %s of each server in turn.", r.bench.rounds, r.bench.duration))
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the name is missing
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(rest, "\t :\n")
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease") // without it the version is missing
	return strings.TrimSpace(string(text))
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // without it the figure is missing
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// header names the columns.
func (r *Report) header(first string) []string {
	cells := []string{first}
	for _, s := range r.servers {
		cells = append(cells, s.name)
	}
	return cells
}

// table returns cells: server CPU or memory for each operation.
func (r *Report) table(best func(string) string) [][]string {
	cells := [][]string{r.header("for each")}
	for _, l := range r.lines {
		row := []string{l.row.title + ", " + l.row.unit}
		for _, s := range r.servers {
			row = append(row, l.cell(s, best))
		}
		cells = append(cells, row)
	}
	return cells
}

func (l line) cell(s *server, best func(string) string) string {
	res, ok := l.values[s]
	switch {
	case !ok:
		return "–"
	case res.err != nil:
		return res.err.Error()
	case s == l.best():
		return best(figure(res.value))
	}
	return figure(res.value)
}

// best is the cheapest of the proxies; the floor is none.
func (l line) best() *server {
	var best *server
	for s, res := range l.values {
		if s.compare && res.err == nil && (best == nil || res.value < l.values[best].value) {
			best = s
		}
	}
	return best
}

// latencies returns cells: the 99th percentile of each row that has one.
func (r *Report) latencies() [][]string {
	cells := [][]string{r.header("p99, ms")}
	for _, l := range r.lines {
		row, some := []string{l.row.title}, false
		for _, s := range r.servers {
			cell := "–"
			if p99 := l.values[s].p99; p99 > 0 {
				cell, some = figure(float64(p99)/float64(time.Millisecond)), true
			}
			row = append(row, cell)
		}
		if some {
			cells = append(cells, row)
		}
	}
	return cells
}

// figure writes a number with three digits or so.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Print writes the report for a terminal; the cheapest proxy of a row has a star.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, cells := range [][][]string{r.table(func(s string) string { return s + "*" }), r.latencies()} {
		fmt.Fprintln(t)
		for _, row := range cells {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, text := range append(slices.Clone(r.machine), r.errorNotes()...) {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) errorNotes() []string {
	if len(r.notes) == 0 {
		return []string{"Errors, wrong responses, missing resumptions: none."}
	}
	return r.notes
}

// Marks in the page, between which the report stands.
const (
	beginMark = "<!-- proxies -->"
	endMark   = "<!-- /proxies -->"
)

// WriteDocs puts the report into performance.md in a directory, in place of the one
// before.
func (r *Report) WriteDocs(dir string) error {
	path := filepath.Join(dir, "performance.md")
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	page, err := splice(string(old), r.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// splice puts a text between the marks of a page, or at its end if it has none.
func splice(page, text string) (string, error) {
	text = beginMark + "\n\n" + text + "\n" + endMark + "\n"
	before, rest, ok := strings.Cut(page, beginMark)
	if !ok {
		if page == "" {
			page = "# Performance\n"
		}
		return strings.TrimRight(page, "\n") + "\n\n" + text, nil
	}
	_, after, ok := strings.Cut(rest, endMark+"\n")
	if !ok {
		return "", fmt.Errorf("%q without %q", beginMark, endMark)
	}
	return before + text + after, nil
}

const introduction = `The figure is the CPU time, user and system, that a server's whole process tree uses for one operation, on loopback, all
servers in turn. A handshake row is one connection with one request; requests on kept connections come over 8 connections,
with HTTP/2 in up to 10 streams on each; bulk is a download of 16 MiB. Idle memory is what the process tree grows by (PSS) for
each of %d connections that have made one request, after %s of rest; a remembered session is by tlsproxy's own account,
the others give sessions to their clients as tickets. ECDSA P-256, X25519, the backend an nginx that answers 13 bytes; no access log but in
tlsproxy+log. *plain-go* is ` + "`net/http`" + ` with ` + "`httputil.ReverseProxy`" + `, untuned; *floor* terminates TLS and copies bytes. Every
certificate, resumption and response is checked, of the requests on kept connections status and length.

` + "```console\n$ make bench-proxy                                      # this table: ten minutes\n$ cd bench && go run ./cmd/proxybench -quick            # a look: two minutes\n```"

func (r *Report) markdown() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## Proxies\n\n%s\n\n%s\n\n", fmt.Sprintf(introduction, r.bench.idleConns, r.bench.rest), strings.Join(r.machine, " "))
	writeTable(&b, r.table(func(s string) string { return "**" + s + "**" }))
	b.WriteString("\nTime of an operation as clients saw it, 99th percentile, in ms. It depends on the load of the machine more than on the\nserver, and on the generator, which shares the processors.\n\n")
	writeTable(&b, r.latencies())
	b.WriteString("\n")
	for _, n := range r.errorNotes() {
		fmt.Fprintf(&b, "* %s\n", n)
	}
	return b.String()
}

func writeTable(b *bytes.Buffer, cells [][]string) {
	for i, row := range cells {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
		}
	}
}
