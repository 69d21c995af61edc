package main

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// httpLog is the ErrorLog of an http.Server. What it says of clients is detail;
// a panic in a handler is a fault of ours, and somebody must know.
func httpLog(to *slog.Logger) *log.Logger { return log.New(httpLines{to}, "", 0) }

// httpLines takes one line of net/http at a time.
type httpLines struct{ to *slog.Logger }

func (l httpLines) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	level, message := slog.LevelDebug, "http server"
	if strings.HasPrefix(text, "http: panic serving ") || strings.HasPrefix(text, "http2: panic serving ") {
		level, message = slog.LevelError, "panic while serving a request"
	}
	l.to.Log(context.Background(), level, message, "err", text)
	return len(line), nil
}
