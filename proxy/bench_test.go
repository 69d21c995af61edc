package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Finding site and route of an ordinary request allocates nothing.
func TestLookupAllocates(t *testing.T) {
	hosts := newHostTable()
	for _, h := range []string{"app.test", "*.app.test"} {
		if err := hosts.add(h, &site{}); err != nil {
			t.Fatal(err)
		}
	}
	table, err := newRouteTable("s", []Route{{Path: "/", Upstream: echo{}}, {Path: "/api", Upstream: echo{}}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		for _, h := range []string{"app.test", "a.app.test:8443", "app.test."} {
			if host, ok := canonicalHost(h); !ok || hosts.find(host) == nil {
				t.Fatal(h)
			}
		}
		if r, err := table.find("/api/v1/things.json"); err != nil || r.prefix != "/api" {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFindRoute(b *testing.B) {
	table, err := newRouteTable("s", []Route{{Path: "/", Upstream: echo{}}, {Path: "/api", Upstream: echo{}}}, 0)
	if err != nil {
		b.Fatal(err)
	}
	for name, path := range map[string]string{
		"clear":   "/api/v1/things.json",
		"encoded": "/files/a%20b.txt",
		"hostile": "/" + strings.Repeat(`%5c;a/x%252e/`, maxUnclearPath/14),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.find(path)
			}
		})
	}
}

// One request through client, proxy and backend, all in this process.
func BenchmarkRequest(b *testing.B) {
	for _, proto := range []string{h1, h2} {
		b.Run(proto, func(b *testing.B) {
			r := startRig(b, proto, backend(b, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello, world\n") }), nil)
			req := r.request("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				res, err := r.client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}

// What the handler itself costs, without connections.
func BenchmarkHandler(b *testing.B) {
	up := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{"Content-Type": {"text/plain"}}, ContentLength: 13,
			Body: io.NopCloser(strings.NewReader("hello, world\n")),
		}, nil
	})
	h, err := New(Options{Sites: []Site{{Hosts: []string{"app.test"}, Routes: []Route{{Path: "/", Upstream: up}}}}})
	if err != nil {
		b.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(b.Context(), "GET", "https://app.test/path?q", nil)
	req.RequestURI, req.RemoteAddr = "/path?q", "203.0.113.7:4711"
	req.Header = http.Header{"User-Agent": {"bench"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Cookie": {"a=b"}}
	w := &discardWriter{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, req)
	}
}

type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
