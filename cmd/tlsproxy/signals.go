package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errStopped says that a second signal cut the drain short.
var errStopped = errors.New("stopped at once by a second signal: connections were cut")

// signals are those that the program listens to. Reloads and stops come in
// channels of their own, so that no number of reloads can displace a stop. Of
// reloads that come while one runs, one is kept: it will see what the others
// would have seen.
type signals struct {
	reload chan os.Signal
	stop   chan os.Signal // the first stop and the second
}

// catchSignals is done before anything else, so that an early signal is neither
// lost nor deadly.
func catchSignals() *signals {
	s := &signals{reload: make(chan os.Signal, 1), stop: make(chan os.Signal, 2)}
	signal.Notify(s.reload, syscall.SIGHUP)
	signal.Notify(s.stop, syscall.SIGTERM, syscall.SIGINT)
	// Whoever reads our standard output or error may go away. That fails the
	// writes to it; it does not end the program, as it would by default.
	signal.Ignore(syscall.SIGPIPE)
	return s
}

// release gives the signals back to their defaults.
func (s *signals) release() {
	signal.Stop(s.reload)
	signal.Stop(s.stop)
	signal.Reset(syscall.SIGPIPE)
}

// guard does work that a stop cuts short, and returns that stop; nil if none
// came.
func (s *signals) guard(work func(context.Context) error) (stop os.Signal, err error) {
	ctx, cut := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case stop = <-s.stop:
			cut()
		case <-ctx.Done():
		}
	}()
	err = work(ctx)
	cut()
	<-watched
	return stop, err
}

// untilStop returns a context that the next stop ends, with the cause
// errStopped. Cancel it when nobody needs it any more.
func (s *signals) untilStop() (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-s.stop:
			end(errStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(nil) }
}
