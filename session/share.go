package session

import (
	"hash/maphash"
	"net/netip"
	"sync"
)

const shareShards = 16

// minShare is the fewest sessions that a client address may always hold,
// however small the cache.
const minShare = 16

// shares counts what each client address holds, so that one that never resumes
// cannot push the others out. A client at its limit loses its own oldest
// session for each new one. Only clients above half their limit have their
// sessions listed, so the lists together are bounded by the cache, and the
// counts by the clients that hold something.
type shares struct {
	seed   maphash.Seed
	shards [shareShards]shareShard
}

type shareShard struct {
	mu      sync.Mutex
	clients map[uint64]holding
	recent  map[uint64]*recentIDs // of clients above half their limit
}

type holding struct {
	entries int
	bytes   int64
}

// shareLimit is the most that one client may hold. The zero value means that
// there is no limit, and nothing is counted.
type shareLimit struct {
	entries int
	bytes   int64
}

func newShares() *shares { return &shares{seed: maphash.MakeSeed()} }

// keyOf returns the key of addr's share, 0 for an unknown address. IPv6
// clients own a /64, so they count by it.
func (s *shares) keyOf(addr netip.Addr) uint64 {
	if !addr.IsValid() {
		return 0
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		p, _ := addr.Prefix(64)
		addr = p.Addr()
	}
	return max(1, maphash.Comparable(s.seed, addr))
}

// full reports whether client holds so much that charge more would exceed l.
func (s *shares) full(client uint64, charge int64, l shareLimit) bool {
	sh := s.shard(client)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.clients[client]
	return h.entries >= l.entries || h.bytes+charge > l.bytes
}

// oldest names and forgets the oldest session listed for client. It may have
// left the cache already; each was listed once, so asking until room is found
// costs no more than was paid in.
func (s *shares) oldest(client uint64) (ID, bool) {
	sh := s.shard(client)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.recent[client].pop()
}

// add counts a session of client that is about to be stored.
func (s *shares) add(client uint64, charge int64) {
	sh := s.shard(client)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.clients == nil {
		sh.clients = map[uint64]holding{}
	}
	h := sh.clients[client]
	sh.clients[client] = holding{h.entries + 1, h.bytes + charge}
}

// list names a new session of client, if the client is above half its limit.
func (s *shares) list(client uint64, id ID, l shareLimit) {
	sh := s.shard(client)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.clients[client]
	if 2*h.entries < l.entries && h.bytes < l.bytes/2 {
		delete(sh.recent, client)
		return
	}
	recent := sh.recent[client]
	if recent == nil {
		if sh.recent == nil {
			sh.recent = map[uint64]*recentIDs{}
		}
		recent = new(recentIDs)
		sh.recent[client] = recent
	}
	recent.push(id, l.entries)
}

// remove undoes add for a session that has left the cache or never got in.
func (s *shares) remove(client uint64, charge int64) {
	sh := s.shard(client)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h, ok := sh.clients[client]
	if !ok {
		return
	}
	h.entries, h.bytes = h.entries-1, max(0, h.bytes-charge)
	if h.entries <= 0 {
		delete(sh.clients, client)
		delete(sh.recent, client)
		return
	}
	sh.clients[client] = h
}

func (s *shares) shard(client uint64) *shareShard { return &s.shards[client%shareShards] }

// clients returns how many clients hold something.
func (s *shares) clients() (n int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += len(sh.clients)
		sh.mu.Unlock()
	}
	return n
}

// recentIDs is a client's sessions, oldest first.
type recentIDs struct {
	ids  []ID
	head int
}

// push adds id, forgetting the oldest beyond limit.
func (r *recentIDs) push(id ID, limit int) {
	if len(r.ids)-r.head >= limit {
		r.head++
	}
	if r.head > len(r.ids)/2 {
		r.ids = append(r.ids[:0], r.ids[r.head:]...)
		r.head = 0
	}
	r.ids = append(r.ids, id)
}

// pop returns and forgets the oldest.
func (r *recentIDs) pop() (id ID, ok bool) {
	if r == nil || r.head == len(r.ids) {
		return id, false
	}
	r.head++
	return r.ids[r.head-1], true
}
