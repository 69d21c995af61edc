package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// fakeStore is a Store in memory, shared by the replicas of a test, that can
// be made to misbehave.
type fakeStore struct {
	bootKey

	mu        sync.Mutex
	sessions  map[ID]fakeValue
	records   []SharedRecord
	version   int   // of records
	noRecords error // of a look at records
	watchers  map[chan []SharedRecord]bool
	gets      int
	takes     int
	puts      int
	cuts      []time.Duration

	misbehave func(ctx context.Context) error // called first by every method
}

type fakeValue struct {
	b   []byte
	end time.Time
}

func newFakeStore() *fakeStore {
	return &fakeStore{bootKey: *newBootKey(), sessions: map[ID]fakeValue{}, watchers: map[chan []SharedRecord]bool{}}
}

var _ Store = (*fakeStore)(nil)

func (s *fakeStore) trouble(ctx context.Context) error {
	s.mu.Lock()
	f := s.misbehave
	s.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return nil
}

func (s *fakeStore) set(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.misbehave = f
}

func (s *fakeStore) Get(ctx context.Context, id ID) ([]byte, error) {
	s.mu.Lock()
	s.gets++
	s.mu.Unlock()
	if err := s.trouble(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.sessions[id]
	if !ok || !time.Now().Before(v.end) {
		return nil, nil
	}
	return append([]byte(nil), v.b...), nil
}

func (s *fakeStore) Take(ctx context.Context, id ID) (bool, error) {
	s.mu.Lock()
	s.takes++
	s.mu.Unlock()
	if err := s.trouble(ctx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.sessions[id]
	delete(s.sessions, id)
	return ok && time.Now().Before(v.end), nil
}

func (s *fakeStore) Write(ctx context.Context, changes []Change) error {
	if err := s.trouble(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		v, ok := s.sessions[c.ID]
		end := time.Now().Add(c.Life)
		switch {
		case c.Value != nil:
			s.puts++
			s.sessions[c.ID] = fakeValue{append([]byte(nil), c.Value...), end}
		case c.Life <= 0:
			delete(s.sessions, c.ID)
		case ok && end.Before(v.end):
			s.cuts = append(s.cuts, c.Life)
			v.end = end
			s.sessions[c.ID] = v
		}
	}
	return nil
}

func (s *fakeStore) Publish(ctx context.Context, records []SharedRecord) error {
	if err := s.trouble(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, records...)
	s.version++
	for w := range s.watchers {
		select {
		case w <- records:
		default: // it will look
		}
	}
	return nil
}

func (s *fakeStore) Watch(ctx context.Context, apply func([]SharedRecord, bool) ([]int, error), known func(error)) error {
	if err := s.trouble(ctx); err != nil {
		return err
	}
	w := make(chan []SharedRecord, 1000)
	s.mu.Lock()
	s.watchers[w] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, w)
		s.mu.Unlock()
	}()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for seen := -1; ; {
		if s.unreadable() == nil {
			seen = s.look(seen, apply)
		}
		known(s.unreadable())
		select {
		case records := <-w:
			apply(records, false)
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *fakeStore) unreadable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noRecords
}

// look applies all records if there are others than at version seen.
func (s *fakeStore) look(seen int, apply func([]SharedRecord, bool) ([]int, error)) (version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == seen {
		return seen
	}
	gone, _ := apply(slices.Clone(s.records), true)
	for _, i := range slices.Backward(gone) {
		s.records = slices.Delete(s.records, i, i+1)
	}
	return s.version
}

// forget loses the records, all or those from the nth on.
func (s *fakeStore) forget(from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = s.records[:from]
	s.version++
}

// held returns what the records say, in their order.
func (s *fakeStore) held() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		out = append(out, string(r.Record))
	}
	return out
}

func (s *fakeStore) live() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.sessions {
		if time.Now().Before(v.end) {
			n++
		}
	}
	return n
}

func (s *fakeStore) counts() (gets, takes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets, s.takes
}

// run runs p's Resumer until the test ends.
func (p *proxy) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Troubles that a store may have.
var errStore = errors.New("the store is out of order")

func failing(context.Context) error   { return errStore }
func panicking(context.Context) error { panic("the store is broken") }

// obeying hangs until its deadline.
func obeying(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// ignoring returns a function that hangs until release, whatever its context.
func ignoring() (hang func(context.Context) error, release func()) {
	c := make(chan struct{})
	return func(context.Context) error { <-c; return errStore }, sync.OnceFunc(func() { close(c) })
}

// slowBy takes d for every call.
func slowBy(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func contextWithCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}
