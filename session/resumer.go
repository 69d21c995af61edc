package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

// lineageGrace is how long a session that may no longer be resumed is held, so
// that a client that comes just too late is told from an unknown one.
const lineageGrace = time.Minute

// Resumer keeps sessions and resumes them. Make one with [New]; its methods
// are safe for concurrent use.
type Resumer struct {
	log          *slog.Logger
	now          func() time.Time
	epoch        time.Time
	keys         authenticator
	cache        *cache.Cache[ID, entry]
	aside        aside
	ages         ages
	shares       *shares
	limits       atomic.Pointer[limits]
	maxBytes     int64          // 0: none
	successorsMu [64]sync.Mutex // by ID

	revoked *revocations
	latest  atomic.Int64 // when the last session was authenticated here
	journal journal
	saving  sync.Mutex // orders writes of the journal
	damaged error      // why the journal could not be read

	store        Store
	storeTimeout time.Duration
	guard        guard
	queue        *queue
	unshared     chan struct{} // wakes Run: there are revocations to share
	knowledge    knowledge     // of the revocations in the store, as the log has it
	current      atomic.Bool   // every one of them is known here
	sealed       int           // but for so many that do not open, and
	sealedUntil  atomic.Int64  // may end what was authenticated up to then

	counters
}

// limits are Limits with the defaults put in.
type limits struct {
	capacity             int
	lifetime, clientAuth time.Duration
	reuse                time.Duration
	share                float64
}

// New returns a Resumer, or an error that names the option that is wrong. It
// reads the revocations in StateDir and writes nothing.
func New(o Options) (*Resumer, error) {
	l, err := o.Limits.resolve()
	if err != nil {
		return nil, err
	}
	r := &Resumer{
		log: cmp.Or(o.Logger, slog.Default()), now: time.Now, epoch: time.Now(),
		shares: newShares(), maxBytes: max(0, cmp.Or(o.MaxBytes, DefaultMaxBytes)),
		journal: journal{dir: o.StateDir},
		store:   o.Store, storeTimeout: cmp.Or(o.StoreTimeout, DefaultStoreTimeout),
		guard: newGuard(), queue: newQueue(cmp.Or(o.StoreQueue, DefaultStoreQueue)), unshared: make(chan struct{}, 1),
	}
	r.counters.prepare()
	if o.StoreQueue < 0 {
		return nil, fmt.Errorf("session: store queue %d is negative", o.StoreQueue)
	}
	if o.StoreTimeout < 0 {
		return nil, fmt.Errorf("session: store timeout %v is negative", o.StoreTimeout)
	}
	r.limits.Store(&l)
	var margin time.Duration
	r.keys = newBootKey()
	if r.store != nil {
		margin, r.keys = maxSkew, r.store
	}
	r.revoked = newRevocations(margin)
	r.cache, err = cache.New(cache.Options[ID, entry]{
		Capacity: l.capacity,
		MaxBytes: r.maxBytes,
		Weigh:    func(_ ID, e entry) int64 { return e.weight() },
		OnEvict:  r.evicted,
	})
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	r.loadRevocations()
	return r, nil
}

// resolve puts the defaults in and checks the bounds.
func (l Limits) resolve() (limits, error) {
	out := limits{
		capacity:   cmp.Or(l.Capacity, DefaultCapacity),
		lifetime:   cmp.Or(l.Lifetime, DefaultLifetime),
		clientAuth: cmp.Or(l.ClientAuthLifetime, DefaultClientAuthLifetime),
		reuse:      cmp.Or(l.ReuseWindow, DefaultReuseWindow),
		share:      cmp.Or(l.ClientShare, DefaultClientShare),
	}
	out.clientAuth = min(out.clientAuth, out.lifetime)
	switch {
	case out.capacity < 0:
		return out, fmt.Errorf("session: capacity %d is negative", l.Capacity)
	case out.lifetime < 0 || out.lifetime > MaxLifetime:
		return out, fmt.Errorf("session: lifetime %v is not within 0 and %v", l.Lifetime, MaxLifetime)
	case out.clientAuth < 0:
		return out, fmt.Errorf("session: lifetime with client certificates %v is negative", l.ClientAuthLifetime)
	case out.reuse < 0 && out.reuse != SingleUse && out.reuse != Unlimited:
		return out, fmt.Errorf("session: reuse window %v is negative", l.ReuseWindow)
	case out.share > 1 || math.IsNaN(out.share):
		return out, fmt.Errorf("session: client share %v is not within 0 and 1", l.ClientShare)
	}
	return out, nil
}

// SetLimits puts new limits in force; sessions already held keep their place
// as far as the limits allow.
func (r *Resumer) SetLimits(l Limits) error {
	resolved, err := l.resolve()
	if err != nil {
		return err
	}
	r.limits.Store(&resolved)
	r.cache.SetCapacity(resolved.capacity)
	return nil
}

// Begin makes the Attempt of one connection.
func (r *Resumer) Begin(b Binding) *Attempt {
	if b.Started.IsZero() {
		b.Started = r.now()
	}
	return &Attempt{r: r, b: b, sni: serverName(b.ServerName), site: siteKey(b.Site)}
}

// Run does the work behind the handshakes until ctx ends: writing to the
// store, receiving other replicas' revocations, sharing and forgetting our
// own. It must run whenever there is a Store.
func (r *Resumer) Run(ctx context.Context) error {
	r.repairJournal()
	var wg sync.WaitGroup
	wg.Go(func() { r.pruneRevocations(ctx) })
	if r.store != nil {
		wg.Go(func() { r.queue.run(ctx, r.writeStore) })
		wg.Go(func() { r.watchStore(ctx) })
		wg.Go(func() { r.shareRevocations(ctx) })
	}
	wg.Wait()
	return nil
}

