package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestEveryFieldIsUsed: a field that the command never reads would be a promise
// that nobody keeps.
func TestEveryFieldIsUsed(t *testing.T) {
	files, err := filepath.Glob("../cmd/tlsproxy/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of the command: %v", err)
	}
	used := map[string]bool{
		"Set": true, "Remove": true, // Headers is converted as a whole
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				used[s.Sel.Name] = true
			}
			return true
		})
	}
	seen := make(map[reflect.Type]bool)
	var walk func(reflect.Type)
	walk = func(st reflect.Type) {
		switch st.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(st.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[st] || isScalar(st) {
			return
		}
		seen[st] = true
		for f := range st.Fields() {
			if f.IsExported() && !f.Anonymous && !used[f.Name] {
				t.Errorf("%s.%s is read nowhere in cmd/tlsproxy", st.Name(), f.Name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Config]())
}
