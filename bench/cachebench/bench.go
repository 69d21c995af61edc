package cachebench

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Bench runs the measurements.
type Bench struct {
	ctx   context.Context
	dir   string    // for the compiled Java program
	log   io.Writer // what is going on
	quick bool
}

// Options say how to measure.
type Options struct {
	Log   io.Writer // progress
	Quick bool      // smaller caches and fewer rounds
}

// New prepares a run. Close it at the end.
func New(ctx context.Context, o Options) (*Bench, error) {
	dir, err := os.MkdirTemp("", "cachebench")
	if err != nil {
		return nil, err
	}
	return &Bench{ctx: ctx, dir: dir, log: o.Log, quick: o.Quick}, nil
}

// Close removes what the run left behind.
func (b *Bench) Close() error { return os.RemoveAll(b.dir) }

func (b *Bench) say(format string, args ...any) {
	fmt.Fprintf(b.log, format+"\n", args...)
}
