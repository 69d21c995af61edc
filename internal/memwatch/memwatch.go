// Package memwatch gives memory back before the process is killed for it.
//
// A cache that may be dropped is the first thing to go when memory gets short. A
// [Watcher] compares what the Go runtime has in use with the memory limit, and when
// it comes near asks the Shed function to free some:
//
//	w, err := memwatch.New(memwatch.Options{
//		Limit: memwatch.Limit(),
//		Shed:  func(bytes int64) int64 { return dropSessions(bytes) },
//	})
//	err = w.Run(ctx)
//
// It asks for as much as leads well below the mark, so that memory does not hover at
// it, and sees what came of it only after a garbage collection, which it runs. It
// also asks when the runtime had to limit the collector's CPU time: then the limit
// could not be kept, and the next step would be the kernel's.
//
// It does not set the limit, does not count memory outside the Go runtime, and cannot
// help a process whose memory is not in what Shed can drop: there it asks less and
// less often, and collects nothing.
package memwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
)

// Options describe a watcher.
type Options struct {
	// Limit is the memory that the process may use, in bytes. 0: there is none, and
	// Run only waits.
	Limit int64
	// Shed frees about so many bytes and returns how many it did. It is called from
	// Run, one call at a time. Required.
	Shed func(bytes int64) int64
	// High is the share of Limit from which memory is short. 0: 0.85.
	High float64
	// Low is the share of Limit that shedding leads to. 0: 0.75. It must be below High.
	Low float64
	// Interval is how often to look. 0: 200 ms.
	Interval time.Duration
	// Logger receives a line when shedding begins, when little is left to shed, and
	// when memory is no longer short. nil: slog.Default().
	Logger *slog.Logger
}

// Status is what a watcher has seen and done.
type Status struct {
	Limit   int64  `json:"limit"`   // bytes; 0: none
	InUse   int64  `json:"in_use"`  // bytes at the last look: live heap, stacks and the runtime's own
	Short   bool   `json:"short"`   // memory was short at the last look
	Sheds   uint64 `json:"sheds"`   // calls of Shed
	Freed   int64  `json:"freed"`   // bytes that they freed, as they said
	Limiter bool   `json:"limiter"` // the collector's CPU time was limited since the look before
}

// A Watcher sheds when memory gets short. Build one with [New].
type Watcher struct {
	o      Options
	read   func() usage
	gc     func()
	status atomic.Pointer[Status]

	// What follows is Run's alone.
	limited  uint64 // the last limited collection that is known of
	shortage shortage
}

// New returns a watcher, or an error that names the option that cannot be meant.
func New(o Options) (*Watcher, error) {
	if o.High == 0 {
		o.High = 0.85
	}
	if o.Low == 0 {
		o.Low = min(0.75, o.High*0.9)
	}
	if o.Interval == 0 {
		o.Interval = 200 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Shed == nil:
		return nil, errors.New("memwatch: no function to shed with")
	case o.Limit < 0:
		return nil, fmt.Errorf("memwatch: limit %d is negative; 0 means none", o.Limit)
	case o.High < 0 || o.High > 1:
		return nil, fmt.Errorf("memwatch: high mark %v is not a share of the limit", o.High)
	case o.Low < 0 || o.Low >= o.High:
		return nil, fmt.Errorf("memwatch: low mark %v must be below the high mark %v", o.Low, o.High)
	case o.Interval < 0:
		return nil, fmt.Errorf("memwatch: interval %v is negative", o.Interval)
	}
	w := &Watcher{o: o, read: newReader().read, gc: runtime.GC}
	w.shortage.growth = int64((o.High - o.Low) * float64(o.Limit) / 10)
	w.status.Store(&Status{Limit: o.Limit})
	return w, nil
}

// Status returns what the watcher has seen and done. It may be called while Run runs.
func (w *Watcher) Status() Status { return *w.status.Load() }

// Run watches until the context ends, and returns nil then.
func (w *Watcher) Run(ctx context.Context) error {
	if w.o.Limit == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(w.o.Interval)
	defer tick.Stop()
	w.limited = w.read().limited // an earlier time is none of ours
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.look(time.Now())
		}
	}
}

// look compares what is in use with the limit and sheds.
func (w *Watcher) look(now time.Time) {
	u := w.read()
	s := w.Status()
	s.InUse, s.Limiter = u.inUse, u.limited > w.limited
	w.limited = max(w.limited, u.limited)
	s.Short = float64(u.inUse) > w.o.High*float64(w.o.Limit) || s.Limiter
	begun, ended := w.shortage.see(now, s.Short, u.inUse)
	if begun {
		w.o.Logger.Warn("memory is short, dropping cached entries", "in_use", s.InUse, "limit", s.Limit, "gc_limited", s.Limiter)
	}
	if s.Short && w.shortage.due(now, u.inUse) {
		w.shed(now, &s)
	}
	if ended {
		w.o.Logger.Info("memory is no longer short", "in_use", s.InUse, "limit", s.Limit, "freed", s.Freed)
	}
	w.status.Store(&s)
}

// shed asks for as much as leads to the low mark. A collection costs as much as all
// that lives, so it must have something to give back.
func (w *Watcher) shed(now time.Time, s *Status) {
	// A limited collector wants some freed even if what is in use looks well.
	want := max(s.InUse-int64(w.o.Low*float64(w.o.Limit)), int64((w.o.High-w.o.Low)*float64(w.o.Limit)))
	freed := w.o.Shed(want)
	s.Sheds++
	s.Freed += freed
	if freed < want/worthwhile {
		if w.shortage.delay(now, s.InUse, w.o.Interval) {
			w.o.Logger.Warn("memory is short and little is left to drop", "in_use", s.InUse, "limit", s.Limit, "freed", freed)
		}
		return
	}
	w.shortage.wait = 0
	w.gc() // or the next look would see the same memory and shed again
	// That the collector was limited meanwhile is the doing of this one.
	w.limited = max(w.limited, w.read().limited)
}
