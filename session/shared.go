package session

import (
	"context"
	"errors"
	"slices"
	"time"
)

// fetch asks the store for a session within budget and tells how long it took.
func (r *Resumer) fetch(id ID, budget time.Duration) (value []byte, waited time.Duration, err error) {
	start := time.Now()
	got := make(chan []byte, 1)
	err = r.guard.call(context.Background(), budget, func(ctx context.Context) error {
		b, err := r.store.Get(ctx, id)
		if err == nil {
			got <- b
		}
		return err
	})
	waited = time.Since(start)
	if err != nil {
		return nil, waited, err
	}
	return <-got, waited, nil
}

// take asks the store to hand a session out for the last time.
func (r *Resumer) take(id ID, budget time.Duration) (bool, error) {
	got := make(chan bool, 1)
	err := r.guard.call(context.Background(), budget, func(ctx context.Context) error {
		ok, err := r.store.Take(ctx, id)
		if err == nil {
			got <- ok
		}
		return err
	})
	if err != nil {
		return false, err
	}
	return <-got, nil
}

// writeStore makes changes in the store. With SingleUse a session is put once
// only: it may have arrived, though the answer did not, and been used up since.
func (r *Resumer) writeStore(ctx context.Context, changes []Change, again bool) error {
	if again && r.limits.Load().reuse == SingleUse {
		changes = slices.DeleteFunc(changes, func(c Change) bool { return c.Value != nil })
	}
	if len(changes) == 0 {
		return nil
	}
	err := r.guard.call(ctx, writeTimeout, func(ctx context.Context) error {
		return r.store.Write(ctx, changes)
	})
	if !errors.Is(err, errStoreSlow) { // else the call may still be reading them
		for _, c := range changes {
			clear(c.Value)
		}
	}
	return err
}
