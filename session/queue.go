package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueLanes   = 8
	laneBytes    = 4 << 20 // bytes of values waiting in one lane
	batchChanges = 64      // changes written at once

	writeTimeout = time.Second
	writeRetries = 3
	writeBackoff = 50 * time.Millisecond

	// drainTime is how long a Resumer whose context has ended goes on
	// writing what its handshakes left.
	drainTime = time.Second
)

// queue writes changes to the store behind the handshakes: bounded, in order
// for each session. What does not fit is dropped; a session that never reached
// the store costs its client a full handshake elsewhere.
type queue struct {
	lanes   [queueLanes]lane
	perLane int
	dropped atomic.Uint64
	failed  atomic.Uint64
}

type lane struct {
	mu      sync.Mutex
	waiting []queued
	bytes   int
	wake    chan struct{}
}

// writer makes changes in the store. again tells that the same ones were tried
// before, with an unknown outcome.
type writer func(ctx context.Context, changes []Change, again bool) error

// queued is a Change whose life is still counted from when it was made.
type queued struct {
	id    ID
	value []byte
	end   time.Time
}

// newQueue returns a queue for about size changes.
func newQueue(size int) *queue {
	q := &queue{perLane: max(1, size/queueLanes)}
	for i := range q.lanes {
		q.lanes[i].wake = make(chan struct{}, 1)
	}
	return q
}

// put queues one change: value for life, or a cut to life when value is nil.
// The queue owns value from now on.
func (q *queue) put(id ID, value []byte, life time.Duration) {
	l := &q.lanes[id[len(id)-1]%queueLanes]
	l.mu.Lock()
	if len(l.waiting) >= q.perLane || l.bytes+len(value) > laneBytes {
		l.mu.Unlock()
		clear(value)
		q.dropped.Add(1)
		return
	}
	l.waiting = append(l.waiting, queued{id, value, time.Now().Add(life)})
	l.bytes += len(value)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// len returns how many changes wait.
func (q *queue) len() (n int) {
	for i := range q.lanes {
		l := &q.lanes[i]
		l.mu.Lock()
		n += len(l.waiting)
		l.mu.Unlock()
	}
	return n
}

// run writes every lane through write until ctx ends, and then what is left
// for at most drainTime.
func (q *queue) run(ctx context.Context, write writer) {
	var wg sync.WaitGroup
	for i := range q.lanes {
		wg.Go(func() { q.runLane(ctx, &q.lanes[i], write) })
	}
	wg.Wait()
}

func (q *queue) runLane(ctx context.Context, l *lane, write writer) {
	for ctx.Err() == nil {
		batch := l.take()
		if len(batch) == 0 {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		q.writeBatch(ctx, batch, write)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	for batch := l.take(); len(batch) > 0; batch = l.take() {
		q.writeBatch(drain, batch, write)
	}
}

// writeBatch writes changes in order, trying again for a while, and wipes them.
func (q *queue) writeBatch(ctx context.Context, batch []queued, write writer) {
	backoff := writeBackoff
	for try := 0; ; try++ {
		err := write(ctx, changesAt(batch, time.Now()), try > 0)
		if err == nil {
			break
		}
		if try == writeRetries || refused(err) || ctx.Err() != nil || !pause(ctx, backoff) {
			q.failed.Add(uint64(len(batch)))
			break
		}
		backoff *= 4
	}
	for i := range batch {
		clear(batch[i].value)
	}
}

// refused reports whether the store said that it takes no writes now.
func refused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// changesAt gives batch the lives that are left at now. Values are copied: a
// call that outlives its deadline must not see them wiped.
func changesAt(batch []queued, now time.Time) []Change {
	out := make([]Change, 0, len(batch))
	for _, w := range batch {
		life := w.end.Sub(now)
		if w.value != nil && life <= 0 {
			continue
		}
		var value []byte
		if w.value != nil {
			value = append([]byte{}, w.value...)
		}
		out = append(out, Change{ID: w.id, Value: value, Life: life})
	}
	return out
}

func (l *lane) take() []queued {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), batchChanges)
	batch := append([]queued(nil), l.waiting[:n]...)
	for _, w := range batch {
		l.bytes -= len(w.value)
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// pause waits for d, or less when ctx ends, which it reports as false.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
