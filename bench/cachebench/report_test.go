package cachebench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/bench/cachebench/svg"
)

// TestWriteDocs says that a report replaces the one before and leaves the rest of the
// page alone.
func TestWriteDocs(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(page, []byte("# Performance\n\nBefore.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := func(value float64) *Report {
		s := Section{Title: "One", Header: []string{"a", "b"}, Chart: &svg.Chart{Title: "c"}, File: "one.svg"}
		s.row("x", value)
		return &Report{Sections: []Section{s}, Verdicts: []Verdict{{"w", "≤ 1", "2", false}}}
	}
	if err := report(1).WriteDocs(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, append(text, "After.\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report(22.22).WriteDocs(dir); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Before.", "After.", "| x | 22.2 |", "| w | ≤ 1 | 2 | not met |", "performance/one.svg"} {
		if strings.Count(string(text), want) != 1 {
			t.Errorf("%q is not once in the page:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "1.00") {
		t.Error("the report before is still there")
	}
	if _, err := os.Stat(filepath.Join(dir, "performance", "one.svg")); err != nil {
		t.Error(err)
	}
}

func TestSpliceRefusesHalfAMark(t *testing.T) {
	if _, err := splice("# P\n"+beginMark+"\nhalf", "text"); err == nil {
		t.Error("a page without the end mark was spliced")
	}
}
