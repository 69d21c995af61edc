package memwatch

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

func TestNewRefuses(t *testing.T) {
	shed := func(int64) int64 { return 0 }
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no function"},
		{Options{Shed: shed, Limit: -1}, "limit -1"},
		{Options{Shed: shed, High: 1.5}, "high mark 1.5"},
		{Options{Shed: shed, High: 0.5, Low: 0.6}, "low mark 0.6"},
		{Options{Shed: shed, Interval: -1}, "interval -1ns"},
	} {
		if _, err := New(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%+v) = %v; want an error with %q", test.o, err, test.want)
		}
	}
}

// TestLook says when a watcher sheds, and how much.
func TestLook(t *testing.T) {
	for _, test := range []struct {
		name  string
		inUse int64
		gc    uint64 // last limited collection; 7 was known before
		want  int64  // 0: not asked
	}{
		{"far below", 100, 7, 0},
		{"just below the mark", 850, 7, 0},
		{"above the mark", 860, 7, 110},
		{"beyond the limit", 1100, 7, 350},
		{"collector limited", 100, 8, 100},
		{"collector limited, memory short", 950, 9, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked, collected := int64(0), 0
			w, err := New(Options{Limit: 1000, Logger: slog.New(slog.DiscardHandler), Shed: func(n int64) int64 {
				asked += n
				return n / 2
			}})
			if err != nil {
				t.Fatal(err)
			}
			w.read = func() usage { return usage{test.inUse, test.gc} }
			w.gc = func() { collected++ }
			w.limited = 7
			w.look(time.Now())
			if w.limited != test.gc {
				t.Errorf("the last limited collection is %d, want %d", w.limited, test.gc)
			}
			// A float in between may be off by one.
			if asked < test.want-1 || asked > test.want+1 || (collected == 1) != (test.want > 0) {
				t.Errorf("asked to free %d and collected %d times; want %d", asked, collected, test.want)
			}
			s := w.Status()
			if s.InUse != test.inUse || s.Short != (test.want > 0) || s.Limiter != (test.gc > 7) || s.Freed != asked/2 {
				t.Errorf("status is %+v", s)
			}
		})
	}
}

// TestRun sheds once while memory stays short for one look, and stops with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := int64(900)
		var log strings.Builder
		w, err := New(Options{Limit: 1000, Interval: time.Second, Shed: func(n int64) int64 { in -= n; return n },
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		w.read = func() usage { return usage{inUse: in, limited: 3} }
		w.gc = func() {}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		time.Sleep(2500 * time.Millisecond) // of the bubble's clock: two looks
		synctest.Wait()
		if s := w.Status(); s.Sheds != 1 || s.Short || s.InUse != 750 {
			t.Errorf("status is %+v; want one shed down to 750", s)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("logged %d lines, want one for each change:\n%s", lines, log.String())
		}
	})
}

// TestLimitedOnce says that Run sheds once for a collection that was limited, not at
// each look after it, nor for those before it or of its own.
func TestLimitedOnce(t *testing.T) {
	for name, part := range map[string]int64{"sheddable": 1, "nothing to shed": 0} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { limitedOnce(t, part) }) })
	}
}

