package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// FuzzParse checks that no file whatever panics, that a result is all or
// nothing, that errors say where, and that parsing is deterministic.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, exampleFile) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < 20_000 {
			f.Add(data)
		}
	}
	f.Add([]byte(minimal))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if (c == nil) == (err == nil) {
			t.Fatalf("Parse = %v, %v", c, err)
		}
		again, err2 := Parse("f", data)
		if err == nil {
			if !reflect.DeepEqual(c, again) {
				t.Error("parsing twice gives two results")
			}
			checkComplete(t, c)
			return
		}
		if err.Error() != err2.Error() {
			t.Errorf("parsing twice gives two errors:\n%v\n%v", err, err2)
		}
		es, ok := errors.AsType[Errors](err)
		if !ok || len(es) == 0 {
			t.Fatalf("%T of length %d", err, len(es))
		}
		last, lines := 0, 2
		for _, r := range string(data) {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // YAML's line breaks
				lines++
			}
		}
		for _, e := range es {
			if e.Line < last || e.Line > lines {
				t.Errorf("line %d after line %d of %d: %v", e.Line, last, lines, e)
			}
			last = e.Line
			if text := e.Error(); strings.ContainsAny(text, "\n\x1b\x00") {
				t.Errorf("control character in %q", text)
			}
		}
	})
}

// checkComplete checks what everybody relies on in a configuration without
// errors.
func checkComplete(t *testing.T, c *Config) {
	t.Helper()
	if len(c.Listeners) == 0 || len(c.Certificates) == 0 || len(c.Sites) == 0 {
		t.Errorf("accepted without listeners, certificates or sites: %+v", c)
	}
	for _, s := range c.Sites {
		if s.Name == "" || len(s.Hosts) == 0 || len(s.Routes) == 0 {
			t.Errorf("site %+v", s)
		}
		if a := s.TLS.ClientAuth; a.Mode.Verifies() && len(a.CAFile) == 0 {
			t.Errorf("client_auth without CA: %+v", a)
		}
		for _, r := range s.Routes {
			if len(c.Upstreams[r.Upstream].Backends) == 0 {
				t.Errorf("route to nowhere: %+v", r)
			}
		}
	}
	for _, cert := range c.Certificates {
		if a := cert.ACME; a != nil && a.OnDemand != nil && a.OnDemand.Ask == "" && len(a.OnDemand.Allow) == 0 {
			t.Errorf("certificates for any name: %+v", a.OnDemand)
		}
	}
	if c.Store.Redis != nil && c.Store.KeyFile == "" {
		t.Error("a store without a key")
	}
}
