package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// webRig is a webServer on a network in memory. Its connections are without TLS
// unless a test says otherwise, and so of HTTP/1.
type webRig struct {
	*webServer
	t       *testing.T
	network memnet.Network
	release chan struct{} // lets /slow go on
}

const webAddr = "192.0.2.1:443"

// startWeb serves in a synctest bubble.
func startWeb(t *testing.T, wrap func(net.Listener) net.Listener) *webRig {
	t.Helper()
	r := &webRig{t: t, release: make(chan struct{})}
	ln, err := r.network.Listen("tcp", webAddr)
	if err != nil {
		t.Fatal(err)
	}
	var conns net.Listener = ln
	if wrap != nil {
		conns = wrap(conns)
	}
	r.webServer = newWebServer(conns, http.HandlerFunc(r.answer), slog.New(slog.DiscardHandler))
	r.configure(webTestSettings)
	go r.run()
	return r
}

var webTestSettings = webSettings{
	readHeader: 10 * time.Second, idle: 2 * time.Minute, write: time.Minute, maxHeader: 64 << 10, maxStreams: 250,
}

func (r *webRig) answer(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/slow":
		<-r.release
	case "/events":
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
		return
	}
	if r.closing.Load() {
		w.Header().Set("Connection", "close") // as proxy does
	}
	body, _ := io.ReadAll(req.Body)
	w.Write(body)
}

// webClient is one connection of a client of HTTP/1.
type webClient struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (r *webRig) dial() *webClient {
	r.t.Helper()
	c, err := r.network.Dial("tcp", webAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait() // it has reached its server
	return &webClient{c, r.t, bufio.NewReader(c)}
}

func (c *webClient) send(text string) { io.WriteString(c, text) }

// answered wants the next response to be 200, and to say what becomes of the
// connection.
func (c *webClient) answered(closes bool) {
	c.t.Helper()
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("no response: %v", err)
	}
	io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK || res.Close != closes {
		c.t.Errorf("status %d, close %t; want 200, %t", res.StatusCode, res.Close, closes)
	}
}

// ends wants the connection to be closed.
func (c *webClient) ends() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); err == nil {
		c.t.Errorf("read %q, %v; want the end", b, err)
	}
}

// end shuts down in the background and tells how long it took and its result.
func (r *webRig) end(grace time.Duration) func() (time.Duration, error) {
	start := time.Now()
	var took time.Duration
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err = r.shutdown(ctx)
		took = time.Since(start)
	}()
	return func() (time.Duration, error) { <-done; return took, err }
}

const half, rest = "POST / HTTP/1.1\r\nHost: app.", "test\r\nContent-Length: 2\r\n\r\nok"

// Requests that are on their way when the end begins are answered: on a new
// connection and on a kept one, begun before and after.
func TestShutdownAwaitsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWeb(t, nil)
		fresh, freshLate, kept, keptLate := r.dial(), r.dial(), r.dial(), r.dial()
		for _, c := range []*webClient{kept, keptLate} {
			c.send(half + rest)
			c.answered(false)
		}
		fresh.send(half)
		kept.send(half)
		synctest.Wait()
		ended := r.end(30 * time.Second)
		time.Sleep(keptLooks * lookEvery / 2)
		keptLate.send(half + rest)
		time.Sleep(2 * time.Second)
		freshLate.send(half + rest)
		time.Sleep(3 * time.Second)
		fresh.send(rest)
		kept.send(rest)
		for _, c := range []*webClient{fresh, freshLate, kept, keptLate} {
			c.answered(true)
			c.ends()
		}
		if took, err := ended(); err != nil || took > 7*time.Second {
			t.Errorf("ended after %v with %v", took, err)
		}
	})
}

// Connections on which nothing comes do not hold the end up for long.
func TestShutdownClosesQuietConnections(t *testing.T) {
	for _, c := range []struct {
		name  string
		sends string
		want  time.Duration // at most
	}{
		{"new", "", (freshLooks + 2) * lookEvery},
		{"kept", half + rest, (keptLooks + 2) * lookEvery},
		{"half a header", half, 11 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startWeb(t, nil)
				client := r.dial()
				defer client.Close()
				client.send(c.sends)
				if c.sends == half+rest {
					client.answered(false)
				}
				synctest.Wait()
				if took, err := r.end(30 * time.Second)(); err != nil || took > c.want {
					t.Errorf("ended after %v with %v, want at most %v", took, err, c.want)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// A response in flight whose header is gone could not tell its client that the
// connection ends: the next request is answered and does.
func TestShutdownAnswersWhoWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWeb(t, nil)
		c := r.dial()
		c.send("GET /slow HTTP/1.1\r\nHost: app.test\r\n\r\n")
		synctest.Wait()
		ended := r.end(30 * time.Second)
		time.Sleep(10 * time.Second)
		r.closing.Store(false) // as if its header had been sent before
		close(r.release)
		c.answered(false)
		r.closing.Store(true)
		c.send(half + rest)
		c.answered(true)
		if took, err := ended(); err != nil || took > 11*time.Second {
			t.Errorf("ended after %v with %v", took, err)
		}
	})
}

// What does not end within the grace is cut, and reported.
func TestShutdownGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWeb(t, nil)
		c := r.dial()
		c.send("GET /slow HTTP/1.1\r\nHost: app.test\r\n\r\n")
		synctest.Wait()
		if took, err := r.end(5 * time.Second)(); err == nil || took != 5*time.Second {
			t.Errorf("ended after %v with %v, want 5s and an error", took, err)
		}
		c.ends()
		close(r.release)
	})
}

