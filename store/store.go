package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Store is a connection to the servers that a fleet shares. Make one with
// [New]; its methods are safe for concurrent use.
type Store struct {
	o      Options
	log    *slog.Logger
	client redis.UniversalClient
	keys   keyFile

	mu      sync.Mutex
	servers map[string]*server // by address; one without an address stands for the whole

	resealing   chan struct{} // there is another active key
	revocations revocationStatus
	published   atomic.Bool // a revocation, since they were looked at
	counters
}

// New returns a Store, or every error in o and its files. It contacts nothing.
func New(o Options) (*Store, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	s := &Store{
		o: o, log: o.Logger, servers: map[string]*server{},
		keys: keyFile{path: o.KeyFile}, resealing: make(chan struct{}, 1),
	}
	_, passwordErr := readPassword(o.PasswordFile)
	if err := errors.Join(s.keys.load(), passwordErr); err != nil {
		return nil, err
	}
	if s.client, err = newClient(o); err != nil {
		return nil, err
	}
	s.resealing <- struct{}{} // what an earlier active key sealed, on start
	return s, nil
}

// Close closes the connections. Calls made afterwards fail.
func (s *Store) Close() error { return s.client.Close() }

// Run probes servers that do not answer, reads the key file when it changes
// and seals long-lived values anew, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.watchKeys(ctx) })
	wg.Go(func() { s.reseal(ctx) })
	wg.Go(func() { s.probe(ctx) })
	wg.Wait()
	return nil
}

// longCall is for a patient caller without a deadline.
const longCall = 5 * time.Second

// access is how a call uses its server: one word of each pair.
type access uint8

const (
	patient access = 0      // it is made behind the handshakes
	urgent  access = 1 << 0 // a handshake waits for it
	reading access = 0
	writing access = 1 << 1 // it shows whether the server takes writes
)

// do makes a call about key, unless the server that has it does not answer.
func (s *Store) do(ctx context.Context, key string, how access, call func(context.Context) error) error {
	limit := longCall
	if how&urgent != 0 {
		limit = s.o.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	srv, err := s.serverFor(ctx, key)
	if err != nil {
		s.note(err)
		return err
	}
	if !srv.allow() {
		s.note(ErrUnavailable)
		return ErrUnavailable
	}
	err = call(ctx)
	srv.report(key, err, how&urgent != 0)
	switch {
	case how&writing != 0:
		srv.wrote(err)
	case how&urgent != 0:
		srv.read(err)
	}
	s.note(err)
	if err != nil && !errors.Is(err, redis.Nil) {
		err = fmt.Errorf("store: %w", err)
	}
	return err
}

// serverFor returns the server that has key: in a cluster the master of its
// slot, so that one hanging master does not stop the others.
func (s *Store) serverFor(ctx context.Context, key string) (*server, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.server(s.o.Addresses[0]), nil
	}
	whole := s.server("")
	if !whole.allow() {
		return nil, ErrUnavailable
	}
	master, err := cluster.MasterForKey(ctx, key)
	whole.report(key, err, true)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return s.server(master.Options().Addr), nil
}

func (s *Store) server(address string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	srv := s.servers[address]
	if srv == nil {
		srv = &server{address: cmp.Or(address, "cluster"), log: s.log}
		s.servers[address] = srv
	}
	return srv
}

func (s *Store) allServers() map[string]*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]*server, len(s.servers))
	for a, srv := range s.servers {
		out[a] = srv
	}
	return out
}

// probe asks servers that are down whether they answer, until ctx ends.
func (s *Store) probe(ctx context.Context) {
	for pause(ctx, probeEvery/2) {
		var wg sync.WaitGroup
		for address, srv := range s.allServers() {
			key, due := srv.due(time.Now())
			if !due {
				continue
			}
			wg.Go(func() { srv.probed(s.probeOnce(ctx, address, key)) })
		}
		wg.Wait()
		s.forgetServers()
	}
}

