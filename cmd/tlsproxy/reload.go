package main

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/metrics"
)

// reloadHistory remembers how reloads went.
type reloadHistory struct {
	mu       sync.Mutex
	good     uint64
	bad      uint64
	last     time.Time
	lastErr  error
	sequence uint64 // of generations put in force
}

// errDraining is the answer to a reload when there is nothing left to reload
// for.
var errDraining = errors.New("not reloaded: the proxy is shutting down")

// reload reads the configuration anew and puts it in force whole, or leaves
// everything as it is and says why.
func (p *program) reload(ctx context.Context) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	if p.draining.Load() {
		return errDraining
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	defer context.AfterFunc(p.reloadable, cut)()
	notifyReloading()
	defer notifySystemd("READY=1")
	p.reloadStoreKeys()
	err := p.reloadLocked(ctx)
	if errors.Is(err, context.Canceled) && p.reloadable.Err() != nil {
		p.log.Info("reload cut short, the proxy is shutting down")
		return errDraining
	}
	p.reloads.note(err)
	if err != nil {
		for _, e := range flatten(err) {
			p.log.Error("reload refused, the old configuration serves on", "err", e)
		}
		return err
	}
	p.log.Info("configuration reloaded", "generation", p.generation.Load().number)
	return nil
}

func (p *program) reloadLocked(ctx context.Context) error {
	cfg, err := config.Load(p.path)
	if err != nil {
		return err
	}
	if err := needsRestart(p.generation.Load().cfg, cfg); err != nil {
		return err
	}
	return p.takeOver(ctx, cfg)
}

// takeOver makes a generation of a configuration and puts it in force: first
// everything that can fail, then what cannot.
func (p *program) takeOver(ctx context.Context, cfg *config.Config) error {
	g, err := p.buildParts(cfg)
	if err != nil {
		return err
	}
	if err := p.load(ctx, g); err != nil {
		return err
	}
	g.number = p.reloads.next()
	p.logs.configure(p.stderr, cfg.Log)
	if err := p.resumer.SetLimits(sessionLimits(cfg.Sessions)); err != nil {
		// config has validated the same bounds; what is in force stays.
		p.log.Error("session limits not changed", "err", err)
	}
	p.install(g)
	return nil
}

// needsRestart refuses changes of what is made once. To apply the rest would
// leave a state that no file describes.
func needsRestart(old, next *config.Config) error {
	var errs []error
	for _, part := range []struct {
		path      string
		old, next any
	}{
		{"state_dir", old.StateDir, next.StateDir},
		{"store", old.Store, next.Store},
		{"ocsp", old.OCSP, next.OCSP},
		{"sessions.max_bytes", old.Sessions.MaxBytes, next.Sessions.MaxBytes},
	} {
		if !reflect.DeepEqual(part.old, part.next) {
			errs = append(errs, next.At(part.path, errors.New("changed, which takes effect only by a restart; nothing was reloaded")))
		}
	}
	return errors.Join(errs...)
}

func (h *reloadHistory) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.lastErr = time.Now(), err
	if err != nil {
		h.bad++
	} else {
		h.good++
	}
}

// next numbers the generation that is about to be put in force.
func (h *reloadHistory) next() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sequence++
	return h.sequence
}

// configStats tells metrics which configuration is in force.
func (p *program) configStats() metrics.ConfigStats {
	p.reloads.mu.Lock()
	defer p.reloads.mu.Unlock()
	stats := metrics.ConfigStats{
		Reloads: p.reloads.good, ReloadFailures: p.reloads.bad, LastFailed: p.reloads.lastErr != nil,
	}
	if g := p.generation.Load(); g != nil {
		stats.Generation, stats.Loaded = g.number, g.loaded
	}
	return stats
}
