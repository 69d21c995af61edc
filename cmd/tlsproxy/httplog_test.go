package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// linesTo hands each line that a log writes to a channel.
type linesTo chan string

func (l linesTo) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestPanicIsAnError: a panic in a handler, over either version of HTTP, is an
// error in the log; other lines of net/http are not.
func TestPanicIsAnError(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		lines := make(linesTo, 100)
		logger := slog.New(slog.NewTextHandler(lines, nil))
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("ouch") }))
		server.Config.ErrorLog = httpLog(logger)
		server.EnableHTTP2 = http2
		server.StartTLS()
		if res, err := server.Client().Get(server.URL); err == nil {
			res.Body.Close()
			t.Errorf("HTTP/2 %v: answered %s", http2, res.Status)
		}
		got := <-lines // HTTP/2 tells the client first
		server.Close()
		if !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "ouch") {
			t.Errorf("HTTP/2 %v: the log says %q", http2, got)
		}
	}
	var out strings.Builder
	httpLog(slog.New(slog.NewTextHandler(&out, nil))).Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	if got := out.String(); got != "" {
		t.Errorf("a client's doing is logged: %q", got)
	}
}
