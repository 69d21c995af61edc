package memwatch

import (
	"context"
	"log/slog"
	"strings"
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
			if got := w.look(7); got != test.gc {
				t.Errorf("look = %d, want %d", got, test.gc)
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