// probeOnce reads key twice: once to connect, and then in the time that a
// handshake would give. A server that answers, but slowly, stays down.
func (s *Store) probeOnce(ctx context.Context, address, key string) error {
	slow, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if cluster, ok := s.client.(*redis.ClusterClient); ok && address == "" {
		_, err := cluster.MasterForKey(slow, key)
		return err
	} else if ok {
		cluster.ReloadState(slow)
	}
	if err := s.client.Get(slow, key).Err(); judge(err) == silent {
		return err
	}
	quick, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	return s.client.Get(quick, key).Err()
}

// forgetServers drops servers that are down and that nothing asks for any
// more: a cluster that was rebuilt leaves none behind.
func (s *Store) forgetServers() {
	const unused = 10 * time.Minute
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, srv := range s.servers {
		srv.mu.Lock()
		if srv.down && time.Since(srv.asked) > unused {
			delete(s.servers, address)
		}
		srv.mu.Unlock()
	}
}

// Status is the state of the Store, for people.
type Status struct {
	Mode         Mode           `json:"mode"`
	Servers      []ServerStatus `json:"servers"` // those talked to so far
	Keys         int            `json:"keys"`
	ActiveKey    string         `json:"active_key"` // its short name, not a secret
	KeyFileError string         `json:"key_file_error,omitempty"`
	// RevocationsSynced is when other replicas' revocations were last known
	// to be complete. Zero: not yet.
	RevocationsSynced time.Time `json:"revocations_synced,omitzero"`
	// RevocationsError is why they are not known to be complete now.
	RevocationsError string `json:"revocations_error,omitempty"`
	Stats
}

// Status returns the state of now.
func (s *Store) Status() Status {
	ring := s.keys.ring.Load()
	st := Status{
		Mode: s.o.Mode, Keys: len(ring.keys), ActiveKey: fmt.Sprintf("%02x", ring.active.hint), Stats: s.Stats(),
	}
	if err := s.keys.problem(); err != nil {
		st.KeyFileError = err.Error()
	}
	synced, err := s.revocations.get()
	if st.RevocationsSynced = synced.Round(0).UTC(); err != nil {
		st.RevocationsError = err.Error()
	}
	for _, srv := range s.allServers() {
		st.Servers = append(st.Servers, srv.status())
	}
	slices.SortFunc(st.Servers, func(a, b ServerStatus) int { return cmp.Compare(a.Address, b.Address) })
	return st
}

// Stats count calls since the start.
type Stats struct {
	// Calls by outcome: ok, absent, timeout, error, refused (by the server),
	// unavailable (not asked), corrupt (a value that did not open). The look at
	// the revocations, once a second, is one of them.
	Calls map[string]uint64 `json:"calls"`
	// Down is how many of the servers do not answer.
	Down int `json:"down"`
}

type counters struct {
	ok, absent, timeout, failed, refused, unavailable, corrupt atomic.Uint64
}

// note counts a call.
func (c *counters) note(err error) {
	switch {
	case err == nil:
		c.ok.Add(1)
	case errors.Is(err, redis.Nil):
		c.absent.Add(1)
	case errors.Is(err, ErrUnavailable):
		c.unavailable.Add(1)
	case isNetwork(err) && !errors.Is(err, context.Canceled):
		c.timeout.Add(1)
	case judge(err) == refused:
		c.refused.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Stats returns the counters of now.
func (s *Store) Stats() Stats {
	st := Stats{Calls: map[string]uint64{
		"ok": s.ok.Load(), "absent": s.absent.Load(), "timeout": s.timeout.Load(), "error": s.failed.Load(),
		"refused": s.refused.Load(), "unavailable": s.unavailable.Load(), "corrupt": s.corrupt.Load(),
	}}
	for _, srv := range s.allServers() {
		if !srv.status().Up {
			st.Down++
		}
	}
	return st
}
