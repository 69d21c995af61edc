package store

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

// What go-redis says of itself goes to the logger as a line of it, at level
// debug, and no longer to standard error. Not parallel: there is one such logger.
func TestLogLibrary(t *testing.T) {
	t.Cleanup(quietLibrary)
	keys := writeKeys(t, filepath.Join(t.TempDir(), "keys"), strings.Repeat("01", 31)+"02")
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		var out lockedBuffer
		LogLibrary(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		s := open(t, Options{Mode: Sentinel, MasterName: "main", Addresses: []string{freeAddress(t)}, KeyFile: keys})
		if _, err := s.Sessions().Get(t.Context(), [16]byte{s.Sessions().Hint()}); err == nil {
			t.Fatal("a Sentinel that is not there answered")
		}
		if said := strings.Contains(out.take(), `level=DEBUG msg="redis client"`); said != (level == slog.LevelDebug) {
			t.Errorf("at level %v a line of go-redis: %v", level, said)
		}
	}
}
