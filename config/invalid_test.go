package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the expected errors into testdata/invalid")

// TestInvalid parses every file in testdata/invalid. The lines "# want:" at the
// file's end are its errors, all of them, in order and without the file's name.
// A new case is a new file; -update writes its errors, to be read before they
// are committed.
func TestInvalid(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "/var/lib/tlsproxy")
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, want := cutWant(string(data))
			got := invalidErrors(t, text)
			if *update {
				writeWant(t, file, text, got)
				return
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

const wantPrefix = "# want: "

// cutWant separates the expected errors from the text before them.
func cutWant(data string) (text string, want []string) {
	text, rest, _ := strings.Cut(data, wantPrefix)
	for line := range strings.Lines(wantPrefix + rest) {
		if line, ok := strings.CutPrefix(line, wantPrefix); ok && line != "" {
			want = append(want, strings.TrimSuffix(line, "\n"))
		}
	}
	return text, want
}

func writeWant(t *testing.T, file, text string, got []string) {
	t.Helper()
	for _, line := range got {
		text += wantPrefix + line + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func invalidErrors(t *testing.T, text string) []string {
	t.Helper()
	c, err := Parse("f", []byte(text))
	if c != nil || err == nil {
		t.Fatalf("Parse = %v, %v; want an error and no configuration", c, err)
	}
	es, ok := errors.AsType[Errors](err)
	if !ok {
		t.Fatalf("%T is not an Errors", err)
	}
	var got []string
	for _, e := range es {
		got = append(got, strings.TrimPrefix(e.Error(), "f:"))
	}
	return got
}
