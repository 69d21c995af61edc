package session

import (
	"crypto/tls"
	"errors"
	"time"
)

// ErrRevoked is returned by [Attempt.Commit] when the session that the
// connection resumed was revoked while the handshake ran. The caller closes
// the connection; the client's next one does a full handshake.
var ErrRevoked = errors.New("session: resumed session was revoked during the handshake")

// Attempt follows one connection's handshake. Its methods are called by one
// goroutine at a time: the hooks during the handshake, then Commit or Abandon
// once.
type Attempt struct {
	r      *Resumer
	b      Binding
	sni    digest
	site   uint64
	served digest
	keyed  bool // served is known

	// found is what Unwrap returned last. While pending, crypto/tls has not
	// yet shown whether it resumed it.
	found   found
	pending bool
	lent    []byte // what crypto/tls reads its secret from

	staged   []byte // the state that Wrap saw, nil: nothing to store
	stagedID ID
	unstored reason // why there is nothing to store

	asked  bool          // the store was asked for a session
	waited time.Duration // on the store

	result Result
	done   bool
}

// found is a session that may be resumed.
type found struct {
	id     ID
	entry  entry
	state  []byte // only when shared
	shared bool   // it came from the store
}

// Unwrap is the connection's tls.Config.UnwrapSession: it returns the session
// of handle if the connection may resume it, nil otherwise. It never returns
// an error and changes nothing.
func (a *Attempt) Unwrap(handle []byte, cs tls.ConnectionState) (ss *tls.SessionState, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.r.log.Error("session lookup panicked", "panic", p)
			a.pending, ss, err = false, nil, nil
		}
	}()
	a.settle(Declined) // crypto/tls goes on to a further handle: it declined the one before
	if len(handle) == 0 {
		return nil, nil // TLS 1.2 asks on every hello, whether a ticket came or not
	}
	id, ok := parseHandle(handle, a.r.keys)
	if !ok {
		a.note(Malformed)
		return nil, nil
	}
	f, state, result := a.lookup(id)
	if result != Hit && result != HitShared {
		a.note(result)
		return nil, nil
	}
	ss, err = tls.ParseSessionState(state)
	if err != nil { // another replica's version of Go may write another encoding
		f.wipe()
		a.note(Absent)
		return nil, nil
	}
	ss.EarlyData = false
	a.lent, a.found, a.pending, a.result = state, f, true, result
	return ss, nil
}

// lookup finds the session of id, here or in the store, and checks that this
// connection may resume it. The state is a copy for crypto/tls to keep.
func (a *Attempt) lookup(id ID) (f found, state []byte, result Result) {
	l := a.r.limits.Load()
	if a.r.store == nil || l.reuse != SingleUse {
		e, ok := a.r.cache.Get(id)
		if ok {
			if result = a.check(&e, l); result != Hit {
				return found{}, nil, result
			}
			if state, ok = a.r.state(&e); ok {
				return found{id: id, entry: e}, state, Hit
			}
		}
	}
	if a.r.store == nil || a.asked {
		return found{}, nil, Absent
	}
	return a.lookupShared(id, l)
}

// lookupShared asks the store, once for each handshake.
func (a *Attempt) lookupShared(id ID, l *limits) (f found, state []byte, result Result) {
	a.asked = true
	if !a.r.current.Load() { // it may have been revoked
		return found{}, nil, StoreError
	}
	value, waited, err := a.r.fetch(id, a.budget())
	a.waited += waited
	switch {
	case err != nil:
		return found{}, nil, StoreError
	case value == nil:
		return found{}, nil, Absent
	}
	defer clear(value)
	e, raw, derr := decode(value)
	if derr != nil {
		return found{}, nil, Absent
	}
	if result = a.check(&e, l); result != Hit {
		return found{}, nil, result
	}
	if e.auth <= a.r.sealedUntil.Load() { // the same
		return found{}, nil, StoreError
	}
	state = append([]byte(nil), raw...)
	return found{id: id, entry: e, state: append([]byte(nil), raw...), shared: true}, state, HitShared
}

