package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

const referenceFile = "../docs/configuration.md"

// TestReference compares the list of fields in the documentation with the
// schema; -update writes it.
func TestReference(t *testing.T) {
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(data), "<!-- fields -->\n")
	_, tail, ok2 := strings.Cut(rest, "<!-- /fields -->")
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks around the list of fields", referenceFile)
	}
	want := head + "<!-- fields -->\n" + reference() + "<!-- /fields -->" + tail
	if *update {
		if err := os.WriteFile(referenceFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(data) != want {
		t.Errorf("%s does not list the fields there are: go test ./config -update", referenceFile)
	}
}

// reference is a table of all fields that are not sections.
func reference() string {
	var b strings.Builder
	b.WriteString("| field | value | default |\n|---|---|---|\n")
	walkSchema(reflect.TypeFor[Config](), "", func(path string, ft reflect.Type, tag reflect.StructTag) {
		if kind := describeType(ft, tag); kind != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, kind, describeDefault(ft, tag))
		}
	})
	return b.String()
}

// describeType says what a field takes, "" for sections.
func describeType(ft reflect.Type, tag reflect.StructTag) string {
	var kind string
	switch {
	case ft == stringsType:
		return "text, or list of texts"
	case ft.Kind() == reflect.Slice && isScalar(ft.Elem()):
		return "list of " + strings.TrimPrefix(wanted(ft.Elem()), "a ") + "s"
	case ft.Kind() == reflect.Map && isScalar(ft.Elem()):
		return "text for each name"
	case !isScalar(ft):
		return ""
	case ft.Kind() == reflect.String:
		if c, ok := reflect.TypeAssert[interface{ choices() []string }](reflect.New(ft).Elem()); ok {
			return "`" + strings.Join(c.choices(), "`, `") + "`"
		}
		return "text"
	default:
		kind = strings.TrimPrefix(wanted(ft), "a ")
	}
	low, high := tag.Get("min"), tag.Get("max")
	switch {
	case low != "" && high != "":
		kind += fmt.Sprintf(" from %s to %s", low, high)
	case low != "":
		kind += " from " + low
	case high != "":
		kind += " up to " + high
	}
	if words := tag.Get("words"); words != "" {
		kind += ", or `" + strings.ReplaceAll(words, ",", "`, `") + "`"
	}
	return kind
}

func describeDefault(ft reflect.Type, tag reflect.StructTag) string {
	if text := tag.Get("default"); text != "" {
		return "`" + text + "`"
	}
	if ft.Kind() == reflect.Bool {
		return "`false`"
	}
	return ""
}

// TestDocumentedSnippets parses every YAML block of the documentation, with
// what it leaves out added.
func TestDocumentedSnippets(t *testing.T) {
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	rest := map[string]string{
		"listeners":    "listeners: [{address: ':8443'}]\n",
		"certificates": "certificates: [{cert: /c, key: /k}]\n",
		"sites":        "sites: [{hosts: [a.example.com], routes: [{upstream: web}]}]\n",
		"upstreams":    "upstreams: {web: {backends: ['http://127.0.0.1:1']}, internal: {backends: ['http://127.0.0.1:2']}}\n",
	}
	blocks := strings.Split(string(data), "```yaml\n")[1:]
	if len(blocks) < 5 {
		t.Errorf("%d blocks found", len(blocks))
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		for name, section := range rest {
			if !strings.Contains("\n"+text, "\n"+name+":") {
				text += section
			}
		}
		if _, err := Parse("snippet", []byte(text)); err != nil {
			t.Errorf("%v\nin:\n%s", err, text)
		}
	}
}
