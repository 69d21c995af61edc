package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// errStopped says that a second signal cut the drain short.
var errStopped = errors.New("stopped at once by a second signal: connections were cut")

// drain ends the service in the order that loses least: say that we are not
// ready, let balancers notice, stop accepting, let requests in flight and then
// upgraded connections end, each within its grace. A second signal ends it at
// once.
func (p *program) drain(signals <-chan os.Signal, stopAccepting func()) error {
	p.reloading.Lock() // a reload in progress ends first; no other begins
	p.draining.Store(true)
	shutdown := p.generation.Load().cfg.Shutdown
	p.reloading.Unlock()
	notifySystemd("STOPPING=1")

	now, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP {
					cut(errStopped)
				}
			case <-now.Done():
				return
			}
		}
	}()

	wait(now, shutdown.Delay)
	stopAccepting()
	var upgraded sync.WaitGroup
	upgraded.Go(func() { p.drainUpgrades(now, shutdown.UpgradedGrace) })
	err := p.drainRequests(now, shutdown.Grace)
	upgraded.Wait()
	if cause := context.Cause(now); cause != nil {
		return cause
	}
	return err
}

func (p *program) drainRequests(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.web.shutdown(ctx); err != nil {
		return errors.New("shutdown.grace ran out: requests in flight were cut")
	}
	return nil
}

func (p *program) drainUpgrades(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.upgrades.Drain(ctx); err != nil {
		p.log.Info("upgraded connections closed at the end of their grace")
	}
}

// wait sleeps for d or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// finish ends what has to answer or write until the last: the plain listener,
// the access log, and the admin listener after everything else.
func (p *program) finish() {
	p.plain.shutdown()
	p.generation.Load().retire()
	p.access.shutdown()
	p.admin.shutdown()
}

// close gives up what was opened when a start fails half way.
func (p *program) close() {
	if p.shared != nil {
		p.shared.Close()
	}
}
