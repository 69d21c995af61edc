package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/upstream"
)

func TestErrorStatuses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + ln.Addr().String()
	ln.Close()
	release := make(chan struct{})
	defer close(release)
	silent := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	limited := newPool(t, upstream.Options{Name: "limited", MaxRequests: 1, Backends: []upstream.Backend{{URL: silent}}})
	// One request fills the limited pool.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	filled := make(chan struct{})
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://a/", nil)
		if res, err := limited.RoundTrip(req); err == nil {
			res.Body.Close()
		}
		close(filled)
	}()
	for limited.Status().Backends[0].InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	defer func() { cancel(); <-filled }()

	unavailable := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, upstream.ErrUnavailable })
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, nil, func(o *Options) {
			o.Sites = []Site{{Hosts: []string{"app.test"}, Routes: []Route{
				{Path: "/refused", Upstream: poolOf(t, refused)},
				{Path: "/silent", Upstream: newPool(t, upstream.Options{ResponseHeaderTimeout: 20 * time.Millisecond, Backends: []upstream.Backend{{URL: silent}}})},
				{Path: "/busy", Upstream: limited},
				{Path: "/down", Upstream: unavailable},
			}}}
		})
		for path, want := range map[string]int{"/refused": 502, "/silent": 504, "/busy": 503, "/down": 503, "/other": 404} {
			res, body := r.get(path)
			rec := r.record()
			if res.StatusCode != want || rec.Status != want || rec.Err == nil {
				t.Errorf("%s: status %d, recorded %d, %v; want %d", path, res.StatusCode, rec.Status, rec.Err, want)
			}
			if !strings.Contains(body, rec.RequestID) || strings.Contains(body, "127.0.0.1") {
				t.Errorf("%s: the client is told %q", path, body)
			}
			if ct := res.Header.Get("Content-Type"); ct != "text/plain; charset=utf-8" {
				t.Errorf("%s: Content-Type %q", path, ct)
			}
			if res.Close {
				t.Errorf("%s: the client's connection is closed", path)
			}
		}
	})
}

func TestRecord(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "hello")
	})
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, nil, func(o *Options) {
			o.Sites = []Site{{Name: "shop", Hosts: []string{"app.test"}, Routes: []Route{{Path: "/api", Upstream: poolOf(t, url)}}}}
		})
		req := r.request("POST", "/api/x%20y?token=secret", strings.NewReader("12345678"))
		req.Header.Set("User-Agent", "test/1")
		req.Header.Set("Referer", "https://from.test/")
		r.do(req)
		rec := r.record()
		if rec.Start.IsZero() || rec.Duration <= 0 || rec.Connect <= 0 || rec.FirstByte <= 0 || rec.FirstByte > rec.Duration || rec.Peer.Port() == 0 || rec.RequestID == "" {
			t.Errorf("times and peer: %+v", rec)
		}
		rec.Start, rec.Duration, rec.Connect, rec.FirstByte, rec.Peer, rec.RequestID = time.Time{}, 0, 0, 0, netip.AddrPort{}, ""
		want := Record{
			Method: "POST", Host: "app.test", Path: "/api/x%20y", Query: "token=secret", Proto: proto, UserAgent: "test/1", Referer: "https://from.test/",
			Client: netip.MustParseAddr("127.0.0.1"), TLSVersion: "TLS 1.3", SNI: "app.test",
			Site: "shop", Route: "shop/api", Upstream: "pool", Backend: url, Tries: 1, Status: 202, BytesIn: 8, BytesOut: 5,
		}
		if rec != want {
			t.Errorf("got  %+v\nwant %+v", rec, want)
		}
	})
}

func TestMethodLabel(t *testing.T) {
	for method, want := range map[string]string{"GET": "GET", "PATCH": "PATCH", "get": "OTHER", "PROPFIND": "OTHER", "": "OTHER"} {
		if got := (&Record{Method: method}).MethodLabel(); got != want {
			t.Errorf("%q: %s, want %s", method, got, want)
		}
	}
}

func TestRecordJSON(t *testing.T) {
	rec := Record{
		Start: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Duration: 1500 * time.Millisecond, FirstByte: time.Millisecond,
		RequestID: "id", Method: "G\"ET", Host: "app.test", Path: "/\x00\xff\u2028ü\\", Query: "a=b", Proto: h1, UserAgent: "a\nb",
		Client: netip.MustParseAddr("203.0.113.7"), Peer: netip.MustParseAddrPort("[::ffff:10.0.0.1]:4711"), TLSVersion: "TLS 1.3",
		Status: 200, BytesOut: 7, Tries: 2, Upgraded: true, Aborted: true, Err: errors.New("why"),
	}
	line := string(rec.appendJSON(nil, false))
	want := `{"time":"2026-01-02T03:04:05.000006Z","request_id":"id","client":"203.0.113.7","peer":"10.0.0.1","method":"G\"ET","host":"app.test",` +
		`"path":"/\u0000�` + "\u2028" + `ü\\","proto":"HTTP/1.1","status":200,"bytes_in":0,"bytes_out":7,"duration":1.500000,"first_byte":0.001000,` +
		`"tls_version":"TLS 1.3","resumed":false,"tries":2,"upgraded":true,"aborted":true,"user_agent":"a\u000ab","err":"why"}` + "\n"
	if line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	if with := string(rec.appendJSON(nil, true)); !strings.Contains(with, `,"query":"a=b",`) {
		t.Errorf("the query is missing: %s", with)
	}
	if n := testing.AllocsPerRun(100, func() { rec.appendJSON(make([]byte, 0, 1024), true) }); n > 1 {
		t.Errorf("a record costs %v allocations", n)
	}
}

