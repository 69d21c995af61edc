package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// walkSchema calls f for every field of the schema, with [] for the elements of
// lists and * for those of maps of structures.
func walkSchema(t reflect.Type, path string, f func(path string, t reflect.Type, tag reflect.StructTag)) {
	switch {
	case t.Kind() == reflect.Pointer:
		walkSchema(t.Elem(), path, f)
	case t.Kind() == reflect.Slice && !isScalar(t.Elem()):
		walkSchema(t.Elem(), path+"[]", f)
	case t.Kind() == reflect.Map && !isScalar(t.Elem()):
		walkSchema(t.Elem(), path+".*", f)
	case t.Kind() == reflect.Struct && !isScalar(t):
		for _, field := range fieldsOf(t) {
			sub := t.FieldByIndex(field.index).Type
			at := strings.TrimPrefix(path+"."+field.name, ".")
			f(at, sub, field.tag)
			walkSchema(sub, at, f)
		}
	}
}

type schemaDefault struct {
	hasDefault bool
	text       string
	value      any
}

// schemaDefaults returns the default of every field that is not a section.
func schemaDefaults() map[string]schemaDefault {
	out := make(map[string]schemaDefault)
	walkSchema(reflect.TypeFor[Config](), "", func(path string, t reflect.Type, tag reflect.StructTag) {
		if t.Kind() == reflect.Slice && !isScalar(t.Elem()) || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer || t.Kind() == reflect.Struct && !isScalar(t) {
			return
		}
		v := reflect.New(t).Elem()
		fillField(v, tag)
		text := tag.Get("default")
		out[path] = schemaDefault{hasDefault: text != "", text: text, value: v.Interface()}
	})
	return out
}

var elementIndex = regexp.MustCompile(`\[\d+\]`)

// generalPath is a path without positions and names.
func generalPath(path string) string {
	path = elementIndex.ReplaceAllString(path, "[]")
	if rest, ok := strings.CutPrefix(path, "upstreams."); ok {
		if _, field, ok := strings.Cut(rest, "."); ok {
			return "upstreams.*." + field
		}
	}
	return path
}

// valueAt returns the value at a path of a configuration.
func valueAt(t *testing.T, c *Config, path string) any {
	t.Helper()
	v := reflect.ValueOf(c).Elem()
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Slice:
			i, err := strconv.Atoi(step)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			v = v.Index(i)
		case reflect.Map:
			v = v.MapIndex(reflect.ValueOf(step))
		default:
			fields := fieldsOf(v.Type())
			i := slices.IndexFunc(fields, func(f field) bool { return f.name == step })
			if i < 0 {
				t.Fatalf("%s: no field %q", path, step)
			}
			v = v.FieldByIndex(fields[i].index)
		}
	}
	return v.Interface()
}

// TestSchema checks what the decoder takes for granted of every field.
func TestSchema(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	walkSchema(reflect.TypeFor[Config](), "", func(path string, ft reflect.Type, tag reflect.StructTag) {
		key, _, _ := strings.Cut(tag.Get("yaml"), ",")
		if !name.MatchString(key) {
			t.Errorf("%s: name %q", path, key)
		}
		v := reflect.New(ft).Elem()
		fillField(v, tag) // panics on a default that does not parse
		if tag.Get("default") != "" && v.IsZero() {
			t.Errorf("%s: the default %q is zero, which means default", path, tag.Get("default"))
		}
		for _, key := range []string{"min", "max"} {
			if bound := tag.Get(key); bound != "" {
				if _, err := parseNumber(ft, bound); err != nil {
					t.Errorf("%s: %s: %v", path, key, err)
				}
			}
		}
		if tag.Get("words") != "" && !v.CanInt() && !v.CanFloat() {
			t.Errorf("%s: words on a %s", path, ft)
		}
	})
}
