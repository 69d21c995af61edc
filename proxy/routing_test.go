package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, nil, func(o *Options) {
			o.Sites = []Site{
				{Hosts: []string{"app.test"}, Routes: []Route{{Path: "/", Upstream: echoBackend(t, "exact")}}},
				{Hosts: []string{"*.app.test"}, Routes: []Route{{Path: "/", Upstream: echoBackend(t, "wildcard")}}},
				{Hosts: []string{"::1", "127.0.0.1"}, Routes: []Route{{Path: "/", Upstream: echoBackend(t, "address")}}},
			}
		})
		tests := []struct {
			host   string
			status int
			want   string
		}{
			{"app.test", 200, "exact /"},
			{"APP.Test", 200, "exact /"},
			{"app.test:8443", 200, "exact /"},
			{"app.test.", 200, "exact /"},
			{"app.test.:443", 200, "exact /"},
			{"a.app.test", 200, "wildcard /"},
			{"A.App.Test:1", 200, "wildcard /"},
			{"127.0.0.1:8443", 200, "address /"},
			{"[::1]", 200, "address /"},
			{"[0:0::1]:8443", 200, "address /"},
			{"a.b.app.test", 404, ""},
			{".app.test", 404, ""},
			{"other.test", 404, ""},
			{"app.test..", 404, ""},
			{"app.test:http", 400, ""},
			{"[::1", 400, ""},
			{"app.test%00", 400, ""},
		}
		for _, tt := range tests {
			req := r.request("GET", "/", nil)
			req.Host = tt.host
			res, err := r.client.Do(req)
			if err != nil {
				t.Errorf("Host %q: %v", tt.host, err)
				continue
			}
			body := make([]byte, 100)
			n, _ := res.Body.Read(body)
			res.Body.Close()
			if res.StatusCode != tt.status {
				t.Errorf("Host %q: status %d, want %d", tt.host, res.StatusCode, tt.status)
			}
			if tt.want != "" && string(body[:n]) != tt.want {
				t.Errorf("Host %q: got %q, want %q", tt.host, body[:n], tt.want)
			}
		}
	})
}

func TestAnyHost(t *testing.T) {
	r := startRig(t, h1, nil, func(o *Options) {
		o.Sites = []Site{
			{Hosts: []string{"*"}, Routes: []Route{{Path: "/", Upstream: echoBackend(t, "any")}}},
			{Hosts: []string{"app.test"}, Routes: []Route{{Path: "/", Upstream: echoBackend(t, "exact")}}},
		}
	})
	for host, want := range map[string]string{"app.test": "exact /", "x.y.z": "any /", "192.0.2.1": "any /"} {
		req := r.request("GET", "/", nil)
		req.Host = host
		if _, got := r.do(req); got != want {
			t.Errorf("Host %q: got %q, want %q", host, got, want)
		}
	}
}

// A connection accepted under one policy must not reach a site of another one.
func TestMisdirected(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := echoBackend(t, "x")
		routes := []Route{{Path: "/", Upstream: up}}
		r := startRig(t, proto, nil, func(o *Options) {
			o.Sites = []Site{
				{Hosts: []string{"app.test"}, PolicyID: policyID("open"), Routes: routes},
				{Hosts: []string{"same.test"}, PolicyID: policyID("open"), Routes: routes},
				{Hosts: []string{"mtls.test"}, PolicyID: policyID("mtls"), Routes: routes},
				{Hosts: []string{"none.test"}, Routes: routes},
			}
			o.ConnInfo = withPolicy("open")
		})
		for host, want := range map[string]int{"app.test": 200, "same.test": 200, "mtls.test": 421, "MTLS.test.": 421, "none.test": 421} {
			req := r.request("GET", "/", nil)
			req.Host = host
			res, _ := r.do(req)
			if res.StatusCode != want {
				t.Errorf("Host %q: status %d, want %d", host, res.StatusCode, want)
			}
		}
	})
}

