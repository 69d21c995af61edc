package session

import (
	"encoding/json"
	"fmt"
	"time"
)

// reading is what the store was read to hold of revocations.
type reading struct {
	records []Record
	index   []int                 // of records, in what was read
	latest  map[Subject]time.Time // of the records of a subject
	newest  map[Subject]int       // the record of a subject, in records, that stands for the others

	limit time.Time // what is later is of a clock gone wild

	unknown    Record // of everything, for the records that this build does not know; zero: none
	unknownErr error

	sealed int       // records that do not open and may still end a session
	until  time.Time // what was authenticated later is not theirs
}

// newReading parses records of the store at now, where sessions live for lifetime.
func newReading(held []SharedRecord, now time.Time, lifetime time.Duration) *reading {
	g := &reading{
		latest: make(map[Subject]time.Time, len(held)), newest: make(map[Subject]int, len(held)),
		limit: now.Add(maxSkew),
	}
	for i, h := range held {
		if h.Record == nil {
			g.noteSealed(h.End, now, lifetime)
			continue
		}
		var rec Record
		err := json.Unmarshal(h.Record, &rec)
		if err == nil {
			rec.Subject, err = rec.canonical()
		}
		if err != nil {
			g.noteUnknown(rec.At, h.End, now, err)
			continue
		}
		g.add(i, Record{Subject: rec.Subject, At: rec.At, Shared: true})
	}
	return g
}

// noteUnknown stands for a record that a newer replica may know: it ends too
// much rather than too little, but on this replica alone.
func (g *reading) noteUnknown(at, end, now time.Time, err error) {
	switch {
	case at.IsZero() && end.IsZero():
		at = now
	case at.IsZero():
		at = end.Add(-recordLife)
	}
	if at.After(g.unknown.At) {
		g.unknown, g.unknownErr = Record{Subject: Subject{Kind: KindAll}, At: at, Local: true}, err
	}
}

// noteSealed counts a record that does not open. When it ends tells when it was
// made; a session that was authenticated up to then may fall under it.
func (g *reading) noteSealed(end, now time.Time, lifetime time.Duration) {
	at := end.Add(-recordLife)
	if at.After(g.limit) {
		at = g.limit
	}
	at = at.Add(maxSkew)
	if now.Sub(at) >= lifetime {
		return
	}
	g.sealed++
	if at.After(g.until) {
		g.until = at
	}
}

// add adds a record. Of equal ones the last in the store's order counts: that
// order is the same for all replicas, so that they agree on what stays.
func (g *reading) add(i int, rec Record) {
	g.records, g.index = append(g.records, rec), append(g.index, i)
	if rec.At.After(g.latest[rec.Subject]) {
		g.latest[rec.Subject] = rec.At
	}
	if rec.At.After(g.limit) {
		return
	}
	if j, ok := g.newest[rec.Subject]; !ok || !rec.At.Before(g.records[j].At) {
		g.newest[rec.Subject] = len(g.records) - 1
	}
}

// holds reports whether the store holds rec, or a later one of its subject.
func (g *reading) holds(rec Record) bool {
	at, ok := g.latest[rec.Subject]
	return ok && !at.Before(rec.At)
}

// superseded returns the indices, in what was read, of records that others of
// the same reading stand for. Records of a clock gone wild are not among them,
// and stand for none: the clock that is wrong may be ours.
func (g *reading) superseded() (indices []int) {
	all, anyAll := g.newest[Subject{Kind: KindAll}]
	for i, rec := range g.records {
		switch {
		case rec.At.After(g.limit):
		case g.newest[rec.Subject] != i,
			anyAll && rec.Kind != KindAll && !rec.At.After(g.records[all].At):
			indices = append(indices, g.index[i])
		}
	}
	return indices
}

// applyShared puts records of the store in force, all that it holds or new ones
// alone, and returns the indices of those that others of them stand for. What
// should be in the store but is not among all of its records is shared again.
// An error says that there are records that are not understood here.
func (r *Resumer) applyShared(held []SharedRecord, all bool) (superseded []int, err error) {
	now := r.now()
	g := newReading(held, now, r.limits.Load().lifetime)
	changed := r.enforce(g.records...)
	if g.unknownErr != nil && r.enforce(g.unknown) {
		changed = true
		r.log.Warn("unknown revocation in the store, ending every session up to it", "err", g.unknownErr, "at", g.unknown.At)
	}
	if changed {
		r.logSave(r.saveRevocations())
	}
	if !all {
		return nil, nil
	}
	if lost := r.revoked.unshare(now, g.holds); lost > 0 {
		r.log.Warn("revocations are gone from the store, sharing them again", "revocations", lost)
		r.wakeSharing()
	}
	return g.superseded(), r.noteSealed(g)
}

// noteSealed keeps sessions of the store from being used that records which do
// not open may have ended. There is one line in the log for each change.
func (r *Resumer) noteSealed(g *reading) error {
	before := r.sealed
	r.sealed = g.sealed
	if g.sealed == 0 {
		r.sealedUntil.Store(0)
		if before > 0 {
			r.log.Info("every revocation in the store opens again")
		}
		return nil
	}
	r.sealedUntil.Store(g.until.UnixNano())
	err := fmt.Errorf("%d revocations in the store do not open: damaged, or sealed with a key that the key file lacks", g.sealed)
	if g.sealed > before {
		r.log.Error("revocations in the store do not open: sessions of before are not taken from it", "revocations", g.sealed, "before", g.until)
	}
	return err
}
