package front

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"time"
)

// linger bounds how long a client that was answered in plain HTTP may take to
// read the answer.
const linger = time.Second

// plainAnswer is sent to clients that speak HTTP without TLS.
const plainAnswer = "This port speaks HTTPS only, and you sent a plain HTTP request.\n" +
	"Use an address that begins with https://\n"

// looksLikeHTTP reports whether the first bytes of a connection begin an HTTP
// request: a method of RFC 9110, or the preface of HTTP/2.
func looksLikeHTTP(first []byte) bool {
	for _, method := range []string{
		"GET /", "HEAD ", "POST ", "PUT /", "DELETE ", "CONNECT ", "OPTIONS ", "TRACE ", "PATCH ", "PRI *",
	} {
		if n := min(len(first), len(method)); n >= 4 && string(first[:n]) == method[:n] {
			return true
		}
	}
	return false
}

// looksLikeProxyHeader reports whether the first bytes begin a PROXY header.
func looksLikeProxyHeader(first []byte) bool {
	return bytes.HasPrefix(first, []byte("PROXY")) || bytes.HasPrefix(first, []byte("\r\n\r\n\x00"))
}

// answerPlainHTTP tells the client in its own language what is wrong. It then
// closes in the order that lets the answer arrive: a close with unread input
// resets the connection and would destroy it.
func answerPlainHTTP(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(linger))
	_, err := fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(plainAnswer), plainAnswer)
	if err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 256<<10))
	}
}