// Without facts of the connection there is no policy, and sites with one are closed.
func TestUnknownConnectionHasNoPolicy(t *testing.T) {
	up := echoBackend(t, "x")
	h, err := New(Options{Sites: []Site{{Hosts: []string{"app.test"}, PolicyID: policyID("mtls"), Routes: []Route{{Path: "/", Upstream: up}}}}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "http://app.test/", nil))
	if w.Code != http.StatusMisdirectedRequest {
		t.Errorf("status %d, want 421", w.Code)
	}
}

func TestHostRequired(t *testing.T) {
	r := startRig(t, h1, echoBackend(t, "x"), nil)
	for _, request := range []string{
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: app.test\r\nHost: app.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: user@app.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: app.test, other.test\r\n\r\n",
	} {
		if status, closed := r.raw(request); status != 400 || !closed {
			t.Errorf("%q: status %d, closed %t; want 400 and a closed connection", request, status, closed)
		}
	}
}

// raw sends bytes and returns the status of the first response, and whether the
// connection was closed after it.
func (r *rig) raw(request string) (status int, closed bool) {
	r.t.Helper()
	conn := r.dial()
	if _, err := conn.Write([]byte(request)); err != nil {
		r.t.Fatal(err)
	}
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		r.t.Fatalf("%q: %v", request, err)
	}
	defer res.Body.Close()
	for err == nil {
		_, err = res.Body.Read(make([]byte, 1024))
	}
	return res.StatusCode, res.Close
}

func TestRoutes(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, nil, func(o *Options) {
			o.Sites = []Site{{Hosts: []string{"app.test"}, Routes: []Route{
				{Path: "/", Upstream: echoBackend(t, "root")},
				{Path: "/api", Upstream: echoBackend(t, "api")},
				{Path: "/api/v2/", Upstream: echoBackend(t, "v2")},
				{Path: "/café", Upstream: echoBackend(t, "café")},
			}}}
		})
		tests := map[string]string{ // target: backend, or a status
			"/":               "root",
			"/apix":           "root",
			"/x/api":          "root",
			"/API":            "root",
			"/api":            "api",
			"/api/":           "api",
			"/api?x=/api/v2":  "api",
			"/api/x":          "api",
			"/api/v2":         "v2",
			"/api/v2/x/y":     "v2",
			"/api/v22":        "api",
			"/caf%C3%A9/x":    "café",
			"/caf%c3%a9":      "café",
			"/%61pi/x":        "api",
			"/.well-known/x":  "root",
			"/a/b;c=d/e":      "root",
			"/img/http://a/b": "root",
			"/100%25":         "root",
			"/a%2Fb":          "root",
			"/api/a%2Fb":      "api",
			"/api/./x":        "api",
			"/api/y/../x":     "api",
			// Readings that belong to different routes:
			"/api%2Fx":                "400",
			"/api%2fv2":               "400",
			"/api/v2%2Fx":             "400",
			"/api%252Fx":              "400",
			"/api%5Cx":                "400",
			"/x/../api/y":             "400",
			"/x/%2e%2e/api/y":         "400",
			"/x/%2E%2E%2Fapi/y":       "400",
			"/x/..%2fapi":             "400",
			"/x/..;/api/y":            "400",
			"/x/..;a=b/api/y":         "400",
			"/api;x/y":                "400",
			"//api/x":                 "400",
			"/./api/x":                "400",
			"/%2e/api":                "400",
			"/api/../x":               "400",
			"/api/v2/../x":            "400",
			"/api/v2/%252e%252e/x":    "400",
			"/x//../api":              "400",
			"/x%00/../api":            "400",
			"/a%00b":                  "400",
			"/" + repeat("%2e/", 4e3): "400",
		}
		for target, want := range tests {
			req := r.request("GET", "/", nil)
			req.URL = &url.URL{Scheme: "https", Host: "app.test", Opaque: target}
			if strings.HasPrefix(target, "//") {
				req.URL = &url.URL{Scheme: "https", Host: "app.test", Path: target}
			}
			res, got := r.do(req)
			if res.StatusCode == 200 && got != want+" "+target {
				t.Errorf("%q: got %q, want %q", target, got, want+" "+target)
			}
			if res.StatusCode != 200 && fmt.Sprint(res.StatusCode) != want {
				t.Errorf("%q: got %q, want %q", target, got, want)
			}
		}
	})
}

