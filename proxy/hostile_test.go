package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Requests whose end two servers could see in different places are refused, and
// nothing after them is taken for a request.
func TestSmuggling(t *testing.T) {
	var smuggled atomic.Int64
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if strings.Contains(r.URL.Path, "smuggled") {
			smuggled.Add(1)
		}
	})
	r := startRig(t, h1, up, nil)
	const post, next = "POST / HTTP/1.1\r\nHost: app.test\r\n", "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n"
	tests := map[string]string{
		"two lengths":            post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"length list":            post + "Content-Length: 5, 6\r\n\r\nhello",
		"negative length":        post + "Content-Length: -1\r\n\r\n",
		"plus sign":              post + "Content-Length: +5\r\n\r\nhello",
		"hexadecimal length":     post + "Content-Length: 0x5\r\n\r\nhello",
		"huge length":            post + "Content-Length: 99999999999999999999\r\n\r\n",
		"unknown coding":         post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"coding twice":           post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"coding with space":      post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"coding with tab":        post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"bare LF after size":     post + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
		"bare LF in extension":   post + "Transfer-Encoding: chunked\r\n\r\n5;a\nhello\r\n0\r\n\r\n",
		"bad chunk size":         post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"huge chunk size":        post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("f", 17) + "\r\n",
		"data after chunk":       post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
		"space before colon":     "GET / HTTP/1.1\r\nHost: app.test\r\nX-A : b\r\n\r\n",
		"folded header":          "GET / HTTP/1.1\r\n Host: app.test\r\n\r\n",
		"NUL in header":          "GET / HTTP/1.1\r\nHost: app.test\r\nX-A: a\x00b\r\n\r\n",
		"CR in header":           "GET / HTTP/1.1\r\nHost: app.test\r\nX-A: a\rContent-Length: 5\r\n\r\n",
		"no such version":        "GET / HTTP/3.7\r\nHost: app.test\r\n\r\n",
		"space in request line":  "GET / x HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"control in method":      "GE\x01T / HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"trailer that frames":    post + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
		"HTTP/2 preface in h1":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"not HTTP":               "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
		"trailing bytes in size": post + "Transfer-Encoding: chunked\r\n\r\n5 5\r\nhello\r\n0\r\n\r\n",
	}
	for name, request := range tests {
		t.Run(name, func(t *testing.T) {
			status, closed := r.raw(request + next)
			if status != 400 && status != 501 && status != 505 || !closed {
				t.Errorf("status %d, closed %t; want a refusal and a closed connection", status, closed)
			}
		})
	}
	// HTTP/1.0 knows no codings: what follows is anybody's guess (RFC 9112, section 6.1).
	if _, closed := r.raw("POST / HTTP/1.0\r\nHost: app.test\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next); !closed {
		t.Error("coding in HTTP/1.0: the connection stays open")
	}
	if n := smuggled.Load(); n != 0 {
		t.Errorf("%d smuggled requests reached the backend", n)
	}
}

// With both framings the coding counts (RFC 9112, section 6.1), and the backend sees
// one of them only.
func TestLengthAndCoding(t *testing.T) {
	heads := make(chan []string, 1)
	up := poolOf(t, startRaw(t, func(c net.Conn, br *bufio.Reader) {
		head, _ := readHead(br)
		heads <- head
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}))
	r := startRig(t, h1, up, nil)
	conn := r.dial()
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == 400 {
		return
	}
	head := strings.ToLower(strings.Join(<-heads, "\n"))
	if strings.Contains(head, "content-length") {
		t.Errorf("the backend got\n%s", head)
	}
}

// What a backend sends must not be able to smuggle a response either.
func TestHostileBackend(t *testing.T) {
	answers := map[string]string{
		"two lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"negative length":  "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
		"not HTTP":         "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"bad status":       "HTTP/1.1 2x0 OK\r\n\r\n",
		"status 000":       "HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
		"nothing":          "",
		"endless headers":  "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("x", 1000)+"\r\n", 1200),
		"header with CR":   "HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
		"unasked upgrade":  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"endless 1xx":      strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </"+strings.Repeat("x", 1000)+">\r\n\r\n", 5000),
		"unknown encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: magic\r\n\r\nx",
	}
	for name, answer := range answers {
		eachProtocol(t, func(t *testing.T, proto string) {
			up := poolOf(t, startRaw(t, func(c net.Conn, br *bufio.Reader) {
				readHead(br)
				io.WriteString(c, answer)
			}))
			r := startRig(t, proto, up, nil)
			res, err := r.client.Do(r.request("GET", "/", nil))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			res.Body.Close()
			if res.StatusCode != 502 {
				t.Errorf("%s: status %d, want 502", name, res.StatusCode)
			}
			if c := res.Header.Get("Set-Cookie"); c != "" {
				t.Errorf("%s: smuggled Set-Cookie %q", name, c)
			}
		})
	}
}

