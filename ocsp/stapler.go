package ocsp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

const (
	defaultCapacity       = 256
	defaultTimeout        = 5 * time.Second
	defaultPrepareTimeout = 15 * time.Second
	pruneInterval         = 24 * time.Hour
	maxLoads              = 64
)

// Stapler keeps a response for every certificate it was told of and staples
// it. Make one with [New]. All methods are safe for concurrent use.
type Stapler struct {
	opts      Options
	log       *slog.Logger
	endpoints endpoints
	fetcher   *fetcher
	disk      *disk
	shared    *shared
	cache     *cache.Cache[[32]byte, *staple]
	random    func() float64 // in [0, 1)
	wake      chan struct{}  // an entry awaits its worker
	loads     chan struct{}  // as many slots as certificates are made known at a time: each reads files

	mu      sync.Mutex
	entries map[[32]byte]*entry
	orphans map[[32]byte]*entry // those whose issuer is not known yet
	asked   int                 // entries that can be asked about
	running bool
}

// New returns a stapler that works once [Stapler.Run] is called. It reads and
// contacts nothing.
func New(o Options) (*Stapler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.Capacity = cmp.Or(o.Capacity, defaultCapacity)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.PrepareTimeout = cmp.Or(o.PrepareTimeout, defaultPrepareTimeout)
	o.Now = wallClock(o.Now)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c, err := cache.New(cache.Options[[32]byte, *staple]{
		Capacity: o.Capacity,
		Shards:   1, // one exact order: room for every certificate is room for each
		Weigh:    func(_ [32]byte, s *staple) int64 { return int64(len(s.der)) + stapleOverhead },
	})
	if err != nil {
		return nil, err
	}
	transport := o.Transport
	if transport == nil {
		transport = newTransport(o.Timeout, stapleSlots, o.Proxy)
	}
	f := newFetcher(transport, stapleSlots, o.Timeout)
	f.now, f.log = o.Now, o.Logger
	return &Stapler{
		opts:      o,
		log:       o.Logger,
		endpoints: endpoints{overrides: o.Overrides, local: o.Local},
		fetcher:   f,
		disk:      newDisk(o.StateDir, o.Logger),
		shared:    &shared{store: o.Store, now: o.Now, log: o.Logger},
		cache:     c,
		random:    rand.Float64,
		wake:      make(chan struct{}, 1),
		loads:     make(chan struct{}, maxLoads),
		entries:   make(map[[32]byte]*entry),
		orphans:   make(map[[32]byte]*entry),
	}, nil
}

// stapleOverhead is what a staple weighs beside the response: the certificate
// copy and the staple itself.
const stapleOverhead = 256

func (o *Options) validate() error {
	var errs []error
	if o.Capacity < 0 {
		errs = append(errs, fmt.Errorf("ocsp: capacity %d is negative", o.Capacity))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("ocsp: timeout %v is negative", o.Timeout))
	}
	return errors.Join(append(errs, checkOverrides(o.Overrides))...)
}

func checkOverrides(overrides map[string]string) error {
	var errs []error
	for from, to := range overrides {
		if to == "" {
			continue
		}
		if err := checkURL(to); err != nil {
			errs = append(errs, fmt.Errorf("ocsp: override of %q: %w", from, err))
		}
	}
	return errors.Join(errs...)
}

// Prepare makes the stapler responsible for cert, whose Leaf must be set,
// before it is first served, and takes over what the state directory holds
// for it. Each Prepare is paired with one Release.
//
// It contacts nobody and returns at once, except for a must-staple
// certificate while Run is running: then it waits for the first staple, until
// ctx is done or Options.PrepareTimeout has passed, and after that returns nil
// all the same: the certificate is to be served, and the missing staple shows
// in the log and in the status. An error means that cert is unusable or that
// ctx is done; cert is then not registered.
func (s *Stapler) Prepare(ctx context.Context, cert *tls.Certificate) error {
	if cert == nil || cert.Leaf == nil || len(cert.Certificate) == 0 {
		return errors.New("ocsp: a certificate to be stapled needs its Leaf")
	}
	e, fresh, running := s.register(cert)
	if fresh {
		defer e.waiters.Add(-1)
	}
	if e.problem == "" && e.target.local != nil {
		s.refresh(ctx, e) // in this process: nobody to wait for
	}
	if !running || !e.mustStaple || e.problem != "" || s.opts.PrepareTimeout < 0 {
		return nil
	}
	if !fresh && e.waiters.Load() == 0 {
		return nil // in use; else another caller waits with the same leaf, in another chain perhaps
	}
	if err := s.awaitStaple(ctx, e); err != nil {
		s.Release(cert)
		return err
	}
	return nil
}

// register adds a reference to cert's entry, making it if need be. Whoever makes it
// is one of its waiters before any worker can see it: its first fetch may be over
// before its maker goes on.
func (s *Stapler) register(cert *tls.Certificate) (e *entry, fresh, running bool) {
	key := sha256.Sum256(cert.Certificate[0])
	if e, running := s.retain(key, nil); e != nil {
		return e, false, running
	}
	s.loads <- struct{}{}
	defer func() { <-s.loads }()
	made := s.newEntry(key, cert)
	made.waiters.Add(1)
	made.fetch.Lock() // nothing is fetched before we know what is stored
	defer made.fetch.Unlock()
	e, running = s.retain(key, made)
	if e != made {
		return e, false, running
	}
	s.begin(e)
	s.adopt(cert)
	return e, true, running
}

