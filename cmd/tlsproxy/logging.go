package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/tlsproxy/tlsproxy/config"
)

// logHandler is the program's log. A reload changes its level and format under
// every logger that was ever handed out.
type logHandler struct {
	current *atomic.Pointer[slog.Handler]
	// derive repeats the WithAttrs and WithGroup calls that led here.
	derive func(slog.Handler) slog.Handler
}

func newLogHandler(w io.Writer, c config.Log) *logHandler {
	h := &logHandler{current: new(atomic.Pointer[slog.Handler]), derive: func(h slog.Handler) slog.Handler { return h }}
	h.configure(w, c)
	return h
}

// configure puts a configuration in force.
func (h *logHandler) configure(w io.Writer, c config.Log) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // config admits the words that slog knows
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationsInWords}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if c.Format == config.LogText {
		handler = slog.NewTextHandler(w, options)
	}
	h.current.Store(&handler)
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return (*h.current.Load()).Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.derive(*h.current.Load()).Handle(ctx, r)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derive := h.derive
	return &logHandler{h.current, func(base slog.Handler) slog.Handler { return derive(base).WithAttrs(attrs) }}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	derive := h.derive
	return &logHandler{h.current, func(base slog.Handler) slog.Handler { return derive(base).WithGroup(name) }}
}

// durationsInWords writes durations as people do in both formats; in JSON slog
// would write nanoseconds.
func durationsInWords(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
