package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	publishTimeout = time.Second
	publishRetry   = time.Second
	publishBatch   = 256
	pruneInterval  = time.Hour
)

// Revoke ends the sessions of s that were authenticated up to now: on the next
// hello, on handshakes under way, across restarts, and on every replica. An
// error that wraps [ErrNotShared] or [ErrNotKept] means that the revocation is
// in force here but not yet everywhere; sharing is tried again until it works.
// Any other error means that s is not a subject and nothing was done.
func (r *Resumer) Revoke(ctx context.Context, s Subject) error {
	s, err := s.canonical()
	if err != nil {
		return err
	}
	rec := Record{Subject: s, At: r.revocationTime()}
	r.enforce(rec)
	var errs []error
	if r.store != nil {
		if err := r.publish(ctx, rec); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrNotShared, err))
			r.wakeSharing()
		}
	}
	if err := r.saveRevocations(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrNotKept, err))
	}
	return errors.Join(errs...)
}

// enforce puts records in force and reports whether that changed anything.
func (r *Resumer) enforce(records ...Record) bool {
	changed, collapsed := r.revoked.apply(r.now(), records...)
	if collapsed {
		r.log.Warn("too many revocations: one of every session made before the last of them takes their place", "more_than", maxRecords)
		r.wakeSharing()
	}
	return changed
}

// revocationTime is now, or a little later if the clock was set back since a
// session was made here. If it was set back by more than clocks may differ, what
// is held here is dropped, for it could not be told from what is made afterwards.
func (r *Resumer) revocationTime() time.Time {
	now := r.now().Round(0).UTC()
	latest := time.Unix(0, r.latest.Load()).UTC()
	switch {
	case latest.After(now.Add(maxSkew)):
		r.latest.Store(0)
		r.cache.Clear()
	case latest.After(now):
		return latest
	}
	return now
}

// made notes when a session was authenticated.
func (r *Resumer) made(auth int64) {
	for {
		latest := r.latest.Load()
		if auth <= latest || r.latest.CompareAndSwap(latest, auth) {
			return
		}
	}
}

// publish gives records to the store and marks them as shared.
func (r *Resumer) publish(ctx context.Context, records ...Record) error {
	batch := make([]SharedRecord, len(records))
	for i, rec := range records {
		b, err := json.Marshal(Record{Subject: rec.Subject, At: rec.At})
		if err != nil {
			return err
		}
		batch[i] = SharedRecord{Record: b, End: rec.At.Add(recordLife)}
		records[i].Shared = true
	}
	err := r.guard.call(ctx, publishTimeout, func(ctx context.Context) error {
		return r.store.Publish(ctx, batch)
	})
	if err == nil {
		r.enforce(records...)
	}
	return err
}

// shareRevocations publishes what is not yet shared, until ctx ends.
func (r *Resumer) shareRevocations(ctx context.Context) {
	for {
		if r.shareAll(ctx) {
			select {
			case <-r.unshared:
			case <-ctx.Done():
			}
		} else {
			pause(ctx, publishRetry)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// shareAll publishes every record that is not yet shared and reports whether
// all are now.
func (r *Resumer) shareAll(ctx context.Context) bool {
	published := false
	defer func() {
		if published {
			r.logSave(r.saveRevocations())
		}
	}()
	for {
		batch := r.revoked.unshared(r.now(), publishBatch)
		if len(batch) == 0 {
			return true
		}
		if err := r.publish(ctx, batch...); err != nil {
			return false
		}
		published = true
	}
}

func (r *Resumer) wakeSharing() {
	select {
	case r.unshared <- struct{}{}:
	default:
	}
}

// errUntold is why the revocations are not known after a Watch that returned.
var errUntold = errors.New("session: the store stopped telling of revocations")

// watchStore applies the revocations of other replicas, until ctx ends.
func (r *Resumer) watchStore(ctx context.Context) {
	for ctx.Err() == nil {
		err := runStoreCall(ctx, func(ctx context.Context) error { return r.store.Watch(ctx, r.applyShared, r.know) })
		if ctx.Err() == nil {
			r.know(cmp.Or(err, errUntold))
			pause(ctx, publishRetry)
		}
	}
	r.current.Store(false)
}

// knowledge is what is known of the revocations in the store.
type knowledge int

const (
	unasked   knowledge = iota
	complete            // all of them
	missing             // not all, until the store answers
	forbidden           // not all, until somebody lets this replica read them
)

// know notes that the revocations in the store are known, or why not. There is
// one line in the log for each change.
func (r *Resumer) know(err error) {
	r.current.Store(err == nil)
	before, now := r.knowledge, complete
	switch {
	case refused(err):
		now = forbidden
	case err != nil:
		now = missing
	}
	r.knowledge = now
	const unknown = "revocations in the store are not known: its sessions are not resumed"
	switch {
	case now == before || now == complete && before == unasked:
	case now == complete:
		r.log.Info("revocations in the store are known again")
	case now == forbidden:
		r.log.Error(unknown, "err", err)
	default:
		r.log.Warn(unknown, "err", err)
	}
}

// pruneRevocations forgets records that no session can fall under any more.
func (r *Resumer) pruneRevocations(ctx context.Context) {
	for pause(ctx, pruneInterval) {
		if r.revoked.prune(r.now()) {
			r.logSave(r.saveRevocations())
		}
	}
}

func (r *Resumer) saveRevocations() error {
	if r.journal.dir == "" {
		return nil
	}
	r.saving.Lock()
	defer r.saving.Unlock()
	return r.journal.save(r.revoked.list())
}

func (r *Resumer) logSave(err error) {
	if err != nil {
		r.log.Error("session revocations not kept on disk: a restart forgets them", "err", err)
	}
}

// loadRevocations puts what was kept in force again. If the file is damaged,
// what it said is unknown, so everything authenticated up to now is revoked:
// clients do a full handshake each. It writes nothing; Run repairs the file.
func (r *Resumer) loadRevocations() {
	records, err := r.journal.load()
	if err != nil {
		records = []Record{{Subject: Subject{Kind: KindAll}, At: r.now().Round(0).UTC(), Local: true}}
	}
	r.damaged = err
	r.enforce(records...)
}

// repairJournal sets a damaged file aside and writes a new one.
func (r *Resumer) repairJournal() {
	if r.damaged == nil {
		return
	}
	attrs := []any{"err", r.damaged}
	if path, err := r.journal.setAside(); err == nil {
		attrs = append(attrs, "kept_as", path)
	}
	r.log.Error("session revocations on disk cannot be read: every session made before this start is revoked", attrs...)
	r.logSave(r.saveRevocations())
}
