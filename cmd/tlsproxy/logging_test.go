package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
)

// TestDurationsInTheLog: a duration reads the same in both formats, in groups
// too.
func TestDurationsInTheLog(t *testing.T) {
	for format, want := range map[config.LogFormat][]string{
		config.LogJSON: {`"waited":"15s"`, `"pause":"1m30s"`, `"n":15`},
		config.LogText: {"waited=15s", "g.pause=1m30s", "n=15"},
	} {
		var out strings.Builder
		log := slog.New(newLogHandler(&out, config.Log{Level: "info", Format: format}))
		log.Info("message", "waited", 15*time.Second, "n", 15, slog.Group("g", "pause", 90*time.Second))
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: %s; want %s", format, out.String(), w)
			}
		}
	}
}
