package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// maxOrders bounds how many certificates are obtained at the same time.
const maxOrders = 16

// acmeRuntime is the part of a Store that exists while Run runs.
type acmeRuntime struct {
	mu      sync.Mutex
	runners map[*acmeSource]*acmeRunner
}

func (r *acmeRuntime) runner(a *acmeSource) *acmeRunner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runners[a]
}

func (r *acmeRuntime) set(a *acmeSource, runner *acmeRunner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runners == nil {
		r.runners = make(map[*acmeSource]*acmeRunner)
	}
	if runner == nil {
		delete(r.runners, a)
		return
	}
	r.runners[a] = runner
}

// runACME runs the ACME sources of whatever set is installed.
func (s *Store) runACME(ctx context.Context) error {
	var g errgroup.Group
	var library *acmeLibrary
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		g.Wait()
		if library != nil {
			library.close()
		}
	}()
	stops := make(map[*acmeSource]context.CancelFunc)
	for {
		sources := s.acmeSources()
		for a, stop := range stops {
			if !slices.Contains(sources, a) {
				stop()
				delete(stops, a)
			}
		}
		for _, a := range sources {
			if stops[a] != nil {
				continue
			}
			if library == nil {
				var err error
				if library, err = newACMELibrary(s.log); err != nil {
					return fmt.Errorf("acme: %w", err)
				}
				g.Go(func() error { library.keeper.run(ctx); return nil })
			}
			runCtx, stop := context.WithCancel(ctx)
			stops[a] = stop
			runner := s.newRunner(runCtx, a, library)
			g.Go(func() error { runner.run(); return nil })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.acmeWake:
		}
	}
}

func (s *Store) acmeSources() []*acmeSource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return providersOf[*acmeSource](s.set)
}

// acmeLibrary is what the ACME library needs once.
type acmeLibrary struct {
	cache  *certmagic.Cache
	keeper *portKeeper
	orders *semaphore.Weighted
}

func newACMELibrary(log *slog.Logger) (*acmeLibrary, error) {
	keeper, err := newPortKeeper()
	if err != nil {
		return nil, err
	}
	return &acmeLibrary{
		keeper: keeper,
		orders: semaphore.NewWeighted(maxOrders),
		cache: certmagic.NewCache(certmagic.CacheOptions{
			GetConfigForCert:   noConfig,
			RenewCheckInterval: libraryTick,
			OCSPCheckInterval:  obtainTimeout,
			Logger:             zap.New(&zapCore{log: log}),
		}),
	}, nil
}

// noConfig is never called: nothing is put into the library's cache.
func noConfig(certmagic.Certificate) (*certmagic.Config, error) {
	return nil, errors.New("certificates are not cached by the library")
}

func (l *acmeLibrary) close() {
	l.keeper.listener.Close()
	l.cache.Stop()
}

// acmeRunner runs the hosts of one source.
type acmeRunner struct {
	store  *Store
	source *acmeSource
	magic  *magic
	orders *semaphore.Weighted
	ctx    context.Context // ends with the runner: hosts are started in handshakes too

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func (s *Store) newRunner(ctx context.Context, a *acmeSource, l *acmeLibrary) *acmeRunner {
	r := &acmeRunner{
		store:  s,
		source: a,
		magic:  newMagic(a, l.cache, l.keeper, s.log),
		orders: l.orders,
		ctx:    ctx,
	}
	a.magic.Store(r.magic)
	s.acme.set(a, r)
	return r
}

// run runs all hosts until the runner's context is done.
func (r *acmeRunner) run() {
	r.store.mu.Lock()
	hosts := slices.Clone(r.source.hosts)
	r.store.mu.Unlock()
	for _, h := range hosts {
		r.start(h)
	}
	<-r.ctx.Done()
	r.store.acme.set(r.source, nil)
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
	if c := r.source.demand.client; c != nil {
		c.CloseIdleConnections()
	}
}

// start runs a host. It reports false when the runner has ended.
func (r *acmeRunner) start(h *acmeHost) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(func() { (&acmeWorker{acmeRunner: r, host: h}).run() })
	return true
}