func repeat(s string, n float64) string { return strings.Repeat(s, int(n)) }

func TestNoRoute(t *testing.T) {
	r := startRig(t, h1, nil, func(o *Options) {
		o.Sites = []Site{{Hosts: []string{"app.test"}, Routes: []Route{{Path: "/api", Upstream: echoBackend(t, "api")}}}}
	})
	for target, want := range map[string]int{"/": 404, "/apix": 404, "/api": 200, "/api/..": 400, "/x%2f": 404, "/x%2f../api": 400} {
		if res, _ := r.get(target); res.StatusCode != want {
			t.Errorf("%q: status %d, want %d", target, res.StatusCode, want)
		}
	}
}

// What the client sent after the authority reaches the backend byte for byte.
func TestTargetByteForByte(t *testing.T) {
	targets := []string{
		"/", "/?", "/a?", "/a??", "/?a=b;c=d", "/?%zz", "/?a=%", "/?a=1&a=2&&", "/?q=a+b%20c", "/a?b?c",
		"/%41%62", "/a%2fb%2Fc", "/a|b", "/a\"b<c>^`{}", "/[x]", "/a;b=c", "/a\\b", "/a/../b", "/a/./b//c///",
		"/caf\xc3\xa9?caf\xc3\xa9", "/\xff", "//a/b", "//a%2fb?x=//y", "/a:b@c", "/!$&'()*+,;=:@-._~", "/?a='\"<>",
	}
	long := "/?" + strings.Repeat("a=b&", 10_001) // more parameters than net/url accepts
	targets = append(targets, long)
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.RequestURI)) })
		r := startRig(t, proto, up, nil)
		for _, target := range targets {
			req := r.request("GET", "/", nil)
			path, query, has := strings.Cut(target, "?")
			req.URL = &url.URL{Scheme: "https", Host: "app.test", Opaque: path, RawQuery: query, ForceQuery: has && query == ""}
			if strings.HasPrefix(path, "//") {
				req.URL.Opaque = ""
				req.URL.Path, _ = url.PathUnescape(path)
				req.URL.RawPath = path
			}
			res, got := r.do(req)
			if res.StatusCode != 200 || got != target {
				t.Errorf("sent %.80q, the backend got %.80q (status %d)", target, got, res.StatusCode)
			}
		}
	})
}

func TestBadTargets(t *testing.T) {
	r := startRig(t, h1, echoBackend(t, "x"), nil)
	for _, target := range []string{"/a#b", "/a\x7f", "*", "/a%zz", "app.test", "https:app.test"} {
		if status, _ := r.raw("GET " + target + " HTTP/1.1\r\nHost: app.test\r\n\r\n"); status != 400 {
			t.Errorf("%q: status %d, want 400", target, status)
		}
	}
	if status, _ := r.raw("GET https://app.test/x?y HTTP/1.1\r\nHost: ignored.test\r\n\r\n"); status != 200 {
		t.Errorf("absolute form: status %d, want 200", status)
	}
	last := r.record()
	for last.Status != 200 {
		last = r.record()
	}
	if last.Path != "/x" || last.Query != "y" || last.Host != "app.test" {
		t.Errorf("absolute form: recorded %q, %q, %q", last.Host, last.Path, last.Query)
	}
	if status, _ := r.raw("CONNECT app.test:443 HTTP/1.1\r\nHost: app.test\r\n\r\n"); status != 405 {
		t.Errorf("CONNECT: status %d, want 405", status)
	}
	if status, _ := r.raw("TRACE / HTTP/1.1\r\nHost: app.test\r\n\r\n"); status != 405 {
		t.Errorf("TRACE: status %d, want 405", status)
	}
}

