package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

func TestCertificates(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys})
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys})
	storageContract(t, a.Certificates(), b.Certificates())
}

// storageContract checks what certmagic expects of a storage that two
// processes share.
func storageContract(t *testing.T, a, b *Certificates) {
	t.Helper()
	ctx := t.Context()
	values := map[string]string{
		"acme/ca/users/x/key":           "account key",
		"certificates/ca/one/one.key":   "key",
		"certificates/ca/one/one.crt":   "certificate",
		"certificates/ca/two/two.crt":   "",
		"certificates/caXX/two/two.crt": "not below ca",
	}
	for name, v := range values {
		if err := a.Store(ctx, name, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range values {
		if got, err := b.Load(ctx, name); err != nil || string(got) != v {
			t.Errorf("Load(%q): %q, %v", name, got, err)
		}
		info, err := b.Stat(ctx, name)
		if err != nil || info.Key != name || info.Size != int64(len(v)) || !info.IsTerminal || time.Since(info.Modified) > time.Minute {
			t.Errorf("Stat(%q): %+v, %v", name, info, err)
		}
	}
	if _, err := b.Load(ctx, "certificates/ca/one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a directory: %v", err)
	}
	if info, err := b.Stat(ctx, "certificates/ca/one"); err != nil || info.IsTerminal {
		t.Errorf("Stat of a directory: %+v, %v", info, err)
	}
	if _, err := b.Stat(ctx, "nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of nothing: %v", err)
	}
	for _, tt := range []struct {
		path      string
		recursive bool
		want      string
	}{
		{"certificates/ca", false, "certificates/ca/one certificates/ca/two"},
		{"certificates/ca/", true, "certificates/ca/one/one.crt certificates/ca/one/one.key certificates/ca/two/two.crt"},
		{"", false, "acme certificates"},
		{"certificates/ca/one", false, "certificates/ca/one/one.crt certificates/ca/one/one.key"},
	} {
		got, err := b.List(ctx, tt.path, tt.recursive)
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("List(%q, %v): %q, %v; want %q", tt.path, tt.recursive, got, err, tt.want)
		}
	}
	if _, err := b.List(ctx, "nothing", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("List of nothing: %v", err)
	}
	if err := b.Delete(ctx, "certificates/ca"); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(ctx, "certificates/ca"); err != nil {
		t.Errorf("deleted twice: %v", err)
	}
	left, err := a.List(ctx, "", true)
	slices.Sort(left)
	if err != nil || strings.Join(left, " ") != "acme/ca/users/x/key certificates/caXX/two/two.crt" {
		t.Errorf("left: %q, %v", left, err)
	}
	if !a.Exists(ctx, "acme/ca") || a.Exists(ctx, "certificates/ca") {
		t.Error("Exists is wrong")
	}
	lockContract(t, a, b)
}