// limitedOnce is for a Shed that frees so many times what it is asked for.
func limitedOnce(t *testing.T, part int64) {
	w, err := New(Options{Limit: 1000, Interval: time.Second, Shed: func(n int64) int64 { return part * n },
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var limited atomic.Uint64
	limited.Store(3)
	w.read = func() usage { return usage{inUse: 100, limited: limited.Load()} }
	w.gc = func() { limited.Add(1) } // which it made the runtime limit
	go w.Run(t.Context())
	for cycle, want := range []uint64{0, 1, 1, 2} {
		if cycle%2 == 1 {
			limited.Add(1)
		}
		time.Sleep(2500 * time.Millisecond) // of the bubble's clock
		synctest.Wait()
		if s := w.Status(); s.Sheds != want || s.Short {
			t.Errorf("%+v after %d limited collections", s, want)
		}
	}
}

// watched is a watcher whose looks a test makes, 200 ms after one another.
type watched struct {
	*Watcher
	now              time.Time
	inUse, sheddable int64
	collected        int
	log              strings.Builder
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	x := &watched{now: time.Now()}
	w, err := New(Options{Limit: 1000, Logger: slog.New(slog.NewTextHandler(&x.log, nil)), Shed: func(n int64) int64 {
		n = min(n, x.sheddable)
		x.sheddable -= n
		return n
	}})
	if err != nil {
		t.Fatal(err)
	}
	x.Watcher = w
	w.read = func() usage { return usage{inUse: x.inUse} }
	w.gc = func() { x.collected++ }
	return x
}

func (x *watched) lookFor(d time.Duration, each func(i int)) {
	for i := range int(d / x.o.Interval) {
		x.now = x.now.Add(x.o.Interval)
		each(i)
		x.look(x.now)
	}
}

// TestNothingToShed says what a watcher costs while memory is held by something that
// Shed cannot drop: no collection, few calls, and two lines in the log.
func TestNothingToShed(t *testing.T) {
	for name, each := range map[string]func(x *watched, i int){
		"nothing":     func(x *watched, _ int) { x.inUse = 870 },
		"a trickle":   func(x *watched, _ int) { x.inUse, x.sheddable = 870, 10 },
		"at the mark": func(x *watched, i int) { x.inUse = 848 + int64(i%2)*4 },
	} {
		t.Run(name, func(t *testing.T) {
			x := newWatched(t)
			x.lookFor(time.Hour, func(i int) { each(x, i) })
			if s := x.Status(); s.Sheds < 60 || s.Sheds > 70 || x.collected > 0 {
				t.Errorf("in an hour %d sheds and %d collections; want one shed a minute and no collection", s.Sheds, x.collected)
			}
			if n := strings.Count(x.log.String(), "\n"); n != 2 || !strings.Contains(x.log.String(), "little is left") {
				t.Errorf("logged %d lines, want 2:\n%s", n, x.log.String())
			}
			x.lookFor(2*maxWait, func(int) { x.inUse = 100 })
			if n := strings.Count(x.log.String(), "\n"); n != 3 || x.Status().Short {
				t.Errorf("memory is well again, and the log says\n%s", x.log.String())
			}
		})
	}
}

// TestGrowthEndsTheWait says that a wait does not keep a watcher from dropping what
// has come meanwhile.
func TestGrowthEndsTheWait(t *testing.T) {
	x := newWatched(t)
	x.lookFor(10*time.Minute, func(int) { x.inUse = 870 })
	sheds := x.Status().Sheds
	x.inUse, x.sheddable = 890, 500
	x.look(x.now.Add(time.Millisecond))
	if s := x.Status(); s.Sheds != sheds+1 || s.Freed != 140 || x.collected != 1 {
		t.Errorf("after memory grew: %+v, %d collections", s, x.collected)
	}
	// It freed enough, so there is no more waiting.
	x.look(x.now.Add(2 * time.Millisecond))
	if s := x.Status(); s.Sheds != sheds+2 {
		t.Errorf("%d sheds, want %d", s.Sheds, sheds+2)
	}
	// What grew from below the mark counts from there.
	x.sheddable = 0
	x.lookFor(10*time.Minute, func(int) {})
	sheds = x.Status().Sheds
	x.lookFor(x.o.Interval, func(int) { x.inUse = 100 })
	x.lookFor(x.o.Interval, func(int) { x.inUse = 880 })
	if s := x.Status(); s.Sheds != sheds+1 {
		t.Errorf("%d sheds, want %d", s.Sheds, sheds+1)
	}
}

// TestReaderCountsStacks says that what is in use is not the heap alone.
func TestReaderCountsStacks(t *testing.T) {
	const goroutines, each = 200, 64 << 10
	r := newReader()
	runtime.GC()
	before := r.read().inUse
	var deep sync.WaitGroup
	stop := make(chan struct{})
	for range goroutines {
		deep.Add(1)
		go func() {
			var frame [each]byte
			deep.Done()
			<-stop
			runtime.KeepAlive(&frame)
		}()
	}
	deep.Wait()
	if grown := r.read().inUse - before; grown < goroutines*each {
		t.Errorf("with %d bytes of stacks more in use by %d", goroutines*each, grown)
	}
	close(stop)
}

// TestRunWithoutLimit only waits.
func TestRunWithoutLimit(t *testing.T) {
	w, err := New(Options{Shed: func(int64) int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestCgroupLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, test := range map[string]struct {
		root fstest.MapFS
		want int64
	}{
		"none": {fstest.MapFS{}, 0},
		"version 2": {fstest.MapFS{
			"proc/self/cgroup":                 file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max":     file("max\n"),
			"sys/fs/cgroup/a/memory.max":       file("2000\n"),
			"sys/fs/cgroup/another/memory.max": file("10\n"),
		}, 2000},
		"in a container": {fstest.MapFS{
			"proc/self/cgroup":         file("0::/kubepods/pod1\n"),
			"sys/fs/cgroup/memory.max": file("500\n"),
		}, 500},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("5:cpu,memory:/x\n4:devices:/\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("300\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   file("9223372036854771712\n"),
		}, 300},
		"version 1, none": {fstest.MapFS{
			"proc/self/cgroup":                           file("5:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 0},
		"unreadable": {fstest.MapFS{
			"proc/self/cgroup":         file("0::/\nnonsense\n"),
			"sys/fs/cgroup/memory.max": file("lots\n"),
		}, 0},
	} {
		if got := cgroupLimit(test.root); got != test.want {
			t.Errorf("%s: limit %d, want %d", name, got, test.want)
		}
	}
}
