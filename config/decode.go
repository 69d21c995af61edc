package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxValues bounds the values visited, so that aliases of aliases cannot
// multiply without end.
const maxValues = 200_000

// decoder writes a YAML node tree into a Config. It goes through the nodes
// itself, since decoding by yaml.Load stops at a duplicate key and knows
// neither paths nor near misses.
type decoder struct {
	lines    map[string]int
	problems *problems
	values   int
}

// document decodes data into c. It reports whether there was a document that
// could be decoded to its end.
func (d *decoder) document(data []byte, c *Config) bool {
	var doc yaml.Node
	if err := yaml.Load(data, &doc, yaml.WithUniqueKeys(false)); err != nil {
		line, err := syntaxError(data, err)
		d.problems.decoding(line, "", err)
		return false
	}
	root := &doc
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		d.problems.decoding(root.Line, "", errors.New("not a configuration: expected fields such as listeners and sites"))
		return false
	}
	d.value(root, "", reflect.ValueOf(c).Elem(), "")
	return d.values <= maxValues
}

// syntaxError returns the line and the message of an error of yaml.Load.
func syntaxError(data []byte, err error) (int, error) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	switch {
	case !ok && len(bytes.TrimSpace(data)) == 0, strings.Contains(err.Error(), "no documents"):
		return 0, errors.New("the file is empty: config.example.yaml shows what belongs into it")
	case strings.Contains(err.Error(), "expected single document"):
		return 0, errors.New("more than one document: remove the line --- and what does not belong here")
	case !ok:
		return 0, fmt.Errorf("not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	case tabIndents(data, e.Mark.Line):
		return e.Mark.Line, errors.New("not valid YAML: indented by a tab: use spaces")
	}
	return e.Mark.Line, fmt.Errorf("not valid YAML: %s", e.Message)
}

// tabIndents reports whether a line has a tab before its first letter.
func tabIndents(data []byte, line int) bool {
	for l := range bytes.Lines(data) {
		if line--; line == 0 {
			indent := l[:len(l)-len(bytes.TrimLeft(l, " \t"))]
			return bytes.ContainsRune(indent, '\t')
		}
	}
	return false
}

// value decodes node n, which stands at path, into v. The tag is that of the
// field, or of the list or map it is an element of.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if d.values++; d.values > maxValues {
		if d.values == maxValues+1 {
			d.problems.decoding(n.Line, path, fmt.Errorf("more than %d values, aliases included", maxValues))
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case isScalar(v.Type()):
		d.scalar(n, path, v, tag)
	case v.Type() == stringsType && n.Kind == yaml.ScalarNode:
		v.Set(reflect.MakeSlice(stringsType, 1, 1))
		d.scalar(n, path, v.Index(0), tag)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, path, v.Elem(), tag)
	case v.Kind() == reflect.Struct:
		d.structure(n, path, v)
	case v.Kind() == reflect.Map:
		d.mapping(n, path, v, tag)
	case v.Kind() == reflect.Slice:
		d.list(n, path, v, tag)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// structure decodes a mapping with the keys that v's fields allow.
func (d *decoder) structure(n *yaml.Node, path string, v reflect.Value) {
	if isNull(n) {
		return
	}
	fields := fieldsOf(v.Type())
	named := func(name string) int {
		return slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	}
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		i := named(key.Value)
		if i < 0 {
			meant := d.unknown(key, path, fields)
			// What was meant is decoded as such, so that its own errors show and
			// it is not missed, unless it is there as well.
			if i = named(meant); i < 0 || hasKey(n, meant) {
				return
			}
			at = join(path, meant)
			d.lines[at] = key.Line
		}
		d.value(value, at, v.FieldByIndex(fields[i].index), fields[i].tag)
	})
}

// unknown reports a key that is none of fields and returns the one that was
// probably meant, or "".
func (d *decoder) unknown(key *yaml.Node, path string, fields []field) (meant string) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	meant, hint := suggest(key.Value, names)
	d.problems.found = append(d.problems.found, &Error{
		File: d.problems.config.file, Line: key.Line, Path: path,
		Err: fmt.Errorf("unknown field %q: %s", clip(key.Value), hint),
	})
	return meant
}

func hasKey(n *yaml.Node, name string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

// mapping decodes a mapping with free keys.
func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if isNull(n) {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(value, at, elem, tag)
		v.SetMapIndex(reflect.ValueOf(key.Value), elem)
	})
}

// pairs calls f for each key of a mapping, and reports what is not one.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node, at string)) {
	if n.Kind != yaml.MappingNode {
		d.problems.decoding(n.Line, path, fmt.Errorf("expected fields (name: value), found %s", describe(n)))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			d.problems.decoding(key.Line, path, fmt.Errorf("expected a name before the colon, found %s", describe(key)))
			continue
		}
		at := join(path, key.Value)
		if key.Value == "<<" {
			d.problems.decoding(key.Line, path, errors.New("merge keys (<<) are not supported: write the fields out"))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.problems.decoding(key.Line, at, fmt.Errorf("duplicate: already on line %d", line))
			continue
		}
		seen[key.Value] = key.Line
		d.lines[at] = key.Line
		f(key, value, at)
	}
}

// list decodes a sequence.
func (d *decoder) list(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problems.decoding(n.Line, path, fmt.Errorf("expected a list ([a, b], or a line with - for each), found %s", describe(n)))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		if isNull(item) {
			d.problems.decoding(item.Line, at, errors.New("empty: give it a value or remove it"))
			continue
		}
		d.value(item, at, v.Index(i), tag)
	}
}

// scalar decodes a single value.
func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	var err error
	switch {
	case isNull(n):
		err = errors.New("empty: give it a value or remove the line")
	case n.Kind != yaml.ScalarNode:
		err = fmt.Errorf("expected %s, found %s", wanted(v.Type()), describe(n))
	default:
		err = setScalar(v, n.Value, tag)
	}
	if err != nil {
		d.problems.decoding(n.Line, path, err)
	}
}

// join appends a key to a path.
func join(path, key string) string {
	if strings.ContainsAny(key, ".[]\" ") || key == "" {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe says what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields (name: value)"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if isNull(n) {
			return "nothing"
		}
		return strconv.Quote(clip(n.Value))
	}
	return "something else"
}
