package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// absoluteFiles makes the names of files below v absolute, so that what is said
// of one that is missing says where it was looked for. The fields are tagged.
func absoluteFiles(v reflect.Value, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			absoluteFiles(v.Elem(), tag)
		}
	case reflect.Slice:
		for i := range v.Len() {
			absoluteFiles(v.Index(i), tag)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(k))
			absoluteFiles(elem, tag)
			v.SetMapIndex(k, elem)
		}
	case reflect.Struct:
		if isScalar(v.Type()) {
			return
		}
		for _, f := range fieldsOf(v.Type()) {
			absoluteFiles(v.FieldByIndex(f.index), f.tag)
		}
	case reflect.String:
		if tag.Get("file") != "" && v.Len() > 0 {
			v.SetString(absolute(v.String()))
		}
	}
}

// absolute puts the working directory before a relative path. It leaves ".." in
// it to the kernel, since what is before may be a symbolic link.
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}
