package proxybench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// client makes connections and checks all that comes back.
type client struct {
	bench    *Bench
	addr     string
	version  uint16
	sessions tls.ClientSessionCache // nil: servers need not remember sessions
}

// groups lists P-256 behind X25519: it is never used for the exchange, but in TLS
// 1.2 it says that certificates of that curve are understood.
var groups = []tls.CurveID{tls.X25519, tls.CurveP256}

// patience bounds each operation.
const patience = 10 * time.Second

// dial connects and shakes hands. It is an error if the certificate is not the
// server's, or if the handshake was not of the kind wanted.
func (c *client) dial(resumed bool) (*tls.Conn, error) {
	raw, err := net.DialTimeout("tcp", c.addr, patience)
	if err != nil {
		return nil, err
	}
	if err := raw.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{
		ServerName:         "localhost",
		MinVersion:         c.version,
		MaxVersion:         c.version,
		CurvePreferences:   groups,
		NextProtos:         []string{"http/1.1"},
		ClientSessionCache: c.sessions,
		InsecureSkipVerify: true, // by VerifyConnection: it is the one certificate that there is
		VerifyConnection:   c.verify,
	})
	if err := conn.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	if got := conn.ConnectionState().DidResume; got != resumed {
		conn.Close()
		return nil, fmt.Errorf("resumed: %t, want %t", got, resumed)
	}
	return conn, nil
}

func (c *client) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, c.bench.leaf) {
		return errors.New("another certificate than the server's")
	}
	return nil
}

// stranger is a client that could resume but has nothing to resume, as most that
// make a full handshake: the server makes and remembers a session for it.
func (c client) stranger() *client {
	c.sessions = tls.NewLRUClientSessionCache(1)
	return &c
}

// visit makes a connection for one request.
func (c *client) visit(resumed bool) error {
	conn, err := c.dial(resumed)
	if err != nil {
		return err
	}
	defer conn.Close()
	return greet(conn, bufio.NewReader(conn))
}

const getGreeting = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: proxybench\r\nAccept: */*\r\n\r\n"

// greet asks for the greeting and checks it.
func greet(conn net.Conn, r *bufio.Reader) error {
	res, err := ask(conn, r, getGreeting)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if string(body) != greeting {
		return fmt.Errorf("wrong response %q", body)
	}
	return nil
}

func ask(conn net.Conn, r *bufio.Reader, request string) (*http.Response, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("status %d", res.StatusCode)
	}
	return res, nil
}

// fetchBulk downloads the bulk file once and checks every byte.
func (c *client) fetchBulk(conn net.Conn, r *bufio.Reader, buf []byte) error {
	res, err := ask(conn, r, "GET /bulk HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for i := range bulkBlocks {
		if _, err := io.ReadFull(res.Body, buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, c.bench.block) {
			return fmt.Errorf("block %d of the bulk file is wrong", i)
		}
	}
	if n, err := res.Body.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the bulk file: %d bytes, %w", n, err)
	}
	return nil
}
