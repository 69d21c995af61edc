package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// drain ends the service in the order that loses least: say that we are not
// ready, let balancers notice, stop accepting, let requests in flight and then
// upgraded connections end, each within its grace. The end of now ends it at
// once. stopAccepting tells by its channel when the last handshake is over.
func (p *program) drain(now context.Context, stopAccepting func() <-chan struct{}) error {
	p.endReloads()
	p.reloading.Lock() // a reload in progress, which was cut short, ends first; no other begins
	p.draining.Store(true)
	shutdown := p.generation.Load().cfg.Shutdown
	p.reloading.Unlock()
	notifySystemd("STOPPING=1")

	wait(now, shutdown.Delay)
	p.web.announceClose()
	grace, cancel := context.WithTimeout(now, shutdown.Grace)
	defer cancel()
	p.drainHandshakes(grace, stopAccepting())
	var upgraded sync.WaitGroup
	upgraded.Go(func() { p.drainUpgrades(now, shutdown.UpgradedGrace) })
	err := p.drainRequests(grace)
	upgraded.Wait()
	return err
}

// drainHandshakes lets the handshakes under way end, so that their requests
// are served too. Whoever is silent in one must not outlast the grace.
func (p *program) drainHandshakes(grace context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-grace.Done():
		p.front.CutHandshakes()
		<-done
	}
}

func (p *program) drainRequests(grace context.Context) error {
	if err := p.web.shutdown(grace); err != nil {
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
func (p *program) finish(now context.Context) {
	p.plain.shutdown(now)
	p.generation.Load().end()
	p.generation.Load().closeIdle()
	p.access.shutdown(now)
	p.admin.shutdown(now)
}

// close gives up what was opened when a start fails half way.
func (p *program) close() {
	if p.shared != nil {
		p.shared.Close()
	}
}