// Whatever a client sends, a line is one JSON object.
func FuzzRecordJSON(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x7f", "\xff\xfe", "\u2028\U0001f600", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := (&Record{Path: s, UserAgent: s, Err: errors.New(s)}).appendJSON(nil, true)
		if bytes.Count(line, []byte("\n")) != 1 {
			t.Errorf("%q makes more than a line: %s", s, line)
		}
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v in %s", s, err, line)
		}
		want := strings.ToValidUTF8(s, "") // compared without what was replaced
		if p, _ := got["path"].(string); strings.ReplaceAll(p, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Errorf("%q came back as %q", s, p)
		}
	})
}

// syncBuffer is a writer that can be blocked.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
	err error
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	return b.buf.Write(p)
}

func (b *syncBuffer) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *syncBuffer) lines() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.buf.Bytes(), []byte("\n"))
}

func TestAccessLogFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, logged syncBuffer
		l, err := NewAccessLog(AccessLogOptions{Writer: &out, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		l.Request(&Record{Path: "/1"})
		synctest.Wait()
		if n := out.lines(); n != 0 {
			t.Errorf("%d lines at once", n)
		}
		time.Sleep(1100 * time.Millisecond)
		if n := out.lines(); n != 1 {
			t.Errorf("%d lines after a second, want 1", n)
		}
		for range 1000 { // enough for an early write
			l.Request(&Record{Path: "/2", UserAgent: strings.Repeat("x", 100)})
		}
		synctest.Wait()
		if n := out.lines(); n < 200 {
			t.Errorf("%d lines of a burst without waiting", n)
		}
		time.Sleep(time.Second)
		out.fail(errors.New("disk full"))
		for range 3 {
			l.Request(&Record{})
			time.Sleep(time.Second)
		}
		if n := logged.lines(); n != 1 {
			t.Errorf("the full disk was logged %d times, want once", n)
		}
		out.fail(nil)
		l.Request(&Record{Path: "/last"})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := l.Stats(); s.Written != 1002 || s.Dropped != 3 || out.lines() != 1002 {
			t.Errorf("stats %+v, %d lines; want 1002 written and 3 dropped", s, out.lines())
		}
	})
}

