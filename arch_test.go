// Package tlsproxy_test holds the rules of the whole module: which package may
// import which, and who may touch which library. ARCHITECTURE.md explains them.
package tlsproxy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tlsproxy/tlsproxy/"

// arrows is the import graph of the product's own packages, tests left out, no
// arrow more and none less. A new arrow is a decision: add it here with a record
// in docs/adr.
var arrows = map[string][]string{
	"admin": {"certs", "front", "internal/memwatch", "ocsp", "session", "upstream"},
	"cache": {},
	"certs": {"internal/filelinks", "internal/pki"},
	// clientauth checks client certificates; it meets front and ocsp at
	// function types.
	"clientauth": {"internal/filelinks"},
	"cmd/tlsproxy": {
		"admin", "cache", "certs", "clientauth", "config", "front", "internal/memwatch", "internal/pki",
		"internal/probe", "metrics", "ocsp", "proxy", "session", "store", "upstream",
	},
	"config":             {},
	"front":              {"cache", "session"}, // cache: the bounded table of rate limiters
	"internal/filelinks": {},
	"internal/memnet":    {},
	"internal/memwatch":  {},
	"internal/pki":       {},
	"internal/probe":     {},
	"e2e":                {},
	"internal/testtool":  {},
	"metrics":            {"cache", "certs", "front", "internal/memwatch", "ocsp", "proxy", "session", "store", "upstream"},
	"ocsp":               {"cache"},
	"proxy":              {"upstream"},
	"session":            {"cache"},
	"store":              {},
	"upstream":           {},
}

// owners names the packages that import a library, so that a change of library
// stays a change of one package.
var owners = map[string][]string{
	"github.com/caddyserver/certmagic":    {"certs", "store"},
	"github.com/fsnotify/fsnotify":        {"certs", "clientauth"},
	"github.com/libdns/libdns":            {"certs"},
	"github.com/libdns/rfc2136":           {"certs"},
	"github.com/mholt/acmez/v3":           {"certs"},
	"github.com/pires/go-proxyproto":      {"front"},
	"github.com/prometheus/client_golang": {"metrics"},
	"github.com/redis/go-redis/v9":        {"store"},
	"github.com/youmark/pkcs8":            {"certs"},
	"go.uber.org/zap":                     {"certs"},
	"go.yaml.in/yaml/v4":                  {"config"},
	"golang.org/x/crypto/ocsp":            {"internal/pki", "ocsp"},
	"gopkg.in/yaml.v3":                    {},
	"software.sslmate.com/src/go-pkcs12":  {"certs"},
}

// sourceFile is one parsed non-test file and the package directory it is in.
type sourceFile struct {
	dir, path string
	ast       *ast.File
}

// sources parses every non-test Go file of this module. It reads files rather
// than asking the go command, whose answer the test cache would not notice
// changing.
func sources(t *testing.T, mode parser.Mode) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bench" || name == "tools" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		if err != nil {
			return err
		}
		files = append(files, sourceFile{filepath.ToSlash(filepath.Dir(path)), path, file})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files found: the test runs in the wrong directory")
	}
	return files
}

func imports(t *testing.T, f sourceFile) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestImportGraph(t *testing.T) {
	used := make(map[string]map[string]bool)
	for _, f := range sources(t, parser.ImportsOnly) {
		if used[f.dir] == nil {
			used[f.dir] = make(map[string]bool)
		}
		if _, known := arrows[f.dir]; !known {
			t.Errorf("%s: package %s is not in the import graph of this test", f.path, f.dir)
			continue
		}
		for _, path := range imports(t, f) {
			own, ok := strings.CutPrefix(path, module)
			if ok && !slices.Contains(arrows[f.dir], own) {
				t.Errorf("%s: %s must not import %s", f.path, f.dir, own)
			}
			used[f.dir][own] = true
		}
	}
	for dir, allowed := range arrows {
		if used[dir] == nil {
			t.Errorf("the import graph of this test has a package %s, which is gone", dir)
		}
		for _, own := range allowed {
			if !used[dir][own] {
				t.Errorf("%s does not import %s any more: remove the arrow", dir, own)
			}
		}
	}
}

func TestLibraryOwners(t *testing.T) {
	used := make(map[string]map[string]bool)
	for _, f := range sources(t, parser.ImportsOnly) {
		for _, path := range imports(t, f) {
			for library, users := range owners {
				if path != library && !strings.HasPrefix(path, library+"/") {
					continue
				}
				if !slices.Contains(users, f.dir) {
					t.Errorf("%s: only %v may import %s", f.path, users, library)
				}
				if used[library] == nil {
					used[library] = make(map[string]bool)
				}
				used[library][f.dir] = true
			}
		}
	}
	for library, users := range owners {
		for _, dir := range users {
			if !used[library][dir] {
				t.Errorf("%s does not import %s any more: it owns it no longer", dir, library)
			}
		}
	}
}

func TestOnePackageComment(t *testing.T) {
	comments := make(map[string]int)
	for _, f := range sources(t, parser.ParseComments|parser.PackageClauseOnly) {
		if f.ast.Doc != nil {
			comments[f.dir]++
		} else {
			comments[f.dir] += 0
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		if comments[dir] != 1 {
			t.Errorf("package %s has %d package comments, want 1", dir, comments[dir])
		}
	}
}

// TestNoGoroutineInConstructors keeps work out of New functions: Run works.
func TestNoGoroutineInConstructors(t *testing.T) {
	for _, f := range sources(t, parser.SkipObjectResolution) {
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "New") || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if _, starts := n.(*ast.GoStmt); starts {
					t.Errorf("%s: %s starts a goroutine", f.path, fn.Name.Name)
				}
				return true
			})
		}
	}
}

// TestNoInit keeps side effects out of imports.
func TestNoInit(t *testing.T) {
	for _, f := range sources(t, parser.SkipObjectResolution) {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: has an init function", f.path)
			}
		}
	}
}

// TestExportedNamesAreDocumented holds every exported declaration outside
// package main to a doc comment.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range sources(t, parser.ParseComments) {
		if f.ast.Name.Name == "main" {
			continue
		}
		for _, decl := range f.ast.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s: exported %s has no doc comment", f.path, name)
			}
		}
	}
}

func undocumented(decl ast.Decl) []string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			return []string{d.Name.Name}
		}
	case *ast.GenDecl:
		return undocumentedSpecs(d)
	}
	return nil
}

func undocumentedSpecs(d *ast.GenDecl) []string {
	var names []string
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				names = append(names, s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	if index, ok := typ.(*ast.IndexListExpr); ok {
		typ = index.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}
