package memwatch_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
)

// The child processes fill a cache with more sessions than their memory limit has
// room for.
const (
	childEnv   = "MEMWATCH_TEST_CHILD"
	childLimit = 64 << 20
	childPuts  = 800_000 // some 160 MB of them
)

// childReport is what a child says at its end.
type childReport struct {
	Entries int
	Sheds   uint64
	Newest  bool  // whether the session put last is there
	Peak    int64 // the most memory that the runtime had from the system
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		if err := json.NewEncoder(os.Stdout).Encode(child(mode == "watched")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child fills an unbounded cache, with or without a watcher.
func child(watched bool) childReport {
	c, err := cache.New(cache.Options[[32]byte, [130]byte]{Lifetime: time.Hour})
	if err != nil {
		panic(err)
	}
	var w *memwatch.Watcher
	w, err = memwatch.New(memwatch.Options{
		Limit:    memwatch.Limit(),
		Interval: 5 * time.Millisecond,
		Logger:   slog.New(slog.DiscardHandler),
		Shed:     func(bytes int64) int64 { return shed(c, bytes) },
	})
	if err != nil {
		panic(err)
	}
	if memwatch.Limit() != childLimit {
		panic(fmt.Sprint("limit is ", memwatch.Limit()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if watched {
		go func() { done <- w.Run(ctx) }()
	} else {
		done <- nil
	}
	var key [32]byte
	var peak int64
	pace := time.NewTicker(time.Millisecond)
	for i := range childPuts {
		binary.LittleEndian.PutUint64(key[:], uint64(i))
		c.Put(key, [130]byte{})
		if i%400 == 0 {
			peak = max(peak, fromSystem())
			if watched {
				<-pace.C // or the puts would come faster than any handshakes
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		panic(err)
	}
	_, newest := c.Get(key)
	return childReport{c.Len(), w.Status().Sheds, newest, peak}
}

// fromSystem returns the memory that the Go runtime has from the system.
func fromSystem() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// shed is what the program does with the sessions it holds.
func shed(c *cache.Cache[[32]byte, [130]byte], bytes int64) int64 {
	before := c.Stats()
	if before.Entries == 0 {
		return 0
	}
	each := before.Bytes / int64(before.Entries)
	c.Shed(int((bytes + each - 1) / each))
	return before.Bytes - c.Bytes()
}

// runChild returns what the child said.
func runChild(t *testing.T, mode string) (r childReport) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+mode, fmt.Sprintf("GOMEMLIMIT=%d", childLimit))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("child said %q: %v", out, err)
	}
	return r
}

// TestUnderMemoryLimit fills a real cache beyond a real memory limit. Without a
// watcher the process goes far beyond it; with one it stays close to it, and keeps
// the sessions used last.
func TestUnderMemoryLimit(t *testing.T) {
	r := runChild(t, "unwatched")
	if r.Peak < 2*childLimit || r.Entries != childPuts {
		t.Fatalf("without a watcher %d entries took %d bytes: the test is too small to show anything", r.Entries, r.Peak)
	}
	r = runChild(t, "watched")
	t.Logf("%d sheds, %d entries left, %d MiB at most", r.Sheds, r.Entries, r.Peak>>20)
	if r.Peak > childLimit*5/4 {
		t.Errorf("the process took %d bytes under a limit of %d", r.Peak, childLimit)
	}
	if r.Sheds == 0 || !r.Newest || r.Entries < 50_000 {
		t.Errorf("after %d sheds %d entries are left, the newest: %v", r.Sheds, r.Entries, r.Newest)
	}
}