// A disk that hangs costs records, not requests and not memory.
func TestAccessLogNeverWaits(t *testing.T) {
	out := &syncBuffer{}
	out.mu.Lock() // writing hangs
	l, err := NewAccessLog(AccessLogOptions{Writer: out, Buffer: 10_000, FlushInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	const n = 1000
	for range n {
		l.Request(&Record{UserAgent: strings.Repeat("x", 100)})
	}
	if s := l.Stats(); s.Dropped < n-200 {
		t.Errorf("%d of %d records dropped: more than the buffer was kept", s.Dropped, n)
	}
	out.mu.Unlock()
	cancel()
	<-done
	if s := l.Stats(); s.Dropped+s.Written != n || int(s.Written) != out.lines() {
		t.Errorf("stats %+v, %d lines; want %d together", s, out.lines(), n)
	}
}

func TestAccessLogReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	l, err := NewAccessLog(AccessLogOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	l.Request(&Record{Path: "/old"})
	l.flush()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Request(&Record{Path: "/between"})
	l.flush()
	next, err := l.Reopen()
	if err != nil {
		t.Fatal(err)
	}
	l.Request(&Record{Path: "/before install"})
	l.flush()
	next.Install()
	l.Request(&Record{Path: "/new"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
	old, _ := os.ReadFile(path + ".1")
	now, _ := os.ReadFile(path)
	if !bytes.Contains(old, []byte("/between")) || !bytes.Contains(old, []byte("/before install")) || !bytes.Contains(now, []byte("/new")) || bytes.Contains(now, []byte("/old")) {
		t.Errorf("old file %s\nnew file %s", old, now)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("everybody may read the log: %v, %v", info.Mode(), err)
	}
}

// TestAccessLogReopenRefused: what cannot be opened, and what is not wanted
// after all, leaves the old file in use.
func TestAccessLogReopenRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	l, err := NewAccessLog(AccessLogOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	next, err := l.Reopen()
	if err != nil {
		t.Fatal(err)
	}
	next.Discard()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if next, err := l.Reopen(); err == nil || next != nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Reopen of a directory: %v, %v", next, err)
	}
	l.Request(&Record{Path: "/still"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
	if old, _ := os.ReadFile(path + ".1"); !bytes.Contains(old, []byte("/still")) {
		t.Errorf("old file: %q", old)
	}
}

func TestAccessLogErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "access.log")
	if l, err := NewAccessLog(AccessLogOptions{Path: missing}); err == nil || l != nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing directory: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewAccessLog(AccessLogOptions{Path: pipe}); err == nil || !strings.Contains(err.Error(), pipe) {
		t.Errorf("a named pipe that nobody reads: %v", err)
	}
	if _, err := NewAccessLog(AccessLogOptions{Buffer: -1}); err == nil {
		t.Error("a negative buffer is accepted")
	}
}

func TestRedirect(t *testing.T) {
	tests := []struct {
		port     int
		request  string
		status   int
		location string
	}{
		{443, "GET /a%2fb?c=d;e HTTP/1.1\r\nHost: app.test", 301, "https://app.test/a%2fb?c=d;e"},
		{443, "HEAD / HTTP/1.1\r\nHost: APP.test.:8080", 301, "https://app.test/"},
		{8443, "GET /? HTTP/1.1\r\nHost: app.test:8080", 301, "https://app.test:8443/?"},
		{8443, "GET / HTTP/1.1\r\nHost: [::1]:8080", 301, "https://[::1]:8443/"},
		{443, "POST /x HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0", 308, "https://app.test/x"},
		{443, "GET //evil.test/ HTTP/1.1\r\nHost: app.test", 301, "https://app.test//evil.test/"},
		{443, "GET https://app.test/x HTTP/1.1\r\nHost: other.test", 301, "https://app.test/x"},
		{443, "GET / HTTP/1.1\r\nHost: unknown.test", 404, ""},
		{443, "GET / HTTP/1.1\r\nHost: evil.test@app.test", 400, ""},
		{443, "GET / HTTP/1.0", 400, ""},
		{443, "CONNECT app.test:443 HTTP/1.1\r\nHost: app.test:443", 400, ""},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			r := serveMem(t, NewRedirect(RedirectOptions{Port: func(host string) (int, bool) {
				return tt.port, host != "unknown.test"
			}}))
			defer r.stop()
			c := r.dial(t)
			defer c.Close()
			io.WriteString(c, tt.request+"\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if l := res.Header.Get("Location"); res.StatusCode != tt.status || l != tt.location {
				t.Errorf("%q: %d %q, want %d %q", tt.request, res.StatusCode, l, tt.status, tt.location)
			}
		})
	}
}

func TestEcho(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, NewEcho(EchoOptions{ConnInfo: connInfo, MaxBody: 10}), nil)
		req := r.request("PUT", "/a%2fb?c", strings.NewReader("0123456789abcdef"))
		req.Header.Set("Accept", "application/json")
		res, body := r.do(req)
		var got echoed
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if res.Header.Get("Content-Type") != "application/json" || got.Method != "PUT" || got.Target != "/a%2fb?c" || got.Proto != proto ||
			got.Host != "app.test" || got.Body != "0123456789" || got.BodyBytes != 16 || got.Headers.Get("X-Forwarded-Proto") != "https" ||
			got.TLS == nil || got.TLS.Version != "TLS 1.3" || got.TLS.SNI != "app.test" {
			t.Errorf("got %s", body)
		}
		_, body = r.get("/")
		for _, want := range []string{"GET / " + proto + "\n", "Host: app.test\n", "X-Forwarded-For: 127.0.0.1\n", "TLS 1.3, " + tls.CipherSuiteName(tls.TLS_AES_128_GCM_SHA256), "body: 0 bytes"} {
			if !strings.Contains(body, want) {
				t.Errorf("%q is missing in\n%s", want, body)
			}
		}
		if res, body := r.do(r.request("HEAD", "/", nil)); body != "" || res.ContentLength <= 0 {
			t.Errorf("HEAD: %d bytes, Content-Length %d", len(body), res.ContentLength)
		}
	})
}

// While connections are to end, responses say so, also those whose requests
// came before, and errors.
func TestClosing(t *testing.T) {
	var closing atomic.Bool
	r := startRig(t, h1, backend(t, func(w http.ResponseWriter, r *http.Request) {
		if closing.Store(true); r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
	}), func(o *Options) { o.Closing = closing.Load })
	for _, path := range []string{"/", "/cut"} {
		closing.Store(false)
		if res, _ := r.get(path); !res.Close {
			t.Errorf("%s: %s does not end the connection", path, res.Status)
		}
	}
}