// begin has e, which is new, taken care of.
func (s *Stapler) begin(e *entry) {
	if e.problem == "" {
		s.disk.load(s, e)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// adopt looks in the chain of a new certificate for the issuer of those that
// have none yet: which of them is known first is a matter of chance.
func (s *Stapler) adopt(cert *tls.Certificate) {
	s.mu.Lock()
	orphans := slices.Collect(maps.Values(s.orphans))
	s.mu.Unlock()
	for _, old := range orphans {
		alone := &tls.Certificate{Certificate: append([][]byte{old.target.leaf.Raw}, cert.Certificate[1:]...), Leaf: old.target.leaf}
		if issuerOf(alone, nil) == nil {
			continue
		}
		made := s.newEntry(old.key, alone)
		made.fetch.Lock()
		if s.succeed(old, made) {
			s.begin(made)
		}
		made.fetch.Unlock()
	}
}

// succeed puts made in the place of old, unless something else did.
func (s *Stapler) succeed(old, made *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[old.key] == old && s.replace(old, made) == made
}

// retain adds a reference to the entry with that key. If there is none, or one
// whose issuer was not to be found, it needs fresh: without it, it returns nil.
func (s *Stapler) retain(key [32]byte, fresh *entry) (*entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil || e.problem == StateNoIssuer {
		if fresh == nil {
			return nil, s.running
		}
		e = s.replace(e, fresh)
	}
	e.refs++
	return e, s.running
}

// replace puts fresh in place of old, which may be nil and has no worker,
// unless that brings nothing. s.mu is held.
func (s *Stapler) replace(old, fresh *entry) *entry {
	if old != nil && fresh.problem != "" {
		return old
	}
	if old != nil { // the chain was completed
		fresh.refs = old.refs
	}
	s.entries[fresh.key] = fresh
	delete(s.orphans, fresh.key)
	if fresh.problem == StateNoIssuer {
		s.orphans[fresh.key] = fresh
	}
	if fresh.problem == "" {
		s.asked++
		s.fitCapacity()
	}
	return fresh
}

// fitCapacity keeps room for every staple in use. s.mu is held.
func (s *Stapler) fitCapacity() { s.cache.SetCapacity(max(s.opts.Capacity, s.asked)) }

func (s *Stapler) newEntry(key [32]byte, cert *tls.Certificate) *entry {
	e := &entry{
		key:        key,
		names:      namesOf(cert.Leaf),
		mustStaple: MustStaple(cert.Leaf),
		added:      s.opts.Now(),
		settled:    make(chan struct{}),
	}
	var err error
	e.target, err = s.endpoints.target(cert.Leaf, issuerOf(cert, s.opts.Issuer))
	switch ReasonOf(err) {
	case ReasonNoResponder:
		e.problem = StateNoResponder
		s.log.Debug("certificate names no ocsp responder", "certificate", e.name())
	case ReasonNoIssuer:
		e.problem = StateNoIssuer
		s.log.Warn("certificate cannot be stapled", "certificate", e.name(), "err", err)
	}
	if e.problem != "" {
		e.lastError, e.last = err, ReasonOf(err)
		if e.mustStaple {
			s.log.Error("must-staple certificate will be served without a staple", "certificate", e.name(), "err", err)
		}
	}
	return e
}

// awaitStaple waits until a must-staple certificate has its staple. Only the
// end of ctx is an error.
func (s *Stapler) awaitStaple(ctx context.Context, e *entry) error {
	e.waiters.Add(1)
	defer e.waiters.Add(-1)
	timeout := time.NewTimer(s.opts.PrepareTimeout)
	defer timeout.Stop()
	select {
	case <-e.settled:
		return nil
	case <-timeout.C:
		s.log.Error("must-staple certificate will be served without a staple",
			"certificate", e.name(), "waited", s.opts.PrepareTimeout, "err", e.problemNow())
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ocsp: waiting for the staple of %q: %w", e.name(), ctx.Err())
	}
}

func (e *entry) problemNow() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastError
}

// Release ends what Prepare began, when cert is served no more. What is kept
// in the state directory stays for a while, in case cert comes back.
func (s *Stapler) Release(cert *tls.Certificate) {
	if cert == nil || len(cert.Certificate) == 0 {
		return
	}
	key := sha256.Sum256(cert.Certificate[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return
	}
	if e.refs--; e.refs > 0 {
		return
	}
	delete(s.entries, key)
	delete(s.orphans, key)
	if e.stop != nil {
		e.stop()
	}
	e.mu.Lock()
	e.released = true
	s.cache.Delete(key)
	e.mu.Unlock()
	if e.problem == "" {
		s.asked--
		s.fitCapacity()
	}
}

// list returns the registered entries, ordered by name.
func (s *Stapler) list() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.name(), b.name()), slices.Compare(a.key[:], b.key[:]))
	})
	return entries
}