// lockContract checks that one holds a lock at a time.
func lockContract(t *testing.T, a, b *Certificates) {
	t.Helper()
	ctx := t.Context()
	var holders, turns atomic.Int32
	var wg sync.WaitGroup
	for i := range 6 {
		c := []*Certificates{a, b}[i%2]
		wg.Go(func() {
			for range 2 {
				if err := c.Lock(ctx, "name"); err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				turns.Add(1)
				holders.Add(-1)
				if err := c.Unlock(ctx, "name"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := turns.Load(); n != 12 {
		t.Errorf("%d turns, want 12", n)
	}
	if ok, err := a.TryLock(ctx, "name"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := b.TryLock(ctx, "name"); ok || err != nil {
		t.Errorf("a held lock was taken: %v, %v", ok, err)
	}
	if err := b.Unlock(ctx, "name"); err == nil {
		t.Error("a lock was given back by who does not hold it")
	}
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := b.Lock(brief, "name"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: %v", err)
	}
	if err := a.RenewLockLease(ctx, "name", time.Minute); err != nil {
		t.Error(err)
	}
	if err := b.RenewLockLease(ctx, "name", time.Minute); err == nil {
		t.Error("a lock was renewed by who does not hold it")
	}
	if err := a.Unlock(ctx, "name"); err != nil {
		t.Error(err)
	}
}

// A lock lives as long as its holder works, and runs out when it crashes. The
// holder that was lost does not take the lock from its next holder.
func TestLockLife(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Certificates()
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Certificates()
	a.lockLife, b.lockLife = 3*time.Second, 3*time.Second // a busy machine may stand still for one
	ctx := t.Context()
	if err := a.Lock(ctx, "name"); err != nil {
		t.Fatal(err)
	}
	pauseFor(t, 2*a.lockLife)
	if ok, _ := b.TryLock(ctx, "name"); ok {
		t.Fatal("the lock of a working holder ran out")
	}
	if err := a.Unlock(ctx, "name"); err != nil {
		t.Fatal(err)
	}

	crashed := exec.Command(os.Args[0], "-test.run=^TestLockHolder$")
	crashed.Env = append(os.Environ(), "TLSPROXY_TEST_LOCK="+r.addr, "TLSPROXY_TEST_KEYS="+keys)
	out, err := crashed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := crashed.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("locked"))
	if _, err := out.Read(line); err != nil || string(line) != "locked" {
		t.Fatalf("%q, %v", line, err)
	}
	if ok, _ := b.TryLock(ctx, "name"); ok {
		t.Fatal("another process's lock was taken")
	}
	crashed.Process.Kill()
	crashed.Wait()
	if err := b.Lock(ctx, "name"); err != nil {
		t.Fatal(err)
	}

	// b loses the lock while it is not looking; a takes it.
	raw := r.raw()
	raw.Del(ctx, b.lockKey("name"))
	if ok, err := a.TryLock(ctx, "name"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := b.Unlock(ctx, "name"); !errors.Is(err, errLockLost) {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
	if raw.Exists(ctx, a.lockKey("name")).Val() != 1 {
		t.Error("the new holder lost its lock")
	}
	if err := a.Unlock(ctx, "name"); err != nil {
		t.Error(err)
	}
}

// TestLostLockWithinAProcess: a lock that is lost stays with its holder within
// the process until Unlock, which says so and leaves alone who has it next.
func TestLostLockWithinAProcess(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Certificates()
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Certificates()
	ctx, raw := t.Context(), r.raw()
	if err := a.Lock(ctx, "name"); err != nil {
		t.Fatal(err)
	}
	raw.Del(ctx, a.lockKey("name")) // it ran out
	if ok, err := a.TryLock(ctx, "name"); ok || err != nil {
		t.Errorf("TryLock beside the holder: %v, %v", ok, err)
	}
	if ok, err := b.TryLock(ctx, "name"); !ok || err != nil {
		t.Errorf("TryLock by another process: %v, %v", ok, err)
	}
	if err := a.Unlock(ctx, "name"); !errors.Is(err, errLockLost) {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
	if n := raw.Exists(ctx, a.lockKey("name")).Val(); n != 1 {
		t.Error("Unlock gave back another's lock")
	}
	if err := b.Unlock(ctx, "name"); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if ok, err := a.TryLock(ctx, "name"); !ok || err != nil {
		t.Errorf("TryLock of a free lock: %v, %v", ok, err)
	}
	if err := a.Unlock(ctx, "name"); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// TestLockHolder is the process that TestLockLife kills; by itself it only
// takes a lock and gives it back.
func TestLockHolder(t *testing.T) {
	addr, keys := os.Getenv("TLSPROXY_TEST_LOCK"), os.Getenv("TLSPROXY_TEST_KEYS")
	child := addr != ""
	if !child {
		addr = startRedis(t).addr
	}
	c := open(t, Options{Addresses: []string{addr}, KeyFile: keys}).Certificates()
	c.lockLife = 3 * time.Second
	if err := c.Lock(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	if child {
		fmt.Print("locked")
		select {} // until it is killed
	}
	if err := c.Unlock(t.Context(), "name"); err != nil {
		t.Error(err)
	}
}

// Long-lived values are sealed with the active key, so that an old key can go.
func TestReseal(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	pair := newKeys(2)
	old, fresh := pair[0], pair[1]
	keys := writeKeys(t, "", old)
	s := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys})
	c := s.Certificates()
	for i := range 20 {
		if err := c.Store(t.Context(), fmt.Sprint("name", i), fmt.Append(nil, "value", i)); err != nil {
			t.Fatal(err)
		}
	}
	raw := r.raw()
	raw.HSet(t.Context(), c.hash(), "foreign", "junk")
	before, err := c.Stat(t.Context(), "name7")
	if err != nil {
		t.Fatal(err)
	}
	writeKeys(t, keys, fresh, old)
	if err := s.ReloadKeys(); err != nil {
		t.Fatal(err)
	}
	hint := s.Sessions().Hint()
	testtool.Eventually(t, "all is sealed with the new key", func() bool {
		n := 0
		for _, v := range raw.HGetAll(t.Context(), c.hash()).Val() {
			if len(v) > 1 && v[1] == hint {
				n++
			}
		}
		return n == 20
	})
	writeKeys(t, keys, fresh)
	if err := s.ReloadKeys(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Load(t.Context(), "name7"); err != nil || string(got) != "value7" {
		t.Errorf("%q, %v", got, err)
	}
	if after, err := c.Stat(t.Context(), "name7"); err != nil || !after.Modified.Equal(before.Modified) {
		t.Errorf("modified %v, was %v: %v", after.Modified, before.Modified, err)
	}
	if _, err := c.Load(t.Context(), "foreign"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a value that does not open: %v", err)
	}
}

func TestStaples(t *testing.T) {
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys})
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys})
	staplesContract(t, a.Staples(), b.Staples())
	for _, key := range r.raw().Keys(t.Context(), "*").Val() {
		if ttl := r.raw().PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%q lives for ever", key)
		}
	}
}

func staplesContract(t *testing.T, a, b *Staples) {
	t.Helper()
	ctx, key := t.Context(), [32]byte{1, 2}
	if v, err := b.Get(ctx, key); v != nil || err != nil {
		t.Errorf("before: %q, %v", v, err)
	}
	if err := a.Put(ctx, key, []byte("response"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if v, err := b.Get(ctx, key); string(v) != "response" || err != nil {
		t.Errorf("after: %q, %v", v, err)
	}
	if v, err := b.Get(ctx, [32]byte{3}); v != nil || err != nil {
		t.Errorf("another: %q, %v", v, err)
	}
	if err := b.Put(ctx, key, []byte("late"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if v, err := a.Get(ctx, key); v != nil || err != nil {
		t.Errorf("after an end in the past: %q, %v", v, err)
	}
	if ok, err := a.Claim(ctx, key, time.Minute); !ok || err != nil {
		t.Errorf("first claim: %v, %v", ok, err)
	}
	if ok, err := b.Claim(ctx, key, time.Minute); ok || err != nil {
		t.Errorf("second claim: %v, %v", ok, err)
	}
	if ok, err := b.Claim(ctx, [32]byte{9}, 10*time.Millisecond); !ok || err != nil {
		t.Errorf("claim of another: %v, %v", ok, err)
	}
	testtool.Eventually(t, "a claim ends", func() bool { ok, err := a.Claim(ctx, [32]byte{9}, time.Minute); return ok && err == nil })
}
