package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/tlsproxy/tlsproxy/config"
)

// serve runs the proxy until it is told to stop.
func serve(cfg *config.Config, path string, stdout, stderr io.Writer) error {
	// Signals are caught first, so that an early one is not lost.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	p, err := newProgram(cfg, path, stdout, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.takeOver(context.Background(), cfg); err != nil {
		return err
	}
	return p.run(signals)
}

// run does all work until a signal, POST /api/quit or a fault ends it.
func (p *program) run(signals <-chan os.Signal) error {
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
	for _, run := range p.background() {
		group.Go(func() error { return run(work) })
	}
	p.log.Info("serving", "version", versionString(), "pid", os.Getpid(), "config", p.path)
	notifySystemd("READY=1")

	p.await(work, signals)
	err := p.drain(signals, func() { stopAccept(); <-accepted })
	stopWork()
	if workErr := group.Wait(); workErr != nil && !errors.Is(workErr, context.Canceled) {
		err = errors.Join(workErr, err)
	}
	p.finish()
	return err
}

// background is the work of the parts that live for the whole program.
func (p *program) background() []func(context.Context) error {
	runs := []func(context.Context) error{p.certs.Run, p.resumer.Run, p.watchMemory}
	if p.stapler != nil {
		runs = append(runs, p.stapler.Run)
	}
	if p.shared != nil {
		runs = append(runs, p.shared.Run)
	}
	return runs
}

// await serves signals until it is time to drain. A reload that runs then is
// cut short.
func (p *program) await(work context.Context, signals <-chan os.Signal) {
	reload, cut := context.WithCancel(work)
	var reloads sync.WaitGroup
	defer reloads.Wait()
	defer cut()
	for {
		select {
		case <-work.Done():
			return // a part ended with an error
		case <-p.quit:
			p.log.Info("shutting down", "cause", "POST /api/quit")
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				p.log.Info("shutting down", "cause", fmt.Sprint(s))
				return
			}
			reloads.Go(func() { p.reload(reload) }) //nolint:errcheck // It is logged, counted and shown there.
		}
	}
}
