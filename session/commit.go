package session

import (
	"crypto/tls"
	"math"
	"time"
)

// reason says why a session was not stored.
type reason string

const (
	tooLarge   reason = "too_large"  // the state is longer than maxState, or cannot be encoded
	noKey      reason = "no_key"     // Served was not called
	revokedNow reason = "revoked"    // revoked during the handshake
	usedUp     reason = "used"       // SingleUse: another connection used the handle up first
	successors reason = "successors" // the handle has all the successors it may have
	overShare  reason = "share"      // the client holds its share already
	tooOld     reason = "expired"    // no life was left
	noRoom     reason = "no_room"    // the cache does not hold an entry of this size
)

func reasons() []reason {
	return []reason{tooLarge, noKey, revokedNow, usedUp, successors, overShare, tooOld, noRoom}
}

// maxSuccessors bounds the sessions that resuming one handle may store, on one
// replica.
const maxSuccessors = 8

// Commit stores the staged session, after HandshakeContext returned nil and
// authorisation passed. Its only error is [ErrRevoked].
func (a *Attempt) Commit(cs tls.ConnectionState) error {
	if a.done {
		return nil
	}
	a.done = true
	defer a.drop()
	resumed := cs.DidResume && a.pending
	if !resumed {
		a.settle(Declined)
		a.commitFull(cs)
		return nil
	}
	a.settle(a.result)
	if a.r.revoked.covers(&a.found.entry, a.site) {
		a.result = Revoked
		a.r.notStored(revokedNow)
		return ErrRevoked
	}
	a.commitResumed(cs)
	return nil
}

// commitFull stores the session of a full handshake.
func (a *Attempt) commitFull(cs tls.ConnectionState) {
	if a.staged == nil {
		a.r.notStored(a.unstored)
		return
	}
	if !a.keyed {
		a.r.notStored(noKey)
		return
	}
	l := a.r.limits.Load()
	auth := a.b.Started
	deadline := auth.Add(l.life(a.b.ClientAuth || len(cs.PeerCertificates) > 0))
	if len(cs.PeerCertificates) > 0 && cs.PeerCertificates[0].NotAfter.Before(deadline) {
		deadline = cs.PeerCertificates[0].NotAfter
	}
	e := entry{
		auth: auth.UnixNano(), deadline: deadline.UnixNano(),
		site: a.site, cert: peerKey(cs.PeerCertificates),
		scope: scopeDigest(a.b.Scope), sni: a.sni, key: a.served,
	}
	if cs.Version <= tls.VersionTLS12 && a.b.ExtendedMasterSecret {
		e.flags |= withEMS
	}
	a.r.made(e.auth)
	if a.r.revoked.covers(&e, a.site) {
		a.r.notStored(revokedNow)
		return
	}
	a.store(e)
}

// commitResumed stores what follows the resumed session, and ends it as the
// reuse window says.
func (a *Attempt) commitResumed(cs tls.ConnectionState) {
	l := a.r.limits.Load()
	switch {
	case l.reuse == SingleUse:
		if !a.consume() {
			a.r.notStored(usedUp)
			return
		}
	case cs.Version <= tls.VersionTLS12:
		if a.found.shared {
			a.r.put(a.found.id, a.r.arrived(a.found.entry, a.b.Client), a.found.state)
		}
		return
	case !a.succeed(l):
		a.r.notStored(successors)
		return
	}
	if a.staged == nil {
		a.r.notStored(a.unstored)
		return
	}
	next := a.found.entry
	next.prev, next.cut, next.successors, next.aside = a.found.id, 0, 0, 0
	a.store(next)
	if grandparent := a.found.entry.prev; l.reuse >= 0 && grandparent != (ID{}) {
		a.r.forget(grandparent)
	}
}

// store puts e with the staged state, here and in the store.
func (a *Attempt) store(e entry) {
	if why := a.r.putNew(a.stagedID, a.r.arrived(e, a.b.Client), a.staged); why != "" {
		a.r.notStored(why)
		return
	}
	a.r.stored.Add(1)
}

// consume takes the resumed session away and reports whether this connection
// was the first to.
func (a *Attempt) consume() bool {
	if a.r.store == nil {
		e, ok := a.r.cache.Take(a.found.id)
		if ok {
			a.r.left(&e)
		}
		return ok
	}
	a.r.cache.Delete(a.found.id)
	taken, err := a.r.take(a.found.id, a.budget())
	if err != nil {
		// Whether it is gone is unknown: have it deleted as soon as the
		// store allows, and let nothing follow it.
		a.r.forget(a.found.id)
		return false
	}
	return taken
}

// succeed counts a successor of the resumed TLS 1.3 session and cuts its life
// to the reuse window. It reports false when there are enough successors.
func (a *Attempt) succeed(l *limits) bool {
	id := a.found.id
	now := a.r.now().UnixNano()
	lock := a.r.lockFor(id)
	lock.Lock()
	defer lock.Unlock()
	e, held := a.r.cache.Get(id)
	switch {
	case held && e.successors >= maxSuccessors:
		return false
	case !held && !a.found.shared:
		return true // evicted meanwhile: nothing to cut
	}
	state := a.found.state
	if !held {
		e = a.r.arrived(a.found.entry, a.b.Client)
	} else if state, held = a.r.state(&e); !held {
		return true
	}
	e.successors++
	if l.reuse >= 0 {
		end := now + int64(l.reuse)
		if e.cut == 0 || end < e.cut {
			e.cut = end
		}
		a.r.cutShared(id, l.reuse)
	}
	if held {
		a.r.replace(id, e, state)
	} else {
		a.r.put(id, e, state)
	}
	return true
}

// life is how long after its authentication a session may be resumed.
func (l *limits) life(clientAuth bool) time.Duration {
	if clientAuth {
		return l.clientAuth
	}
	return l.lifetime
}

// shareLimit is what one client may hold.
func (l *limits) shareLimit(maxBytes int64) shareLimit {
	if l.share <= 0 {
		return shareLimit{}
	}
	s := shareLimit{entries: max(minShare, int(float64(l.capacity)*l.share)), bytes: math.MaxInt64}
	if maxBytes > 0 {
		s.bytes = max(minShare*maxState, int64(float64(maxBytes)*l.share))
	}
	return s
}
