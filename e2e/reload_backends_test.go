package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
)

// TestReloadKeepsHealth: of two backends one hangs and its checks say so. No
// reload lets a request go there, neither of the same file nor of one with other
// intervals.
func TestReloadKeepsHealth(t *testing.T) {
	var hung atomic.Bool
	var reached atomic.Int64 // requests that hang
	bad := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !hung.Load() {
			return
		}
		if r.URL.Path != "/healthz" {
			reached.Add(1)
		}
		<-r.Context().Done()
	})
	good := serve(t, func(http.ResponseWriter, *http.Request) {})
	config := strings.Replace(echoConfig, `echo: {backends: ["builtin:echo"]}`,
		fmt.Sprintf("echo: {backends: [%q, %q], health: {path: /healthz, interval: 300ms, timeout: 500ms, fall: 3}, response_timeout: 2s}", bad, good), 1)
	p := startProxy(t, config)
	_, pool := p.devCA()
	client := p.client(pool, true)
	up := func() float64 { return p.metric("tlsproxy_upstream_up", fmt.Sprintf("backend=%q", bad)) }
	eventually(t, "the backend is up", func() bool { return up() == 1 })
	hung.Store(true)
	eventually(t, "the backend is down", func() bool { return up() == 0 })

	for i := range 10 {
		if i == 5 {
			p.writeConfig(strings.Replace(config, "interval: 300ms", "interval: 400ms", 1))
		}
		p.mustReload()
		for range 4 {
			if code, body := fetch(t, client, "https://localhost/"); code != http.StatusOK {
				t.Errorf("reload %d: a request got %d: %s", i, code, body)
			}
		}
		if up() != 0 {
			t.Errorf("reload %d: the backend counts as up", i)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached the backend that was down", n)
	}
	hung.Store(false)
	eventually(t, "the backend is up again", func() bool { return up() == 1 })
}

// TestReloadKeepsCounts: an open WebSocket takes the backend's only place before a
// reload and after it, and no counter goes back.
func TestReloadKeepsCounts(t *testing.T) {
	backend := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		if c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}); err == nil {
			c.Read(r.Context())
			c.CloseNow()
		}
	})
	p := startProxy(t, strings.Replace(echoConfig, `["builtin:echo"]`, fmt.Sprintf("[%q], max_requests: 1", backend), 1))
	_, pool := p.devCA()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://localhost/", &websocket.DialOptions{HTTPClient: p.client(pool, false)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	client := p.client(pool, true)
	inFlight := func() float64 { return p.metric("tlsproxy_upstream_requests_in_flight") }
	for i := range 3 {
		if code, _ := fetch(t, client, "https://localhost/"); code != http.StatusServiceUnavailable {
			t.Errorf("after %d reloads: a second request got %d, want 503", i, code)
		}
		if n, tries := inFlight(), p.metric("tlsproxy_upstream_tries_total"); n != 1 || tries != 1 {
			t.Errorf("after %d reloads: %v in flight of %v tries, want 1 of 1", i, n, tries)
		}
		p.mustReload()
	}
	c.CloseNow()
	eventually(t, "nothing is in flight", func() bool { return inFlight() == 0 })
	if code, _ := fetch(t, client, "https://localhost/"); code != http.StatusOK {
		t.Errorf("with room again: a request got %d", code)
	}
	if tries := p.metric("tlsproxy_upstream_tries_total"); tries != 2 {
		t.Errorf("%v tries, want 2", tries)
	}
}
