package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// maxValues bounds the values visited, so that aliases of aliases cannot
// multiply without end.
const maxValues = 200_000

// decoder writes a YAML node tree into a Config. It goes through the nodes
// itself, since decoding by yaml.Load stops at a duplicate key and knows
// neither paths nor near misses.
type decoder struct {
	lines  map[string]int
	report func(line int, path string, err error)
	values int
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	reuseType    = reflect.TypeFor[ReuseWindow]()
	sizeType     = reflect.TypeFor[Size]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	stringsType  = reflect.TypeFor[Strings]()
)

// document decodes data into c. It reports whether there was a document at all.
func (d *decoder) document(data []byte, c *Config) bool {
	var doc yaml.Node
	if err := yaml.Load(data, &doc, yaml.WithUniqueKeys(false)); err != nil {
		line, err := syntaxError(err)
		d.report(line, "", err)
		return false
	}
	root := &doc
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		d.report(root.Line, "", errors.New("not a configuration: expected fields such as listeners and sites"))
		return false
	}
	d.value(root, "", reflect.ValueOf(c).Elem(), "")
	return true
}

// syntaxError returns the line and the message of an error of yaml.Load.
func syntaxError(err error) (int, error) {
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		return e.Mark.Line, fmt.Errorf("not valid YAML: %s", e.Message)
	}
	return 0, fmt.Errorf("not valid YAML: %w", err)
}

// value decodes node n, which stands at path, into v. The tag is that of the
// field, or of the list or map it is an element of.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, tag reflect.StructTag) {
	if d.values++; d.values > maxValues {
		if d.values == maxValues+1 {
			d.report(n.Line, path, fmt.Errorf("more than %d values, aliases included", maxValues))
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case v.Type() == prefixType:
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
	default:
		d.scalar(n, path, v, tag)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// structure decodes a mapping with the keys that v's fields allow.
func (d *decoder) structure(n *yaml.Node, path string, v reflect.Value) {
	if isNull(n) {
		return
	}
	fields := fieldsOf(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if i < 0 {
			d.report(key.Line, at, unknownField(key.Value, fields))
			return
		}
		d.value(value, at, v.FieldByIndex(fields[i].index), fields[i].tag)
	})
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
		d.report(n.Line, path, fmt.Errorf("expected fields (name: value), found %s", describe(n)))
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			d.report(key.Line, path, fmt.Errorf("expected a name before the colon, found %s", describe(key)))
			continue
		}
		at := join(path, key.Value)
		if key.Value == "<<" {
			d.report(key.Line, at, errors.New("merge keys are not supported: write the fields out"))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.report(key.Line, at, fmt.Errorf("duplicate: already on line %d", line))
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
		d.report(n.Line, path, fmt.Errorf("expected a list (- item, or [item, item]), found %s", describe(n)))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		if isNull(item) {
			d.report(item.Line, at, errors.New("empty: give it a value or remove it"))
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
		d.report(n.Line, path, err)
	}
}

// setScalar parses text as v's type wants it, within the bounds of tag.
func setScalar(v reflect.Value, text string, tag reflect.StructTag) error {
	if words := tag.Get("words"); words != "" && v.CanInt() || v.CanFloat() {
		if i := slices.Index(strings.Split(words, ","), text); i >= 0 && text != "" {
			return setNumber(v, float64(-1-i))
		}
	}
	switch {
	case v.Type() == prefixType:
		p, err := parsePrefix(text)
		v.Set(reflect.ValueOf(p))
		return err
	case v.Kind() == reflect.String:
		return setString(v, text)
	case v.Kind() == reflect.Bool:
		b, err := parseBool(text)
		v.SetBool(b)
		return err
	}
	x, err := parseNumber(v.Type(), text)
	if err != nil {
		return withWords(err, tag)
	}
	if err := checkBounds(v.Type(), x, text, tag); err != nil {
		return err
	}
	return setNumber(v, x)
}

func setNumber(v reflect.Value, x float64) error {
	if v.CanFloat() {
		v.SetFloat(x)
	} else {
		v.SetInt(int64(x))
	}
	return nil
}

// setString sets a string; one of a closed set must be in it.
func setString(v reflect.Value, text string) error {
	if c, ok := v.Interface().(interface{ choices() []string }); ok {
		choices := c.choices()
		if v.Type() == reflect.TypeFor[Switch]() {
			switch text {
			case "true", "yes":
				text = "on"
			case "false", "no":
				text = "off"
			}
		}
		if text != "" && !slices.Contains(choices, text) {
			return fmt.Errorf("%q is not known: %s", text, suggest(text, choices))
		}
	}
	v.SetString(text)
	return nil
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true", "on", "yes":
		return true, nil
	case "false", "off", "no":
		return false, nil
	}
	return false, fmt.Errorf("expected true or false, found %q", text)
}

func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a network: write it like 10.0.0.0/8, fd00::/8 or 192.0.2.1", text)
	}
	if m := p.Masked(); m != p {
		return p, fmt.Errorf("%q has bits beyond its mask: write %s, or %s for the one address", text, m, p.Addr())
	}
	return p, nil
}

// parseNumber parses an integer, a fraction, a duration or a size.
func parseNumber(t reflect.Type, text string) (float64, error) {
	switch {
	case t == durationType, t == reuseType:
		x, err := time.ParseDuration(text)
		if err == nil {
			return float64(x), nil
		}
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return 0, fmt.Errorf("%q lacks a unit: write it like %ss or %sm", text, text, text)
		}
		return 0, fmt.Errorf("%q is not a duration: write it like 500ms, 10s, 5m or 24h", text)
	case t == sizeType:
		return parseSize(text)
	case t.Kind() == reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x-x != 0 {
			return 0, fmt.Errorf("%q is not a number", text)
		}
		return x, nil
	}
	x, err := strconv.ParseInt(text, 10, 48)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return float64(x), nil
}

var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

func parseSize(text string) (float64, error) {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(text[len(number):])
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || x-x != 0 {
		return 0, fmt.Errorf("%q is not a size: write it like 512B, 64KiB or 10MiB", text)
	}
	for _, u := range units {
		if u.suffix == unit {
			return float64(int64(x * u.bytes)), nil
		}
	}
	if x == 0 && unit == "" {
		return 0, nil
	}
	return 0, fmt.Errorf("%q lacks a unit: write it like %sB, %sKiB or %sMiB", text, number, number, number)
}

// checkBounds applies the tags min and max; zero is the default and within any.
func checkBounds(t reflect.Type, x float64, text string, tag reflect.StructTag) error {
	if x == 0 {
		return nil
	}
	if low := tag.Get("min"); low != "" || x < 0 {
		least, _ := parseNumber(t, low)
		if x < least {
			return withWords(fmt.Errorf("%s is too small: the least is %s", text, bound(low)), tag)
		}
	}
	if high := tag.Get("max"); high != "" {
		if most, _ := parseNumber(t, high); x > most {
			return withWords(fmt.Errorf("%s is too large: the most is %s", text, high), tag)
		}
	}
	return nil
}

func bound(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// withWords adds the words that a field takes beside numbers.
func withWords(err error, tag reflect.StructTag) error {
	if words := tag.Get("words"); words != "" {
		return fmt.Errorf("%w (or %s)", err, strings.ReplaceAll(words, ",", " or "))
	}
	return err
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

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

// wanted names what a type is written as.
func wanted(t reflect.Type) string {
	switch {
	case t == prefixType:
		return "a network"
	case t == durationType, t == reuseType:
		return "a duration"
	case t == sizeType:
		return "a size"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	}
	return "a number"
}
