package store

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogLibrary sends what go-redis says of itself to log, at level debug: the
// Store logs each change of state already. go-redis has one logger for the whole
// process, which writes to standard error in a form of its own, so this is for
// a program to call, once, and nothing that [New] does. It may be called any
// time. nil means slog.Default().
func LogLibrary(log *slog.Logger) {
	if log == nil {
		log = slog.Default()
	}
	redis.SetLogger(libraryLog{log})
}

type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis client", "says", fmt.Sprintf(format, v...))
	}
}
