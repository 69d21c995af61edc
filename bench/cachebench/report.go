package cachebench

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/tlsproxy/tlsproxy/bench/cachebench/svg"
)

// A Report is what a run has measured.
type Report struct {
	Machine  []string // lines about where and how
	Verdicts []Verdict
	Sections []Section
}

// A Verdict compares a figure with its target.
type Verdict struct {
	What     string
	Target   string
	Measured string
	Met      bool
}

// A Section is one measurement: a table, what it says, and a chart.
type Section struct {
	Title  string
	Text   string // how it was measured
	Header []string
	Rows   [][]string
	Notes  []string
	Chart  *svg.Chart
	File   string // of the chart
}

func (s *Section) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case float64:
			row[i] = figure(c)
		default:
			row[i] = fmt.Sprint(c)
		}
	}
	s.Rows = append(s.Rows, row)
}

// figure writes a number with three digits or so.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Print writes the report for a terminal.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, s := range r.Sections {
		fmt.Fprintf(t, "\n%s\n", strings.ToUpper(s.Title))
		fmt.Fprintln(t, strings.Join(s.Header, "\t"))
		for _, row := range s.Rows {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		for _, n := range s.Notes {
			fmt.Fprintln(t, n)
		}
	}
	if len(r.Verdicts) > 0 {
		fmt.Fprintf(t, "\nTARGETS\n")
	}
	for _, v := range r.Verdicts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.What, v.Target, v.Measured, met(v.Met))
	}
	return t.Flush()
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "not met"
}

// Markers in the page, between which the report is written.
const (
	beginMark = "<!-- cachebench: begin; written by bench/cmd/cachebench -->"
	endMark   = "<!-- cachebench: end -->"
)

// WriteDocs puts the report into performance.md in a directory, in place of the one
// before, and its charts into the directory performance beside it.
func (r *Report) WriteDocs(dir string) error {
	charts := filepath.Join(dir, "performance")
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return err
	}
	for _, s := range r.Sections {
		if s.Chart != nil {
			if err := os.WriteFile(filepath.Join(charts, s.File), []byte(s.Chart.Draw()), 0o644); err != nil {
				return err
			}
		}
	}
	page := filepath.Join(dir, "performance.md")
	old, err := os.ReadFile(page)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text, err := splice(string(old), r.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// splice puts a text between the markers of a page, or at its end if it has none.
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

func (r *Report) markdown() string {
	var b bytes.Buffer
	b.WriteString("## The cache\n\n")
	for _, line := range r.Machine {
		b.WriteString(line + "\n")
	}
	if len(r.Verdicts) > 0 {
		b.WriteString("\n### Targets\n\n")
		table(&b, []string{"", "target", "measured", ""}, len(r.Verdicts), func(i int) []string {
			v := r.Verdicts[i]
			return []string{v.What, v.Target, v.Measured, met(v.Met)}
		})
	}
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", s.Title, s.Text)
		if s.Chart != nil {
			fmt.Fprintf(&b, "![%s](performance/%s)\n\n", s.Chart.Title, s.File)
		}
		table(&b, s.Header, len(s.Rows), func(i int) []string { return s.Rows[i] })
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "\n* %s", n)
		}
		if len(s.Notes) > 0 {
			b.WriteString("\n")
		}
	}
	return b.String()
}

func table(b *bytes.Buffer, header []string, n int, row func(int) []string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for i := range n {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row(i), " | "))
	}
}
