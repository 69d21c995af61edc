package tlsproxy_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// markdown lists the documents of the repository.
func markdown(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	return files
}

// TestLinks: what a document links to in the repository is there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	for _, file := range markdown(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			}
		}
	}
}

var updateIndex = flag.Bool("update", false, "write the index of docs/adr")

// TestDecisionsAreListed: the index of docs/adr names every record by its title.
// -update writes it.
func TestDecisionsAreListed(t *testing.T) {
	const index = "docs/adr/README.md"
	data, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| | |\n|---|---|\n"
	intro, _, ok := strings.Cut(string(data), head)
	if !ok {
		t.Fatalf("%s has no table", index)
	}
	want := intro + head
	records, err := filepath.Glob("docs/adr/[0-9]*.md")
	if err != nil || len(records) == 0 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, record := range records {
		name := filepath.Base(record)
		number, _, _ := strings.Cut(name, "-")
		want += "| [" + number + "](" + name + ") | " + recordTitle(t, record, number) + " |\n"
	}
	if *updateIndex {
		if err := os.WriteFile(index, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(data) != want {
		t.Errorf("%s does not list the records there are: go test . -update", index)
	}
}

func recordTitle(t *testing.T, record, number string) string {
	t.Helper()
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`^# ` + number + `: (.*)\n`).FindStringSubmatch(string(data))
	if title == nil {
		t.Fatalf("%s does not begin with \"# %s: \" and a title", record, number)
	}
	return title[1]
}
