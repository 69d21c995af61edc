package session

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxSkew is by how much the clocks of replicas may differ.
const maxSkew = 5 * time.Second

// maxRecords bounds the revocations in force. More of them become one
// revocation of everything: it ends too many sessions rather than too few.
const maxRecords = 10_000

// recordLife is how long a revocation is kept: no session authenticated before
// it can be alive afterwards, whatever the limits were meanwhile.
const recordLife = MaxLifetime + 2*maxSkew

// Record is one revocation in force.
type Record struct {
	Subject
	At time.Time `json:"at"`

	// Shared tells that the store has it. Without a store it stays false.
	Shared bool `json:"shared,omitempty"`

	// Local tells that the record, of everything, is for this replica alone:
	// it stands for what could not be read, in a damaged file or in a record
	// of a newer build.
	Local bool `json:"local,omitempty"`

	// Claimed is the time that the record itself says, where that lay in the
	// future and At was set in its place: met again, it is not set again.
	Claimed time.Time `json:"claimed,omitzero"`
}

// revocations are compared with the time of authentication at every lookup and
// commit. A session is revoked if it was authenticated at or before At plus
// margin: with several replicas, whose clocks differ, the margin covers what
// another one authenticated just before.
type revocations struct {
	margin time.Duration

	count   atomic.Int64 // of records, so that nobody locks while there are none
	mu      sync.RWMutex
	all     int64            // Unix nanoseconds up to which everything is revoked
	until   map[uint64]int64 // the same by subject
	records map[Subject]Record
	local   Record // zero: none
}

func newRevocations(margin time.Duration) *revocations {
	return &revocations{margin: margin, until: map[uint64]int64{}, records: map[Subject]Record{}}
}

// covers reports whether a session is revoked for a connection to site, which
// may have had another name when the session was made.
func (v *revocations) covers(e *entry, site uint64) bool {
	if v.count.Load() == 0 {
		return false
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	switch {
	case e.auth <= v.all:
		return true
	case e.auth <= v.until[e.site], e.auth <= v.until[site], e.auth <= v.until[e.sni.short()]:
		return true
	}
	return e.cert != 0 && e.auth <= v.until[e.cert]
}

// apply puts records with canonical subjects in force at now, and reports
// whether that changed anything and whether they had become too many. A record
// only ever moves forward in time, and one of everything takes the place of
// those before it.
func (v *revocations) apply(now time.Time, records ...Record) (changed, collapsed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, rec := range records {
		changed = v.applyOne(now, rec) || changed
	}
	if collapsed = len(v.records) > maxRecords; collapsed {
		v.collapse(now)
	}
	v.recount()
	return changed, collapsed
}

func (v *revocations) applyOne(now time.Time, rec Record) bool {
	old, known := v.records[rec.Subject]
	if rec.Local {
		old, known = v.local, v.local != (Record{})
	}
	if limit := now.Add(maxSkew); rec.At.After(limit) { // a clock gone wild must not revoke the future
		if known && !rec.At.After(old.Claimed) {
			rec.At = old.At
		} else {
			rec.Claimed, rec.At = rec.At, limit
		}
	}
	if old.Claimed.After(rec.Claimed) {
		rec.Claimed = old.Claimed
	}
	switch {
	case now.Sub(rec.At) > recordLife:
		return false
	case rec.Local:
		return v.applyLocal(rec)
	case v.takenIn(rec):
		return false
	case known && !rec.At.After(old.At):
		return v.markShared(old, rec)
	}
	v.records[rec.Subject] = rec
	until := rec.At.Add(v.margin).UnixNano()
	if rec.Kind != KindAll {
		v.until[rec.key()] = max(v.until[rec.key()], until)
		return true
	}
	v.all = max(v.all, until)
	v.drop(v.takenIn)
	return true
}

// takenIn reports whether a record of everything stands for rec.
func (v *revocations) takenIn(rec Record) bool {
	all, ok := v.records[Subject{Kind: KindAll}]
	return ok && rec.Kind != KindAll && !rec.At.After(all.At)
}

// markShared marks old as shared if rec, which is not later, is the same and is.
func (v *revocations) markShared(old, rec Record) bool {
	if !rec.Shared || old.Shared || !rec.At.Equal(old.At) {
		return false
	}
	old.Shared = true
	v.records[rec.Subject] = old
	return true
}

// applyLocal keeps a local record beside the others: it takes the place of
// none, for the other replicas may need those of this one.
func (v *revocations) applyLocal(rec Record) bool {
	if !rec.At.After(v.local.At) {
		return false
	}
	v.local = rec
	v.all = max(v.all, rec.At.Add(v.margin).UnixNano())
	return true
}

// collapse makes one record of all: of everything, at the time of the latest.
// Replicas that hold the same records thus come to the same one, whenever they
// do, and it does not end again what was authenticated since.
func (v *revocations) collapse(now time.Time) {
	var latest time.Time
	for _, rec := range v.records {
		if rec.At.After(latest) {
			latest = rec.At
		}
	}
	v.applyOne(now, Record{Subject: Subject{Kind: KindAll}, At: latest})
}

// drop forgets the records that gone names.
func (v *revocations) drop(gone func(Record) bool) (changed bool) {
	for s, rec := range v.records {
		if gone(rec) {
			delete(v.records, s)
			changed = true
		}
	}
	if !changed {
		return false
	}
	v.until = make(map[uint64]int64, len(v.records))
	for s, rec := range v.records {
		if s.Kind != KindAll {
			v.until[s.key()] = max(v.until[s.key()], rec.At.Add(v.margin).UnixNano())
		}
	}
	return true
}

// unshared returns up to n records that the store should have and has not.
// Those at the end of their life are not worth it.
func (v *revocations) unshared(now time.Time, n int) (out []Record) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, rec := range v.records {
		if len(out) == n {
			break
		}
		if !rec.Shared && worthSharing(rec, now) {
			out = append(out, rec)
		}
	}
	return out
}

// unshare marks the records that the store does not hold, and that it should,
// as not shared, and returns how many they are.
func (v *revocations) unshare(now time.Time, holds func(Record) bool) (lost int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for s, rec := range v.records {
		if rec.Shared && worthSharing(rec, now) && !holds(rec) {
			rec.Shared = false
			v.records[s] = rec
			lost++
		}
	}
	return lost
}

// worthSharing reports whether rec is in force for longer than clocks differ:
// another replica may have removed one of less from the store.
func worthSharing(rec Record, now time.Time) bool { return now.Sub(rec.At) <= recordLife-maxSkew }

// prune forgets what no living session can have been authenticated before.
func (v *revocations) prune(now time.Time) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := func(rec Record) bool { return now.Sub(rec.At) > recordLife }
	changed = v.drop(old)
	if v.local != (Record{}) && old(v.local) {
		v.local, changed = Record{}, true
	}
	v.recount()
	return changed
}

func (v *revocations) recount() {
	n := len(v.records)
	if v.local != (Record{}) {
		n++
	}
	v.count.Store(int64(n))
}

// list returns the records in force, newest first.
func (v *revocations) list() []Record {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]Record, 0, len(v.records))
	for _, rec := range v.records {
		out = append(out, rec)
	}
	if v.local != (Record{}) {
		out = append(out, v.local)
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Value, b.Value),
			cmp.Compare(a.Issuer, b.Issuer), cmp.Compare(a.Serial, b.Serial))
	})
	return out
}
