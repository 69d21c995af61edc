package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// webSocketEcho is a backend that sends messages back.
func webSocketEcho(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 20)
	for {
		kind, msg, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if err := c.Write(r.Context(), kind, msg); err != nil {
			return
		}
	}
}

func TestWebSocket(t *testing.T) {
	pool := backend(t, webSocketEcho)
	r := startRig(t, h1, pool, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://app.test/chat", &websocket.DialOptions{HTTPClient: r.client})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 20)
	for _, msg := range []string{"hello", "", strings.Repeat("x", 100_000)} {
		if err := c.Write(ctx, websocket.MessageText, []byte(msg)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || string(got) != msg {
			t.Fatalf("sent %d bytes, got %d, %v", len(msg), len(got), err)
		}
	}
	if n := r.handler.opts.Upgrades.Len(); n != 1 {
		t.Errorf("%d upgraded connections, want 1", n)
	}
	if n := pool.Status().Backends[0].InFlight; n != 1 {
		t.Errorf("%d in flight at the backend, want 1", n)
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("close: %v", err)
	}
	rec := r.record()
	if !rec.Upgraded || rec.Status != 101 || rec.BytesIn < 100_005 || rec.BytesOut < 100_005 || rec.Aborted || rec.Backend == "" {
		t.Errorf("recorded %+v", rec)
	}
	if n := r.handler.opts.Upgrades.Len(); n != 0 {
		t.Errorf("%d upgraded connections after the close", n)
	}
	if err := pool.Retire(ctx); err != nil {
		t.Errorf("the backend is still in use after the close: %v", err)
	}
}

// startRaw starts a backend of bytes and returns its URL.
func startRaw(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return "http://" + ln.Addr().String()
}

// readHead reads a request head and returns its lines.
func readHead(br *bufio.Reader) ([]string, error) {
	var lines []string
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return lines, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return lines, nil
		}
		lines = append(lines, line)
	}
}

const upgradeHead = "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: testproto\r\n\r\n"

// Bytes sent right behind an upgrade request are the new protocol's: they reach the
// backend after it has switched, and never if it has not.
func TestEarlyBytesAfterUpgrade(t *testing.T) {
	before := make(chan int, 1)
	switching := poolOf(t, startRaw(t, func(c net.Conn, br *bufio.Reader) {
		readHead(br)
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		br.Peek(1)
		before <- br.Buffered()
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: testproto\r\n\r\nwelcome ")
		buf := make([]byte, 5)
		io.ReadFull(br, buf)
		c.Write(buf)
	}))
	r := startRig(t, h1, switching, nil)
	conn := r.dial()
	io.WriteString(conn, upgradeHead+"early")
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	if got, err := io.ReadAll(br); string(got) != "welcome early" {
		t.Errorf("got %q, %v", got, err)
	}
	if n := <-before; n != 0 {
		t.Errorf("%d bytes reached the backend before it switched", n)
	}
}

// A backend that does not switch answers an ordinary request, and the bytes behind
// it are the client's next request.
func TestRefusedUpgrade(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Method+r.URL.Path) })
	r := startRig(t, h1, up, nil)
	conn := r.dial()
	io.WriteString(conn, upgradeHead+"PUT /second HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n")
	br := bufio.NewReader(conn)
	for _, want := range []string{"GET/", "PUT/second"} {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if string(body) != want || res.StatusCode != 200 {
			t.Errorf("got %d %q, want %q", res.StatusCode, body, want)
		}
	}
}

func TestWrongProtocolFromBackend(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		up := poolOf(t, startRaw(t, func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			io.WriteString(c, answer)
		}))
		r := startRig(t, h1, up, nil)
		if status, _ := r.raw(upgradeHead); status != 502 {
			t.Errorf("%q: status %d, want 502", answer, status)
		}
	}
}

