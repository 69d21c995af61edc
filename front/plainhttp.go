package front

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// How long, and for how many bytes, a refused client is read on.
const (
	linger      = time.Second
	lingerBytes = 256 << 10
)

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

// answerPlainHTTP tells the client in its own language what is wrong.
func answerPlainHTTP(c *conn) {
	_ = c.SetDeadline(time.Now().Add(linger))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(plainAnswer), plainAnswer)
}

// lingerClose ends the writing side and reads on for a moment. A close with
// unread input resets the connection, which would destroy the alert or answer
// that is under way to the client.
func lingerClose(c *conn) {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(linger))
	_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, lingerBytes))
}
