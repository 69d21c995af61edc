package cachebench

import (
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestWorker runs every command that the bench sends, at small sizes.
func TestWorker(t *testing.T) {
	for command, numbers := range map[string]int{
		"critical tlsproxy 1000 1000":            11,
		"coldread 100000":                        2,
		"critical flat_skip 1000 100":            11,
		"shares tlsproxy 2000 200 1":             36,
		"cliff fill 1000 0":                      4,
		"cliff expire 1000 1":                    4,
		"adversarial 1000 1000":                  24,
		"footprint tlsproxy 1000":                3,
		"contention tlsproxy 1000 2 1":           2,
		"contention tlsproxy,_apart 1000 2 1":    2,
		"replay insertion_order zipf 100 900 50": 4,
		"replay tlsproxy returning 100 900 300":  4,
	} {
		var out strings.Builder
		if err := Worker(strings.NewReader(command+"\n"), &out); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if got := len(strings.Fields(out.String())); got != numbers {
			t.Errorf("%s answered %q; want %d numbers", command, out.String(), numbers)
		}
	}
	for _, bad := range []string{"nothing", "prep nobody handle 10 0", "critical nobody 10 100"} {
		if err := Worker(strings.NewReader(bad+"\n"), new(strings.Builder)); err == nil {
			t.Errorf("%q was answered", bad)
		}
	}
}

// TestEveryCacheHits says that each cache that is compared does what is measured: what
// was put is there, and what was deleted is not.
func TestEveryCacheHits(t *testing.T) {
	for _, name := range append([]string{oursInline}, goCaches()...) {
		for _, keys := range []string{"handle", "int"} {
			var out strings.Builder
			in := "prep " + name + " " + keys + " 1000 3600\nfill 1000\nrun get 1000 100\n"
			if err := Worker(strings.NewReader(in), &out); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			f := strings.Fields(out.String())
			if len(f) != 5 || f[4] == "0" {
				t.Errorf("%s with keys %s: answered %q; want hits", name, keys, out.String())
			}
		}
	}
}

// A profile leads to lines of package cache, costliest first, and to their text.
func TestProfile(t *testing.T) {
	runtime.LockOSThread() // as in a worker
	defer runtime.UnlockOSThread()
	path := filepath.Join(t.TempDir(), "put.pprof")
	if _, err := profiled("handle", "put", 100_000, 1, path); err != nil {
		t.Fatal(err)
	}
	lines, err := linesOf(path, "Put")
	if err != nil || len(lines) == 0 {
		t.Fatal(lines, err)
	}
	sum := 0.0
	for i, l := range lines {
		if l.code == "" || l.line == 0 || l.file == "pages.go" || i > 0 && l.share > lines[i-1].share {
			t.Errorf("line %d is %+v", i, l)
		}
		sum += l.share
	}
	if math.Abs(sum-1) > 0.01 {
		t.Errorf("the shares come to %v", sum)
	}
	if lines, err := linesOf(path, "Get"); err != nil || len(lines) != 0 {
		t.Errorf("gets where there were none: %v, %v", lines, err)
	}
}