// An upgrade to HTTP/2 or TLS would let everything behind it bypass the proxy.
func TestStrippedUpgrades(t *testing.T) {
	r := startRig(t, h1, headerBackend(t), nil)
	for upgrade, pass := range map[string]bool{
		"h2c": false, "H2C": false, "h2": false, "HTTP/2.0": false, "TLS/1.0": false, "websocket, h2c": false, "h2c,websocket": false,
		"websocket": true, "SPDY/3.1": true,
	} {
		conn := r.dial()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		got := headerLines(string(body))
		if (got.Get("Upgrade") != "") != pass || (got.Get("Connection") != "") != pass || got.Get("Http2-Settings") != "" {
			t.Errorf("Upgrade: %s: the backend got\n%s", upgrade, body)
		}
	}
}

// Half-closing passes through in both directions.
func TestUpgradeHalfClose(t *testing.T) {
	up := poolOf(t, startRaw(t, func(c net.Conn, br *bufio.Reader) {
		readHead(br)
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: testproto\r\n\r\n")
		all, _ := io.ReadAll(br) // ends when the client has closed its half
		io.WriteString(c, "got "+string(all))
	}))
	r := startRig(t, h1, up, nil)
	conn := r.dial()
	io.WriteString(conn, upgradeHead)
	br := bufio.NewReader(conn)
	if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	io.WriteString(conn, "request")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(br); string(got) != "got request" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// upgrade makes an upgraded connection through the rig.
func (r *memRig) upgrade(t *testing.T, s switcher) (client, backend net.Conn) {
	t.Helper()
	client = r.dial(t)
	io.WriteString(client, upgradeHead)
	res, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	return client, <-s.peer
}

func TestUpgradeIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := switcher{make(chan net.Conn, 1)}
		r := startMem(t, s, func(o *Options) { o.UpgradeIdleTimeout = time.Minute })
		defer r.stop()
		client, backend := r.upgrade(t, s)
		start := time.Now()
		buf := make([]byte, 8)
		for range 5 { // traffic in either direction keeps it open
			time.Sleep(50 * time.Second)
			if _, err := client.Write([]byte("up")); err != nil {
				t.Fatal(err)
			}
			backend.Read(buf)
			time.Sleep(50 * time.Second)
			if _, err := backend.Write([]byte("down")); err != nil {
				t.Fatal(err)
			}
			client.Read(buf)
		}
		if _, err := client.Read(buf); err != io.EOF {
			t.Errorf("client: %v, want EOF", err)
		}
		if idle := time.Since(start) - 500*time.Second; idle != time.Minute {
			t.Errorf("closed after %v of silence, want 1m", idle)
		}
		if _, err := backend.Read(buf); err == nil {
			t.Error("the backend's side is still open")
		}
		if rec := <-r.records; rec.BytesIn != 10 || rec.BytesOut != 20 || rec.Duration != 560*time.Second {
			t.Errorf("recorded %d in, %d out, %v", rec.BytesIn, rec.BytesOut, rec.Duration)
		}
	})
}

func TestUpgradesDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := switcher{make(chan net.Conn, 1)}
		var ups Upgrades
		r := startMem(t, s, func(o *Options) { o.Upgrades = &ups })
		defer r.stop()
		if err := ups.Drain(t.Context()); err != nil {
			t.Errorf("nothing to drain: %v", err)
		}
		short, _ := r.upgrade(t, s)
		long, _ := r.upgrade(t, s)
		time.AfterFunc(10*time.Second, func() { short.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		if err := ups.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain: %v", err)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("waited %v, want 30s", d)
		}
		if _, err := long.Read(make([]byte, 1)); err == nil {
			t.Error("the connection that stayed was not closed")
		}
		synctest.Wait()
		if ups.Len() != 0 {
			t.Errorf("%d connections left", ups.Len())
		}
		late := r.dial(t)
		io.WriteString(late, upgradeHead)
		if got, err := io.ReadAll(late); err != nil || len(got) != 0 {
			t.Errorf("an upgrade during the shutdown got %q, %v; want a closed connection", got, err)
		}
	})
}

func TestUpgradesDrainEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := switcher{make(chan net.Conn, 1)}
		var ups Upgrades
		r := startMem(t, s, func(o *Options) { o.Upgrades = &ups })
		defer r.stop()
		client, backend := r.upgrade(t, s)
		time.AfterFunc(10*time.Second, func() {
			client.Close()
			backend.Close()
		})
		start := time.Now()
		if err := ups.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("waited %v, want 10s", d)
		}
	})
}