// h2Conn speaks frames.
type h2Conn struct {
	*http2.Framer
	conn *tls.Conn
	buf  bytes.Buffer
	enc  *hpack.Encoder
}

func dialH2(t *testing.T, r *rig) *h2Conn {
	t.Helper()
	conn := r.dial()
	c := &h2Conn{conn: conn, Framer: http2.NewFramer(conn, conn)}
	c.enc = hpack.NewEncoder(&c.buf)
	io.WriteString(conn, http2.ClientPreface)
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// get sends a GET; pairs of names and values are added.
func (c *h2Conn) get(t *testing.T, stream uint32, path string, fields ...string) {
	t.Helper()
	c.buf.Reset()
	all := append([]string{":method", "GET", ":scheme", "https", ":path", path}, fields...)
	for i := 0; i < len(all); i += 2 {
		c.enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.buf.Bytes(), EndHeaders: true, EndStream: true})
	if err != nil {
		t.Fatal(err)
	}
}

// status waits for the status on a stream, or "reset" or "goaway".
func (c *h2Conn) status(t *testing.T, stream uint32) string {
	t.Helper()
	status := ""
	dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status = f.Value
		}
	})
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			dec.Write(f.HeaderBlockFragment())
			if f.StreamID == stream {
				return status
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			return "goaway"
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.WriteSettingsAck()
			}
		}
	}
}

// HTTP/2 can say what HTTP/1 cannot; it must not get into an HTTP/1 request.
func TestHTTP2Injection(t *testing.T) {
	var lines atomic.Value
	up := poolOf(t, startRaw(t, func(c net.Conn, br *bufio.Reader) {
		head, _ := readHead(br)
		lines.Store(strings.Join(head, "\n"))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}))
	r := startRig(t, h2, up, nil)
	tests := []struct {
		name   string
		path   string
		fields []string
		want   string
	}{
		{"valid", "/x", []string{":authority", "app.test"}, "200"},
		{"valid with the same Host", "/x", []string{":authority", "app.test", "host", "app.test"}, "200"},
		{"space in path", "/a b HTTP/1.1", []string{":authority", "app.test"}, "400"},
		{"CRLF in path", "/a\r\nX: y", []string{":authority", "app.test"}, "reset"},
		{"empty path", "", []string{":authority", "app.test"}, "reset"},
		{"fragment", "/a#b", []string{":authority", "app.test"}, "400"},
		{"no authority", "/", nil, "400"},
		{"other Host", "/", []string{":authority", "app.test", "host", "other.test"}, "400"},
		{"CRLF in authority", "/", []string{":authority", "app.test\r\nX: y"}, "reset"},
		{"CRLF in value", "/", []string{":authority", "app.test", "x-a", "b\r\nX: y"}, "reset"},
		{"CRLF in name", "/", []string{":authority", "app.test", "x-a\r\nx", "b"}, "reset"},
		{"connection header", "/", []string{":authority", "app.test", "connection", "close"}, "400"},
		{"transfer-encoding", "/", []string{":authority", "app.test", "transfer-encoding", "chunked"}, "400"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dialH2(t, r)
			c.get(t, 1, tt.path, tt.fields...)
			if got := c.status(t, 1); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if head, _ := lines.Load().(string); strings.Contains(head, "X: y") {
				t.Errorf("the backend got\n%s", head)
			}
		})
	}
}

// Streams opened and reset at once cost the connection, not the server.
func TestRapidReset(t *testing.T) {
	var served atomic.Int64
	up := backend(t, func(w http.ResponseWriter, r *http.Request) { served.Add(1) })
	r := startRig(t, h2, up, nil)
	c := dialH2(t, r)
	go io.Copy(io.Discard, c.conn)
	c.AllowIllegalWrites = true
	for i := range uint32(20_000) {
		stream := 2*i + 1
		c.buf.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", "app.test"}} {
			c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		if c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.buf.Bytes(), EndHeaders: true, EndStream: true}) != nil {
			break // the server has had enough
		}
		if c.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
	}
	c.conn.Close()
	if res, _ := r.get("/"); res.StatusCode != 200 {
		t.Errorf("afterwards: status %d", res.StatusCode)
	}
	t.Logf("%d of 20000 reset requests reached the backend", served.Load())
}

// TestNoContentWithLength: a backend that gives a 204 a length, which has none,
// does not make the response a broken one over HTTP/2.
func TestNoContentWithLength(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n")
			c.Close()
		}
	}()
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, poolOf(t, "http://"+ln.Addr().String()), nil)
		resp, _ := r.get("/")
		if resp.StatusCode != http.StatusNoContent || resp.Header["Content-Length"] != nil {
			t.Errorf("%s with Content-Length %q", resp.Status, resp.Header["Content-Length"])
		}
	})
}
