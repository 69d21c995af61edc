package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/tlsproxy/tlsproxy/config"
)

// serve runs the proxy until it is told to stop.
func serve(path string, stdout, stderr io.Writer) error {
	signals := catchSignals()
	defer signals.release()
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	p, err := newProgram(cfg, path, stdout, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	stop, err := signals.guard(func(ctx context.Context) error { return p.takeOver(ctx, cfg) })
	switch {
	case stop != nil && (err == nil || errors.Is(err, context.Canceled)):
		p.log.Info("stopped while starting", "cause", fmt.Sprint(stop))
		return nil
	case err != nil:
		return err
	}
	return p.run(signals)
}

// run does all work until a signal, POST /api/quit or a fault ends it.
func (p *program) run(signals *signals) error {
	work, stopWork := context.WithCancel(context.Background())
	defer stopWork()
	accept, stopAccept := context.WithCancel(work)
	defer stopAccept()

	group, work := errgroup.WithContext(work)
	accepted := make(chan struct{})
	group.Go(func() error {
		defer close(accepted)
		return p.front.Run(accept)
	})
	group.Go(p.web.run)
	group.Go(func() error { return p.reloadOn(signals.reload) })
	for _, run := range p.background() {
		group.Go(func() error { return run(work) })
	}
	p.log.Info("serving", "version", versionString(), "pid", os.Getpid(), "config", p.path)
	notifySystemd("READY=1")

	p.await(work, signals.stop)
	now, release := signals.untilStop()
	defer release()
	err := p.drain(now, func() <-chan struct{} { stopAccept(); return accepted })
	stopWork()
	if workErr := group.Wait(); workErr != nil && !errors.Is(workErr, context.Canceled) {
		err = errors.Join(workErr, err)
	}
	p.finish(now)
	if cause := context.Cause(now); cause != nil {
		return cause
	}
	return err
}

// background is the work of the parts that live for the whole program.
func (p *program) background() []func(context.Context) error {
	runs := []func(context.Context) error{p.certs.Run, p.resumer.Run, p.watchMemory, p.paceCollector}
	if p.stapler != nil {
		runs = append(runs, p.stapler.Run)
	}
	if p.shared != nil {
		runs = append(runs, p.shared.Run)
	}
	if p.storeClient != nil {
		runs = append(runs, p.storeClient.Run)
	}
	return runs
}

// await waits until it is time to drain.
func (p *program) await(work context.Context, stop <-chan os.Signal) {
	select {
	case <-work.Done(): // a part ended with an error
	case <-p.quit:
		p.log.Info("shutting down", "cause", "POST /api/quit")
	case s := <-stop:
		p.log.Info("shutting down", "cause", fmt.Sprint(s))
	}
}

// reloadOn reloads at each signal, one after the other, until the drain begins.
func (p *program) reloadOn(signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			p.reload(p.reloadable) //nolint:errcheck // It is logged, counted and shown there.
		case <-p.reloadable.Done():
			return nil
		}
	}
}
