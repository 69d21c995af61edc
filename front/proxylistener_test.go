package front

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

func TestProxyListener(t *testing.T) {
	var network memnet.Network
	ln, err := network.Listen("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	l := NewProxyListener(ln)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	defer func() { server.Close(); <-done }()

	const real = "198.51.100.7:1234"
	v1, v2 := header(t, 1, real, "192.0.2.1:80"), header(t, 2, real, "192.0.2.1:80")
	for _, test := range []struct {
		mode   ProxyMode
		from   string
		header []byte
		want   string // address seen, "" when refused, "400" when the header is bad HTTP
	}{
		{ProxyOff, stranger, nil, stranger},
		{ProxyOff, trustedProxy, v1, "400"},
		{ProxyOptional, trustedProxy, nil, trustedProxy},
		{ProxyOptional, trustedProxy, v1, real},
		{ProxyOptional, trustedProxy, v2, real},
		{ProxyOptional, stranger, nil, stranger},
		{ProxyOptional, stranger, v1, "400"},
		{ProxyRequired, trustedProxy, v2, real},
		{ProxyRequired, trustedProxy, nil, ""},
		{ProxyRequired, stranger, nil, ""},
		{ProxyRequired, stranger, v2, ""},
	} {
		l.Configure(test.mode, mustPrefixes("10.0.0.0/8"))
		c, err := network.DialFrom(t.Context(), test.from, "192.0.2.1:80")
		if err != nil {
			t.Fatal(err)
		}
		got := askPlain(c, test.header)
		if got != test.want {
			t.Errorf("%s, from %s, header %.12q: %q; want %q", test.mode, test.from, test.header, got, test.want)
		}
	}
}

// askPlain asks a plain HTTP server for a page.
func askPlain(c net.Conn, header []byte) string {
	defer c.Close()
	_, _ = c.Write(append(append([]byte{}, header...), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"...))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "400"
	}
	body, _ := io.ReadAll(res.Body)
	return string(body)
}