// check tells whether the connection may resume e: Hit, or what forbids it.
func (a *Attempt) check(e *entry, l *limits) Result {
	now := a.r.now().UnixNano()
	switch {
	case e.cut != 0 && now >= e.cut:
		return Absent
	case e.sni != a.sni:
		return SNI
	case e.scope != scopeDigest(a.b.Scope):
		return ScopeMiss
	case !a.serves(e.key):
		return Key
	case a.r.revoked.covers(e, a.site):
		return Revoked
	case e.auth > now+int64(maxSkew),
		now >= e.deadline, now-e.auth >= int64(l.life(a.b.ClientAuth)):
		return Lineage
	case e.flags&withEMS != 0 && !a.b.ExtendedMasterSecret:
		return Declined
	}
	return Hit
}

// serves reports whether key is among those that the name is served with now.
func (a *Attempt) serves(key digest) bool {
	for i := range a.b.Keys {
		if keyDigest(a.b.Keys[i]) == key {
			return true
		}
	}
	return false
}

// Wrap is the connection's tls.Config.WrapSession: it stages the session and
// returns its handle. It never returns an error.
func (a *Attempt) Wrap(cs tls.ConnectionState, ss *tls.SessionState) (handle []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.r.log.Error("session wrap panicked", "panic", p)
			a.drop()
			handle, err = randomHandle(), nil
		}
	}()
	if a.keeps(cs) {
		if handle, ok := a.r.handle(a.found.id); ok {
			return handle, nil
		}
	}
	state, err := ss.Bytes()
	if err != nil || len(state) > maxState {
		clear(state)
		a.unstored = tooLarge
		return randomHandle(), nil
	}
	a.stagedID = newID(a.r.keys.Hint())
	if handle, ok := a.r.handle(a.stagedID); ok {
		a.staged = state
		return handle, nil
	}
	clear(state)
	a.unstored = noKey
	return randomHandle(), nil
}

// keeps reports whether the client keeps the handle that it came with. In TLS
// 1.2 a resumed session is the same session: storing it again would only fill
// the cache, and clients that hold on to their first ticket would lose it.
func (a *Attempt) keeps(cs tls.ConnectionState) bool {
	return cs.DidResume && a.pending && cs.Version <= tls.VersionTLS12 &&
		a.r.limits.Load().reuse != SingleUse
}

// Served tells which certificate key (SHA-256 of RawSubjectPublicKeyInfo) the
// connection is served with, from GetCertificate. A full handshake without it
// stores nothing. On a resumed one it changes nothing: the key of the original
// authentication is inherited.
func (a *Attempt) Served(key [32]byte) { a.served, a.keyed = keyDigest(key), true }

// Abandon drops what was staged: the handshake or the authorisation failed.
// It does nothing after Commit.
func (a *Attempt) Abandon() {
	if a.done {
		return
	}
	a.done = true
	a.settle(Unfinished)
	a.drop()
}

// Refuse is Abandon for a connection whose authorisation failed, with its state
// at that time. The session that it resumed, if any, is deleted: the client may
// have another certificate by now, and shows it in a full handshake only.
func (a *Attempt) Refuse(cs tls.ConnectionState) {
	if a.done {
		return
	}
	if cs.DidResume && a.pending {
		a.r.forget(a.found.id)
		a.settle(a.result)
	}
	a.settle(Declined)
	a.Abandon()
}

// Result says how the connection's lookup ended; when several handles were
// offered, how the last one did. It is final after Commit or Abandon.
func (a *Attempt) Result() Result { return a.result }

// settle counts what became of a found session: a hit as it was found, or a result
// that is none.
func (a *Attempt) settle(result Result) {
	if !a.pending {
		return
	}
	a.pending = false
	if result != Hit && result != HitShared {
		a.found.wipe()
	}
	a.note(result)
}

// note counts how a lookup ended.
func (a *Attempt) note(result Result) {
	a.result = result
	a.r.count(result)
}

// drop wipes what the attempt holds.
func (a *Attempt) drop() {
	clear(a.staged)
	a.staged = nil
	if len(a.lent) <= inlineState { // else the peer's certificates are slices of it
		clear(a.lent)
	}
	a.lent = nil
	a.found.wipe()
}

func (f *found) wipe() {
	clear(f.state)
	*f = found{}
}

// budget is how long the handshake may still wait for the store.
func (a *Attempt) budget() time.Duration { return a.r.storeTimeout - a.waited }

func scopeDigest(s Scope) digest    { return digest(s[:16]) }
func keyDigest(key [32]byte) digest { return digest(key[:16]) }
