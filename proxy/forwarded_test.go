package proxy

import (
	"reflect"
	"testing"
)

func TestParseForwarded(t *testing.T) {
	tests := []struct {
		in   []string
		want []hop
		ok   bool
	}{
		{nil, nil, true},
		{[]string{""}, nil, true},
		{[]string{"for=192.0.2.60;proto=http;by=203.0.113.43"}, []hop{{node: "192.0.2.60", proto: "http"}}, true},
		{[]string{`For="[2001:db8:cafe::17]:4711"`}, []hop{{node: "[2001:db8:cafe::17]:4711"}}, true},
		{[]string{"for=a, for=b", " for=c ; host=x ,"}, []hop{{node: "a"}, {node: "b"}, {node: "c", host: "x"}}, true},
		{[]string{`for="a\"b\\"`}, []hop{{node: `a"b\`}}, true},
		{[]string{"for=a;;proto=https"}, []hop{{node: "a", proto: "https"}}, true},
		{[]string{"secret=x"}, nil, true},
		{[]string{"for=a b"}, nil, false},
		{[]string{`for="a b"`}, nil, false},
		{[]string{`for="a,b"`}, nil, false},
		{[]string{"for"}, nil, false},
		{[]string{"for="}, nil, false},
		{[]string{`for="a`}, nil, false},
		{[]string{`for="a\`}, nil, false},
		{[]string{"for=a;for=b"}, nil, false},
		{[]string{"for=[::1]"}, nil, false},
		{[]string{"for=\"a\x01\""}, nil, false},
		{[]string{"for=a", "="}, nil, false},
	}
	for _, tt := range tests {
		got, ok := parseForwarded(tt.in)
		if ok != tt.ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: got %+v, %t; want %+v, %t", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

// What is parsed can be written and parsed again.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"", "for=192.0.2.60;proto=http;by=203.0.113.43", `For="[2001:db8:cafe::17]:4711"`, "for=a, for=b,", `for="a\"b\\c";host="x:1"`,
		"for=unknown;;", `host="\`, "for=_x;ext=1", ",,", ";", "for=\"\"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		hops, ok := parseForwarded([]string{s})
		if !ok {
			return
		}
		for _, h := range hops {
			h.node = orUnknown(h.node)
			text := string(h.append(nil))
			again, ok := parseForwarded([]string{text})
			want := h
			want.node = quoteIPv6(h.node)
			if !ok || len(again) != 1 || again[0] != want {
				t.Errorf("%q: %+v written as %q parses as %+v, %t", s, h, text, again, ok)
			}
		}
	})
}

// Whatever the spelling of a path, a backend that reads it in one of the ways that
// are known ends up in the route that was chosen.
func FuzzRoute(f *testing.F) {
	for _, s := range []string{
		"/", "/api", "/api/x", "/apix", "/api%2Fx", "/x/../api", "/x/%2e%2e/api", "/x/..;/api", "//api", `/x\..\api`, "/%252e%252e/api",
		"/x//../api", "/./api", "/api/..", "/%61pi", "/a%00", "/%", "/%2", "/%zz", "/;/api", "/api;x", "/..%5capi",
	} {
		f.Add(s)
	}
	table, err := newRouteTable("s", []Route{
		{Path: "/", Upstream: echo{}}, {Path: "/api", Upstream: echo{}}, {Path: "/api/v2", Upstream: echo{}},
	}, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		path = "/" + path
		r, err := table.find(path)
		if err != nil {
			return
		}
		decoded := decode(path, false)
		for name, reading := range map[string]string{
			"decoded":             decoded,
			"cleaned":             cleanSegments(decoded, true, true),
			"cleaned, no merging": cleanSegments(decoded, false, true),
			"without parameters":  cleanSegments(stripParameters(decoded), true, true),
			"decoded twice":       cleanSegments(decode(decoded, false), true, true),
		} {
			if got := table.lookup(reading); got != r {
				t.Errorf("%q went to %s; read as %q (%s) it belongs to %s", path, r.name, reading, name, got.name)
			}
		}
	})
}

// A host that is accepted is one that a site can be listed under.
func FuzzCanonicalHost(f *testing.F) {
	for _, s := range []string{"", "a.test", "A.Test.:443", "[::1]:1", "[::1", "a:b", "1.2.3.4", "a..", ".", "[fe80::1%25eth0]", "xn--a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, ok := canonicalHost(s)
		if !ok {
			return
		}
		table := newHostTable()
		if host[0] != '.' && host[len(host)-1] != '.' {
			if err := table.add(host, &site{}); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