// A connection that was accepted when the end begins gets its server.
func TestShutdownAfterAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := startWeb(t, func(ln net.Listener) net.Listener { return heldListener{ln, hold} })
		c := r.dial()
		c.send(half + rest)
		ended := r.end(30 * time.Second)
		synctest.Wait()
		close(hold)
		c.answered(true)
		if _, err := ended(); err != nil {
			t.Error(err)
		}
	})
}

// heldListener holds what it has accepted until hold is closed.
type heldListener struct {
	net.Listener
	hold chan struct{}
}

func (l heldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		<-l.hold
	}
	return c, err
}

// A server that a reload retired is dropped with its last connection.
func TestRetiredServersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWeb(t, nil)
		old := r.dial()
		settings := webTestSettings
		for range 10 {
			settings.idle += time.Second
			r.configure(settings)
		}
		synctest.Wait()
		if n := len(r.servers); n != 2 {
			t.Errorf("%d servers while the first has a connection, want 2", n)
		}
		old.send(half + rest)
		old.answered(false)
		old.Close()
		synctest.Wait()
		if n := len(r.servers); n != 1 {
			t.Errorf("%d servers, want 1", n)
		}
		if _, err := r.end(time.Minute)(); err != nil {
			t.Error(err)
		}
	})
}

// h2Rig is a server of HTTP/2 over TLS with one client connected.
type h2Rig struct {
	*http2.Framer
	server *httpServer
	ln     net.Listener
	conn   *tls.Conn
}

// startH2 serves in a synctest bubble.
func startH2(t *testing.T) *h2Rig {
	t.Helper()
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(pki.Request{Names: []string{"app.test"}})
	if err != nil {
		t.Fatal(err)
	}
	web := &webRig{webServer: new(webServer)}
	ln, err := web.network.Listen("tcp", webAddr)
	if err != nil {
		t.Fatal(err)
	}
	r := &h2Rig{ln: ln}
	r.server = newHTTPServer(webTestSettings.server(http.HandlerFunc(web.answer), slog.New(slog.DiscardHandler)), true)
	r.server.serve(tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}}), func(error) {})
	raw, err := web.network.Dial("tcp", webAddr)
	if err != nil {
		t.Fatal(err)
	}
	r.conn = tls.Client(raw, &tls.Config{RootCAs: ca.Pool(), ServerName: "app.test", NextProtos: []string{"h2"}})
	io.WriteString(r.conn, http2.ClientPreface)
	r.Framer = http2.NewFramer(r.conn, r.conn)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// get sends a GET, its header in literals.
func (r *h2Rig) get(path string) {
	block := append([]byte{0x82, 0x87, 0x01, 8}, "app.test"...)
	block = append(append(block, 0x04, byte(len(path))), path...)
	r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndStream: true, EndHeaders: true})
}

// end closes what is open.
func (r *h2Rig) end() {
	r.conn.Close()
	r.ln.Close()
	r.server.wait()
}

// A client that is gone without a word does not hold its silent streams.
func TestDeadHTTP2PeerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startH2(t)
		defer r.end()
		r.get("/events")
		start := time.Now()
		r.conn.SetReadDeadline(start.Add(time.Hour))
		var err error
		for err == nil {
			_, err = r.ReadFrame()
		}
		if took := time.Since(start); took > pingAfter+pingTimeout+10*time.Second {
			t.Errorf("closed after %v: %v", took, err)
		}
	})
}

// The first request of a new HTTP/2 connection is served although the end has
// begun.
func TestShutdownAwaitsFirstHTTP2Request(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startH2(t)
		defer r.end()
		synctest.Wait()
		r.ln.Close()
		ended := make(chan error)
		go func() { ended <- r.server.shutdown(t.Context()) }()
		time.Sleep(keptLooks * lookEvery / 2)
		r.get("/")
		answered := false
		for {
			frame, err := r.ReadFrame()
			if err != nil {
				break
			}
			if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamID == 1 {
				answered = true
			}
		}
		if err := <-ended; err != nil || !answered {
			t.Errorf("answered: %t, %v", answered, err)
		}
	})
}
