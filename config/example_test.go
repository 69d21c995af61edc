package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const exampleFile = "../config.example.yaml"

// commented is a line that shows a field without setting it; prose has a space
// after the #.
var commented = regexp.MustCompile(`^(\s*)#([^ #].*)$`)

// fullExample returns the example with every field set, and the lines that had
// a # in front of the field.
func fullExample(t *testing.T) (text string, shown map[int]string) {
	t.Helper()
	data, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	shown = make(map[int]string)
	for i, line := range lines {
		if m := commented.FindStringSubmatch(line); m != nil {
			lines[i] = m[1] + m[2]
			shown[i+1] = lines[i]
		}
	}
	return strings.Join(lines, "\n"), shown
}

// decodeOnly decodes without defaults and validation, which would reject an
// entry that is every kind of certificate at once.
func decodeOnly(t *testing.T, text string) *Config {
	t.Helper()
	c := &Config{file: exampleFile, lines: make(map[string]int)}
	p := &problems{config: c, broken: make(map[string]bool)}
	d := &decoder{lines: c.lines, problems: p}
	if d.document([]byte(text), c); len(p.found) > 0 {
		t.Fatal(p.found.sorted())
	}
	return c
}

func TestExampleRunsAsItIs(t *testing.T) {
	c, err := Load(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Listeners[0].Address; got != "127.0.0.1:8443" {
		t.Errorf("listener = %q", got)
	}
	if got := c.HTTP.Address; got != "127.0.0.1:8080" {
		t.Errorf("http = %q", got)
	}
	if got := c.Admin.Address; got != DefaultAdminAddress {
		t.Errorf("admin = %q", got)
	}
	if got := c.Certificates[0].Local.Hosts[0]; got != "localhost" {
		t.Errorf("local host = %q", got)
	}
	if got := c.Upstreams["echo"].Backends; !slices.Equal(got, []string{"builtin:echo"}) {
		t.Errorf("backends = %q", got)
	}
}

func TestExampleDocumentsEveryField(t *testing.T) {
	text, _ := fullExample(t)
	c := decodeOnly(t, text)
	index := regexp.MustCompile(`\[\d+\]`)
	documented := make(map[string]bool)
	for path := range c.lines {
		path = index.ReplaceAllString(path, "[]")
		documented[strings.Replace(path, "upstreams.echo.", "upstreams.*.", 1)] = true
	}
	walkSchema(reflect.TypeFor[Config](), "", func(path string, _ reflect.Type, _ reflect.StructTag) {
		if !documented[path] {
			t.Errorf("%s: not in %s", path, exampleFile)
		}
	})
}

// TestExampleTellsTrueDefaults checks that every line which shows a default
// shows the one that an absent field gets.
func TestExampleTellsTrueDefaults(t *testing.T) {
	text, shown := fullExample(t)
	full := decodeOnly(t, text)
	defaults := schemaDefaults()
	checked := 0
	for path, line := range full.lines {
		text, ok := shown[line]
		want, isField := defaults[generalPath(path)]
		if !ok || !isField {
			continue
		}
		got := valueAt(t, full, path)
		example := strings.HasSuffix(text, "# example")
		switch {
		case example && want.hasDefault:
			t.Errorf("line %d: %s has the default %s: show it instead of an example", line, path, want.text)
		case !example && !reflect.DeepEqual(got, want.value):
			t.Errorf("line %d: %s shows %v as its default, which is %v", line, path, got, want.value)
		}
		checked++
	}
	if checked < 100 {
		t.Errorf("%d fields checked: the test does not see the file's fields any more", checked)
	}
}

// TestAbsentFieldsGetTheDefaultsShown runs the defaults that the example shows
// through the parser: a file that sets them all differs in nothing from one that
// sets none.
func TestAbsentFieldsGetTheDefaultsShown(t *testing.T) {
	short, err := Load(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	long, err := Parse(exampleFile, []byte(defaultsSet(string(data))))
	if err != nil {
		t.Fatal(err)
	}
	if len(long.lines) < len(short.lines)+60 {
		t.Errorf("%d values set, %d in the example: the test does not set the defaults any more", len(long.lines), len(short.lines))
	}
	short.lines, long.lines = nil, nil
	if !reflect.DeepEqual(short, long) {
		t.Errorf("with the defaults left out:\n%+v\nwith the defaults set:\n%+v", short, long)
	}
}

// defaultsSet sets every default that the example shows, but not the examples
// and what stands in sections that are errors or changes by themselves.
func defaultsSet(example string) string {
	pure := []string{
		"tls/tls", "sessions/sessions", "ocsp/ocsp", "ocsp/client", "sites/tls", "timeouts/timeouts", "limits/limits",
		"shutdown/shutdown", "admin/ready", "log/log", "access_log/access_log",
	}
	var out []string
	top, skip := "", -1
	for line := range strings.SplitSeq(example, "\n") {
		if m := topLevel.FindStringSubmatch(line); m != nil {
			top = m[1]
		}
		m := commented.FindStringSubmatch(line)
		if m == nil {
			if field := strings.TrimSpace(line); field != "" && field[0] != '#' {
				skip = -1
			}
			out = append(out, line)
			continue
		}
		depth := len(m[1])
		if skip >= 0 && depth > skip {
			continue
		}
		skip = -1
		name, isSection := strings.CutSuffix(m[2], ":")
		switch {
		case strings.HasPrefix(name, "- "), isSection && !slices.Contains(pure, top+"/"+name):
			skip = depth
		case !strings.HasSuffix(m[2], "# example"):
			out = append(out, m[1]+m[2])
		}
	}
	return strings.Join(out, "\n")
}

var topLevel = regexp.MustCompile(`^#?([a-z_]+):`)
