package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/proxy"
)

// accessLog is the access log of the configuration in force: none, or one
// whose output a reload may change.
type accessLog struct {
	stdout, stderr io.Writer
	log            *slog.Logger

	mu      sync.Mutex
	next    *proxy.AccessLog // prepared, not yet installed
	reopen  *proxy.Reopening // the same for the log in force; nil: nothing to reopen
	nextCfg config.AccessLog
	cfg     config.AccessLog
	stop    context.CancelFunc
	running sync.WaitGroup
	written proxy.AccessLogStats // by logs that were replaced

	current atomic.Pointer[proxy.AccessLog] // nil: off
}

func newAccessLog(stdout, stderr io.Writer, log *slog.Logger) *accessLog {
	return &accessLog{stdout: stdout, stderr: stderr, log: log}
}

// Request hands a record to the log in force.
func (a *accessLog) Request(r *proxy.Record) {
	if l := a.current.Load(); l != nil {
		l.Request(r)
	}
}

// prepare opens what a configuration names. A file that is open is opened anew,
// for log rotation.
func (a *accessLog) prepare(c config.AccessLog) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextCfg = c
	if c.Output == "off" {
		return nil
	}
	if c == a.cfg {
		reopen, err := a.current.Load().Reopen()
		a.reopen = reopen
		return err
	}
	options := proxy.AccessLogOptions{Query: c.Query, Logger: a.log}
	switch c.Output {
	case "stdout":
		options.Writer = a.stdout
	case "stderr":
		options.Writer = a.stderr
	default:
		options.Path = c.Output
	}
	next, err := proxy.NewAccessLog(options)
	a.next = next
	return err
}

// discard gives up what prepare opened.
func (a *accessLog) discard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reopen.Discard()
	a.reopen = nil
	if a.next != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		a.report(a.next.Run(ended)) // writes what there is, which is nothing, and closes
		a.next = nil
	}
}

// install puts what was prepared in force; the one before writes what it has
// and closes.
func (a *accessLog) install() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nextCfg == a.cfg {
		a.reopen.Install()
		a.reopen = nil
		return
	}
	a.cfg = a.nextCfg
	old := a.current.Swap(a.next)
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
	if old != nil {
		stats := old.Stats()
		a.written.Written += stats.Written
		a.written.Dropped += stats.Dropped
	}
	if a.next == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	current := a.next
	a.stop, a.next = stop, nil
	a.running.Go(func() { a.report(current.Run(ctx)) })
}

func (a *accessLog) report(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		a.log.Error("access log", "err", err)
	}
}

// accessLogGrace bounds how long whoever reads the log may hold up the end.
const accessLogGrace = 5 * time.Second

// shutdown writes what is left and closes. A reader of the log that takes
// nothing is not waited for when the grace is over or now ends.
func (a *accessLog) shutdown(now context.Context) {
	a.mu.Lock()
	if a.stop != nil {
		a.stop()
	}
	a.mu.Unlock()
	written := make(chan struct{})
	go func() {
		defer close(written)
		a.running.Wait()
	}()
	grace, cancel := context.WithTimeout(now, accessLogGrace)
	defer cancel()
	select {
	case <-written:
	case <-grace.Done():
		a.log.Error("access log not written to its end: nobody reads it")
	}
}

// stats counts records since the start.
func (a *accessLog) stats() proxy.AccessLogStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.written
	if l := a.current.Load(); l != nil {
		stats := l.Stats()
		sum.Written += stats.Written
		sum.Dropped += stats.Dropped
	}
	return sum
}
