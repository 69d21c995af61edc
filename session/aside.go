package session

import (
	"sync"
	"sync/atomic"
)

const asideShards = 16

// aside holds the states that are too long for an entry: those with client
// certificates. References are never used twice, so a stale one finds nothing.
type aside struct {
	next   atomic.Uint64
	shards [asideShards]asideShard
}

type asideShard struct {
	mu     sync.Mutex
	states map[uint64][]byte
}

// put keeps a copy of state and returns its reference, never 0.
func (a *aside) put(state []byte) uint64 {
	ref := a.next.Add(1)
	s := &a.shards[ref%asideShards]
	own := append(make([]byte, 0, len(state)), state...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		s.states = map[uint64][]byte{}
	}
	s.states[ref] = own
	return ref
}

// get returns a copy of the state at ref: the original may be zeroed any time.
func (a *aside) get(ref uint64) ([]byte, bool) {
	s := &a.shards[ref%asideShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.states[ref]
	if !ok {
		return nil, false
	}
	return append([]byte(nil), state...), true
}

// drop zeroes and forgets the state at ref, if there is one.
func (a *aside) drop(ref uint64) {
	s := &a.shards[ref%asideShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.states[ref])
	delete(s.states, ref)
}