func TestNewErrors(t *testing.T) {
	up := NewEcho(EchoOptions{})
	route := []Route{{Path: "/", Upstream: up}}
	tests := []struct {
		name  string
		sites []Site
		want  []string
	}{
		{"no hosts", []Site{{Routes: route}}, []string{"sites[0]: no hosts"}},
		{"no routes", []Site{{Hosts: []string{"a"}}}, []string{`site "a": no routes`}},
		{"host twice", []Site{{Hosts: []string{"a.b"}, Routes: route}, {Hosts: []string{"a.b"}, Routes: route}}, []string{`sites[1]: site "a.b": host "a.b" belongs to site "a.b" already`}},
		{"wildcard twice", []Site{{Hosts: []string{"*.b", "*.b"}, Routes: route}}, []string{"already"}},
		{"any twice", []Site{{Hosts: []string{"*", "*"}, Routes: route}}, []string{"already"}},
		{"every bad host", []Site{{Hosts: []string{"A.b", "a.b.", "a b", "*.*.b", "a.*", "[::1]", "a:1", ""}, Routes: route}},
			[]string{`"A.b"`, `"a.b."`, `"a b"`, `"*.*.b"`, `"a.*"`, `"[::1]"`, `"a:1"`, `host ""`}},
		{"bad paths", []Site{{Hosts: []string{"a"}, Routes: []Route{
			{Path: "x", Upstream: up}, {Path: "", Upstream: up}, {Path: "/a/../b", Upstream: up}, {Path: "/a//b", Upstream: up}, {Path: "//", Upstream: up},
			{Path: "/a%2f", Upstream: up}, {Path: "/a?b", Upstream: up}, {Path: "/a/*", Upstream: up}, {Path: "/ok"},
		}}}, []string{"routes[0]", "routes[1]", "routes[2]", "routes[3]", "routes[4]", "routes[5]", "routes[6]", "routes[7]", `routes[8]: path "/ok" has no upstream`}},
		{"path twice", []Site{{Hosts: []string{"a"}, Routes: []Route{{Path: "/a", Upstream: up}, {Path: "/a/", Upstream: up}}}}, []string{`routes[1]: path "/a/" has a route already`}},
		{"headers", []Site{{Hosts: []string{"a"}, Routes: route,
			Request:  HeaderRules{Set: map[string]string{"content-length": "1", "X Y": "a", "X-A": "a\nb"}, Remove: []string{"Client-Cert"}},
			Response: HeaderRules{Remove: []string{"Transfer-Encoding"}},
			Identity: Identity{Subject: "Host"}, HSTS: "a\r\nb"}},
			[]string{"content-length", `"X Y"`, `"a\nb"`, `"Client-Cert"`, "Transfer-Encoding", `identity header "Host"`, "hsts"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(Options{Sites: tt.sites})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestHasHost takes hosts as they stand in Host headers and as hostOf returns
// them.
func TestHasHost(t *testing.T) {
	h, err := New(Options{Sites: []Site{{
		Hosts:  []string{"app.test", "::1", "192.0.2.1"},
		Routes: []Route{{Path: "/", Upstream: http.DefaultTransport}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"app.test": true, "APP.test.:80": true, "::1": true, "0:0::1": true, "[::1]": true, "[::1]:8080": true, "192.0.2.1": true,
		"": false, "other.test": false, "::2": false, "[::1": false, "::1]": false,
	} {
		if got := h.HasHost(host); got != want {
			t.Errorf("HasHost(%q) = %v, want %v", host, got, want)
		}
	}
}

// OPTIONS * is about the server, but for a host: the proxy answers by its own
// rules and records it.
func TestServerOptions(t *testing.T) {
	asked := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, errors.New("a backend was asked") })
	for _, c := range []struct {
		host   string
		policy string
		status int
	}{{"app.test", "", 204}, {"nobody.test", "", 404}, {"app.test", "other", 421}} {
		r := startRig(t, h1, asked, func(o *Options) { o.ConnInfo = withPolicy(c.policy) })
		status, closed := r.raw("OPTIONS * HTTP/1.1\r\nHost: " + c.host + "\r\nConnection: close\r\n\r\n")
		if rec := r.record(); status != c.status || !closed || rec.Status != c.status || rec.Path != "*" {
			t.Errorf("%s: status %d, recorded %+v; want %d", c.host, status, rec, c.status)
		}
	}
}
