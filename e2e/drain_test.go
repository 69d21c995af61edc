package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// rawClient is one connection of HTTP/1.1.
type rawClient struct {
	net.Conn
	r *bufio.Reader
}

func newRawClient(c net.Conn) *rawClient {
	c.SetDeadline(time.Now().Add(patience))
	return &rawClient{c, bufio.NewReader(c)}
}

// dialRaw opens a TLS connection.
func (p *proxy) dialRaw(pool *x509.CertPool) *rawClient {
	p.t.Helper()
	c, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "localhost", RootCAs: pool})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return newRawClient(c)
}

// answer reads one response and reports whether it ends the connection.
func (c *rawClient) answer() (closes bool, err error) {
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return false, err
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return false, err
	}
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("answered %s", res.Status)
	}
	return res.Close, nil
}

// wholeRequest is one request; cutRequest is it in two.
const wholeRequest = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok"

var cutRequest = [2]string{wholeRequest[:20], wholeRequest[20:]}

func (p *proxy) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	eventually(p.t, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// TestSIGTERMAwaitsRequests: a request that is on its way at SIGTERM is
// answered, on a new connection and on a kept one.
func TestSIGTERMAwaitsRequests(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	clients := map[string]*rawClient{"new": p.dialRaw(pool), "kept": p.dialRaw(pool), "new, without a byte": p.dialRaw(pool)}
	io.WriteString(clients["kept"], wholeRequest)
	if closes, err := clients["kept"].answer(); err != nil || closes {
		t.Fatalf("closes: %t, %v", closes, err)
	}
	for _, name := range []string{"new", "kept"} {
		io.WriteString(clients[name], cutRequest[0])
	}
	// What was sent has arrived when a later connection has been served.
	later := p.dialRaw(pool)
	io.WriteString(later, wholeRequest)
	if _, err := later.answer(); err != nil {
		t.Fatal(err)
	}
	p.terminate()
	io.WriteString(clients["new, without a byte"], cutRequest[0])
	for name, c := range clients {
		io.WriteString(c, cutRequest[1])
		if closes, err := c.answer(); err != nil || !closes {
			t.Errorf("%s: closes: %t, %v", name, closes, err)
		}
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestSIGTERMAwaitsHandshakes: connections that wait for their handshake at
// SIGTERM are served, the last of them too.
func TestSIGTERMAwaitsHandshakes(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	var raw []net.Conn
	for range 6 {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw = append(raw, c)
	}
	eventually(t, "they are accepted", func() bool { return p.metric("tlsproxy_connections", `state="handshaking"`) == 6 })
	p.terminate()
	for i, c := range raw {
		c := newRawClient(tls.Client(c, &tls.Config{ServerName: "localhost", RootCAs: pool}))
		io.WriteString(c, wholeRequest)
		if _, err := c.answer(); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestSIGTERMUnderKeepAliveLoad: clients that send one request after the other
// lose none: each is answered until an answer ends the connection.
func TestSIGTERMUnderKeepAliveLoad(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	const clients = 16
	var warm, all sync.WaitGroup
	warm.Add(clients)
	for i := range clients {
		c := p.dialRaw(pool)
		all.Go(func() {
			for n := 0; ; n++ {
				if n == 20 {
					warm.Done()
				}
				io.WriteString(c, wholeRequest)
				switch closes, err := c.answer(); {
				case err != nil:
					t.Errorf("client %d, request %d: %v", i, n, err)
					if n < 20 {
						warm.Done()
					}
					return
				case closes:
					return
				}
			}
		})
	}
	warm.Wait()
	p.signal(syscall.SIGTERM)
	all.Wait()
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestReloadKeepsPlainRequests: a reload that changes what the plain listener's
// server takes for its life drops no request that is on its way.
func TestReloadKeepsPlainRequests(t *testing.T) {

	p := startProxy(t, echoConfig)
	c, err := net.Dial("tcp", p.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := newRawClient(c)
	io.WriteString(client, cutRequest[0])
	p.writeConfig(echoConfig + "\ntimeouts: {idle: 77s}\n")
	p.mustReload()
	io.WriteString(client, cutRequest[1])
	res, err := http.ReadResponse(client.r, nil)
	if err != nil || res.StatusCode != http.StatusPermanentRedirect || !strings.HasPrefix(res.Header.Get("Location"), "https://localhost") {
		t.Fatalf("half a request at a reload: %v, %v", res, err)
	}
}
