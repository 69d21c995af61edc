package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// A connection that could not be made is tried elsewhere, with the body.
func TestRetry(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }
	p := newPool(t, Options{EjectAfter: -1}, "http://"+closedPort(t), "http://"+server(t, echo))
	for range 4 {
		var trace Trace
		req := request(t, "POST", io.NopCloser(strings.NewReader("body")))
		req.ContentLength = 4
		if got := send(t, p, traced(req, &trace)); got != "body" {
			t.Errorf("got %q", got)
		}
		if trace.Upstream != "test" || trace.Backend != p.backends[1].url || trace.Tries < 1 || trace.Tries > 2 {
			t.Errorf("traced %+v", &trace)
		}
	}
	if s := p.Status().Backends[0]; s.Failures != s.Requests || s.Failures == 0 || !strings.Contains(s.LastError, "refused") || s.InFlight != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestRetryLimit(t *testing.T) {
	var urls []string
	for range 5 {
		urls = append(urls, "http://"+closedPort(t))
	}
	for retries, want := range map[int]int{0: 3, -1: 1, 1: 2, 9: 5} {
		p := newPool(t, Options{Retries: retries, EjectAfter: -1}, urls...)
		var trace Trace
		req := request(t, "GET", nil)
		_, err := p.RoundTrip(traced(req, &trace))
		if err == nil || trace.Tries != want {
			t.Errorf("retries %d: %d tries, %v; want %d", retries, trace.Tries, err, want)
		}
	}
}

// dropper is a backend that reads a request and closes the connection.
func dropper(t *testing.T, seen *atomic.Int64) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		seen.Add(1)
		panic(http.ErrAbortHandler)
	})
}

// What a backend may have begun to work on is never sent again.
func TestNoRetryAfterSending(t *testing.T) {
	var first, second atomic.Int64
	p := newPool(t, Options{}, "http://"+dropper(t, &first), "http://"+dropper(t, &second))
	for i, method := range []string{"POST", "GET", "POST"} {
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader("x")
		}
		if got := send(t, p, request(t, method, body)); !strings.HasPrefix(got, "error: ") {
			t.Errorf("got %q", got)
		}
		if n := first.Load() + second.Load(); n != int64(i+1) {
			t.Errorf("%d requests arrived after %d were sent", n, i+1)
		}
	}
}

// bodyCloser tells of its Close.
type bodyCloser struct {
	io.Reader
	closed chan struct{}
}

func (b *bodyCloser) Close() error {
	select {
	case b.closed <- struct{}{}:
	default:
	}
	return nil
}

// The request body is closed in the end, as http.RoundTripper demands.
func TestBodyIsClosed(t *testing.T) {
	ok, dead := "http://"+server(t, named("a")), "http://"+closedPort(t)
	for _, urls := range [][]string{{ok}, {dead}, {dead, ok}} {
		p := newPool(t, Options{EjectAfter: -1}, urls...)
		b := &bodyCloser{Reader: strings.NewReader("body"), closed: make(chan struct{}, 1)}
		req := request(t, "POST", b)
		req.ContentLength = 4
		send(t, p, req)
		select {
		case <-b.closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%d backends: the body was not closed", len(urls))
		}
	}
}

// A backend may close a kept connection just when the next request comes.
func TestStaleConnection(t *testing.T) {
	var network memnet.Network
	ln, err := network.Listen("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var heads atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			br := bufio.NewReader(c)
			for n := range 2 {
				if _, err := http.ReadRequest(br); err != nil {
					break
				}
				heads.Add(1)
				if n == 0 {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}
			c.Close()
		}
	}()
	p := newPool(t, Options{dial: network.DialContext}, "http://192.0.2.1:80")
	for i, tt := range []struct {
		method string
		ok     bool
	}{{"GET", true}, {"GET", true}, {"POST", false}, {"POST", true}} {
		if got := send(t, p, request(t, tt.method, nil)); (got == "ok") != tt.ok {
			t.Errorf("request %d: %s got %q", i, tt.method, got)
		}
	}
	if n := heads.Load(); n != 5 {
		t.Errorf("%d requests arrived, want 4 and one of them twice", n)
	}
}