// Shed drops up to n least recently used sessions and returns how many.
func (r *Resumer) Shed(n int) int { return r.cache.Shed(n) }

// Clear drops every session held here. Unlike [Resumer.Revoke] it touches no
// other replica and no handshake under way.
func (r *Resumer) Clear() { r.cache.Clear() }

// putNew stores a new session here and in the store, and returns why not. With a store
// and SingleUse nobody looks at what is held here, but a client's share is told by it.
func (r *Resumer) putNew(id ID, e entry, state []byte) reason {
	life := e.remaining(r.now().UnixNano())
	if life <= 0 {
		return tooOld
	}
	why := r.put(id, e, state)
	if r.store == nil || why == overShare {
		return why
	}
	r.queue.put(id, e.encode(state), life)
	return ""
}

// arrived is e as it is about to be stored here for the first time, charged to
// the share of addr.
func (r *Resumer) arrived(e entry, addr netip.Addr) entry {
	e.client, e.stored = r.shares.keyOf(addr), r.second()
	return e
}

// put stores a session that is not held here, and returns why not.
func (r *Resumer) put(id ID, e entry, state []byte) reason {
	limit := r.limits.Load().shareLimit(r.maxBytes)
	if limit == (shareLimit{}) {
		e.client = 0
	}
	e.size = uint16(len(state))
	if e.client != 0 && !r.makeRoom(&e, limit) {
		return overShare
	}
	if e.client != 0 {
		r.shares.list(e.client, id, limit)
	}
	return r.replace(id, e, state)
}

// replace stores a session in place of the version of it that is held.
func (r *Resumer) replace(id ID, e entry, state []byte) reason {
	life := e.remaining(r.now().UnixNano())
	if life <= 0 {
		r.cache.Delete(id)
		return tooOld
	}
	if e.cut == 0 || e.cut > e.deadline {
		life += lineageGrace
	}
	e.size, e.aside = uint16(len(state)), 0
	if len(state) <= inlineState {
		e.state = [inlineState]byte{}
		copy(e.state[:], state)
	} else {
		e.aside = r.aside.put(state)
	}
	// Only the put itself knows whether it stored: what it did may have left
	// again, and been told of, by the time of another question.
	r.entered(&e)
	if !r.cache.TryPutFor(id, e, life) {
		r.left(&e)
		return noRoom
	}
	return ""
}

// makeRoom drops the oldest sessions of e's client while it holds more than
// limit with e. It reports false when nothing known is left to drop.
func (r *Resumer) makeRoom(e *entry, limit shareLimit) bool {
	for r.shares.full(e.client, e.charge(), limit) {
		oldest, ok := r.shares.oldest(e.client)
		if !ok {
			return false
		}
		if r.cache.Delete(oldest) {
			r.shareLimited.Add(1)
			r.cutShared(oldest, 0)
		}
	}
	return true
}

// forget deletes a session here and in the store.
func (r *Resumer) forget(id ID) {
	r.cache.Delete(id)
	if r.store != nil {
		r.queue.put(id, nil, 0)
	}
}

// cutShared cuts a session's life in the store.
func (r *Resumer) cutShared(id ID, life time.Duration) {
	if r.store != nil {
		r.queue.put(id, nil, life)
	}
}

// state returns a copy of e's state.
func (r *Resumer) state(e *entry) ([]byte, bool) {
	if e.aside != 0 {
		return r.aside.get(e.aside)
	}
	return append([]byte(nil), e.state[:e.size]...), true
}

// evicted is told by the cache of every entry that left it.
func (r *Resumer) evicted(_ ID, e entry, why cache.Reason) {
	r.left(&e)
	if why == cache.ReasonCapacity || why == cache.ReasonBytes {
		r.lastEvicted.Store(int64(r.second()-e.stored) + 1)
	}
}

// entered opens the accounts of an entry that is about to be held.
func (r *Resumer) entered(e *entry) {
	r.ages.add(e.stored)
	if e.client != 0 {
		r.shares.add(e.client, e.charge())
	}
}

// left ends the accounts of an entry that is no longer held.
func (r *Resumer) left(e *entry) {
	r.ages.remove(e.stored)
	if e.client != 0 {
		r.shares.remove(e.client, e.charge())
	}
	if e.aside != 0 {
		r.aside.drop(e.aside)
	}
}

func (r *Resumer) lockFor(id ID) *sync.Mutex {
	return &r.successorsMu[int(id[len(id)-1])%len(r.successorsMu)]
}

// handle returns the handle of an ID of ours; ok is false when the store no
// longer holds the key for it.
func (r *Resumer) handle(id ID) (handle []byte, ok bool) {
	mac, ok := r.keys.MAC(id)
	if !ok {
		return nil, false
	}
	return appendHandle(make([]byte, 0, handleLen), id, mac), true
}

// second is the time since the start, the unit of ages.
func (r *Resumer) second() uint32 { return uint32(max(0, r.now().Sub(r.epoch)/time.Second)) }

// Errors of [Resumer.Revoke]: the revocation is in force on this replica, but …
var (
	ErrNotShared = errors.New("session: revocation not yet shared with other replicas") // … the store did not take it
	ErrNotKept   = errors.New("session: revocation not kept on disk")                   // … a restart forgets it
)
