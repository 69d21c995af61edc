package store

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

var _ session.Store = (*Sessions)(nil)

func TestSessionsLife(t *testing.T) {
	s, r := opened(t)
	c := s.Sessions()
	id := newID(c)
	if got := get(t, c, id); got != "" {
		t.Errorf("before anything was put: %q", got)
	}
	put(t, c, id, "value", time.Hour)
	if got := get(t, c, id); got != "value" {
		t.Errorf("after put: %q", got)
	}
	key := keyOf(t, c, id)
	raw := r.raw()
	ttl := func() time.Duration { return raw.PTTL(t.Context(), key).Val() }
	if d := ttl(); d > time.Hour || d < time.Hour-time.Minute {
		t.Errorf("lives for %v, want an hour", d)
	}
	change := func(life time.Duration) {
		t.Helper()
		if err := c.Write(t.Context(), []Change{{ID: id, Life: life}}); err != nil {
			t.Fatal(err)
		}
	}
	change(2 * time.Hour) // a cut never lengthens
	if d := ttl(); d > time.Hour {
		t.Errorf("lives for %v after a cut to two hours", d)
	}
	change(time.Minute)
	if d := ttl(); d > time.Minute || d < 50*time.Second {
		t.Errorf("lives for %v after a cut to a minute", d)
	}
	change(0)
	if got := get(t, c, id); got != "" {
		t.Errorf("after deletion: %q", got)
	}
	change(time.Minute) // a cut revives nothing
	if got := get(t, c, id); got != "" {
		t.Errorf("after deletion and cut: %q", got)
	}
	put(t, c, id, "short", 30*time.Millisecond)
	testtool.Eventually(t, "a short life ends", func() bool { return get(t, c, id) == "" })
}

func keyOf(t testing.TB, c *Sessions, id [16]byte) string {
	t.Helper()
	_, _, key, ok := c.key(id)
	if !ok {
		t.Fatal("no key for the ID")
	}
	return key
}

// Changes to one session are made in their order.
func TestSessionsOrder(t *testing.T) {
	s, _ := opened(t)
	c := s.Sessions()
	a, b := newID(c), newID(c)
	var changes []Change
	for i := range 100 {
		changes = append(changes, Change{ID: a, Value: []byte{byte(i)}, Life: time.Hour}, Change{ID: b, Value: []byte{1}, Life: time.Hour})
	}
	changes = append(changes, Change{ID: b})
	if err := c.Write(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c, a); got != "\x63" {
		t.Errorf("%q", got)
	}
	if got := get(t, c, b); got != "" {
		t.Errorf("the deleted one: %q", got)
	}
	if err := c.Write(t.Context(), nil); err != nil {
		t.Errorf("no changes: %v", err)
	}
}

// Of many takers on two replicas exactly one gets it.
func TestTakeOnce(t *testing.T) {
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Sessions()
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Sessions()
	for range 20 {
		id := newID(a)
		put(t, a, id, "value", time.Hour)
		var taken atomic.Int32
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				c := []*Sessions{a, b}[i%2]
				ok, err := c.Take(t.Context(), id)
				if err != nil {
					t.Error(err)
				}
				if ok {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		if n := taken.Load(); n != 1 {
			t.Fatalf("%d takers were told true", n)
		}
	}
}

// The operator sees neither what is stored nor under which name.
func TestOperatorLearnsNothing(t *testing.T) {
	s, r := opened(t)
	c := s.Sessions()
	id := newID(c)
	put(t, c, id, "the secret of the session", time.Hour)
	mac, _ := c.MAC(id)
	if err := c.Publish(t.Context(), recordsFor(time.Hour, []byte(`{"kind":"site","value":"name"}`))); err != nil {
		t.Fatal(err)
	}
	if err := s.Certificates().Store(t.Context(), "x/key.pem", []byte("BEGIN PRIVATE KEY")); err != nil {
		t.Fatal(err)
	}
	if err := s.Staples().Put(t.Context(), [32]byte{1}, []byte("response"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	dump := strings.Join(everything(t, r), "\n")
	for _, secret := range []string{
		"the secret", "PRIVATE", "response", "site", string(id[1:]), string(mac[:]), hex.EncodeToString(id[1:]), s.o.KeyFile,
	} {
		if strings.Contains(dump, secret) {
			t.Errorf("the server holds %q", secret)
		}
	}
	if !strings.Contains(dump, "tlsproxy:s:") || !strings.Contains(dump, "x/key.pem") {
		t.Errorf("the dump does not show what is there: %q", dump)
	}
}

// everything returns all keys and values that a server holds.
func everything(t testing.TB, r *redisServer) (out []string) {
	t.Helper()
	raw := r.raw()
	keys, err := raw.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		out = append(out, k, raw.Get(t.Context(), k).Val())
		for f, v := range raw.HGetAll(t.Context(), k).Val() {
			out = append(out, f, v)
		}
		out = append(out, raw.ZRange(t.Context(), k, 0, -1).Val()...)
	}
	return out
}

// A value opens under its own name only, and undamaged only.
func TestOperatorMovesNothing(t *testing.T) {
	s, r := opened(t)
	c := s.Sessions()
	a, b := newID(c), newID(c)
	put(t, c, a, "value a", time.Hour)
	put(t, c, b, "value b", time.Hour)
	raw := r.raw()
	ka, kb := keyOf(t, c, a), keyOf(t, c, b)
	va, vb := raw.Get(t.Context(), ka).Val(), raw.Get(t.Context(), kb).Val()

	raw.MSet(t.Context(), ka, vb, kb, va) // swapped
	if ga, gb := get(t, c, a), get(t, c, b); ga != "" || gb != "" {
		t.Errorf("swapped values opened: %q, %q", ga, gb)
	}
	if ok, err := c.Take(t.Context(), a); ok || err != nil {
		t.Errorf("a swapped value was taken: %v, %v", ok, err)
	}
	for i := range len(va) { // damaged anywhere
		bad := []byte(va)
		bad[i] ^= 1
		raw.Set(t.Context(), ka, bad, time.Hour)
		if got := get(t, c, a); got != "" {
			t.Fatalf("opened with byte %d damaged: %q", i, got)
		}
	}
	for _, bad := range []string{"", "x", va[:len(va)-1], va + "x", strings.Repeat("x", 1<<20)} {
		raw.Set(t.Context(), ka, bad, time.Hour)
		if got := get(t, c, a); got != "" {
			t.Fatalf("opened: %q", got)
		}
	}
	raw.Del(t.Context(), ka)
	raw.LPush(t.Context(), ka, "another type")
	if b, err := c.Get(t.Context(), a); b != nil || err == nil {
		t.Errorf("a list: %q, %v", b, err)
	}
	if n := s.Stats().Calls["corrupt"]; n < uint64(len(va)) {
		t.Errorf("%d corrupt values counted", n)
	}
	put(t, c, b, "value b", time.Hour) // the store as such is fine
	if got := get(t, c, b); got != "value b" {
		t.Errorf("%q", got)
	}
}

// Distribute, then promote: handles made before and after resume on replicas
// that are not yet as far.
func TestKeyRotation(t *testing.T) {
	r := startRedis(t)
	pair := newKeys(2)
	k1, k2 := pair[0], pair[1]
	file1, file2 := writeKeys(t, "", k1), writeKeys(t, "", k1)
	s1 := open(t, Options{Addresses: []string{r.addr}, KeyFile: file1})
	s2 := open(t, Options{Addresses: []string{r.addr}, KeyFile: file2})
	a, b := s1.Sessions(), s2.Sessions()
	old := newID(a)
	put(t, a, old, "old", time.Hour)
	both := func(id [16]byte, want string) {
		t.Helper()
		if ga, gb := get(t, a, id), get(t, b, id); ga != want || gb != want {
			t.Fatalf("%q and %q, want %q", ga, gb, want)
		}
		ma, oka := a.MAC(id)
		mb, okb := b.MAC(id)
		if ma != mb || oka != okb || oka != (want != "") {
			t.Fatalf("MACs %x %v and %x %v", ma, oka, mb, okb)
		}
	}
	reload := func(s *Store, file string, keys ...string) {
		t.Helper()
		writeKeys(t, file, keys...)
		if err := s.ReloadKeys(); err != nil {
			t.Fatal(err)
		}
	}
	both(old, "old")
	reload(s1, file1, k1, k2)
	reload(s2, file2, k1, k2)
	both(old, "old")
	reload(s1, file1, k2, k1) // promoted on one replica
	if a.Hint() == b.Hint() {
		t.Fatal("the active key did not change")
	}
	fresh := newID(a)
	put(t, a, fresh, "fresh", time.Hour)
	both(old, "old")
	both(fresh, "fresh")
	reload(s2, file2, k2, k1)
	both(old, "old")
	reload(s1, file1, k2) // retired
	reload(s2, file2, k2)
	both(old, "")
	both(fresh, "fresh")

	// A broken file changes nothing and is told.
	writeKeys(t, file1, "nonsense")
	if err := s1.ReloadKeys(); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("ReloadKeys: %v", err)
	}
	if st := s1.Status(); st.KeyFileError == "" || st.Keys != 1 {
		t.Errorf("%+v", st)
	}
	both(fresh, "fresh")
}

// The file is read again by itself.
func TestKeyFileIsWatched(t *testing.T) {
	f := keyFile{path: writeKeys(t, "", newKey())}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	if f.changed() {
		t.Error("changed without a change")
	}
	writeKeys(t, f.path, newKeys(2)...)
	if !f.changed() {
		t.Error("a longer file was not noticed")
	}
	if err := f.load(); err != nil || f.changed() {
		t.Error(err, f.changed())
	}
}

// Replicas of two fleets on one server do not see each other.
func TestPrefixes(t *testing.T) {
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys, Prefix: "a:"}).Sessions()
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys, Prefix: "b:"}).Sessions()
	id := newID(a)
	put(t, a, id, "a", time.Hour)
	if got := get(t, b, id); got != "" {
		t.Errorf("%q", got)
	}
	for _, line := range everything(t, r) {
		if strings.HasPrefix(line, "tlsproxy:") {
			t.Errorf("key %q ignores the prefix", line)
		}
	}
}

// Revocations reach other replicas at once, also those that were away or start
// later, and end with their life.
func TestRevocationsAreShared(t *testing.T) {
	r := startRedis(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Sessions()
	var heard records
	b := open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Sessions()
	watch(t, b, &heard)
	if err := a.Publish(t.Context(), recordsFor(time.Hour, []byte("one"))); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "the first record is heard", func() bool { return heard.has("one") })

	raw := r.raw()
	raw.ClientKillByFilter(t.Context(), "TYPE", "pubsub") // the announcement may be missed
	if err := a.Publish(t.Context(), recordsFor(time.Hour, []byte("two"))); err != nil {
		t.Fatal(err)
	}
	ring := a.s.keys.ring.Load() // and the one of this record is missed: there is none
	sealed, err := ring.seal(ring.active, recordPurpose, []byte(recordID), []byte("unannounced"))
	if err != nil {
		t.Fatal(err)
	}
	raw.ZAdd(t.Context(), a.recordSet(), redisZ(string(sealed), time.Now().Add(time.Hour)))
	raw.Incr(t.Context(), a.recordVersion())
	testtool.Eventually(t, "missed records are found", func() bool { return heard.has("two") && heard.has("unannounced") })

	if err := a.Publish(t.Context(), recordsFor(time.Millisecond, []byte("brief"))); err != nil {
		t.Fatal(err)
	}
	raw.ZAdd(t.Context(), a.recordSet(), redisZ("forged", time.Now().Add(time.Hour)))
	raw.Publish(t.Context(), a.recordChannel(), "forged")
	pauseFor(t, 5*time.Millisecond)
	var late records
	watch(t, open(t, Options{Addresses: []string{r.addr}, KeyFile: keys}).Sessions(), &late)
	testtool.Eventually(t, "a late replica hears all", func() bool { return late.has("one") && late.has("two") })
	if late.has("brief") || late.has("forged") || heard.has("forged") {
		t.Errorf("heard %v and %v", heard.all(), late.all())
	}

	raw.FlushAll(t.Context()) // the store lost everything; new ones still arrive
	if err := a.Publish(t.Context(), recordsFor(time.Hour, []byte("three"))); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "a record after a flush is heard", func() bool { return heard.has("three") && late.has("three") })
}

// A set that lost records, with or without its version, is read again.
func TestLostRevocationsAreNoticed(t *testing.T) {
	s, r := opened(t)
	c, raw := s.Sessions(), r.raw()
	var heard records
	w := recordWatch{c: c, apply: heard.apply}
	sync := func(want int, when string) {
		t.Helper()
		if err := w.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if heard.readings != want {
			t.Errorf("%s: read %d times, want %d", when, heard.readings, want)
		}
	}
	sync(1, "at the start")
	sync(1, "when nothing changed")
	if err := c.Publish(t.Context(), recordsFor(time.Hour, []byte("one"))); err != nil {
		t.Fatal(err)
	}
	before := raw.Get(t.Context(), c.recordVersion()).Val()
	sync(2, "after a record")
	if end := heard.ends[0]; time.Until(end) > time.Hour || time.Until(end) < 59*time.Minute {
		t.Errorf("the record ends in %v, want an hour", time.Until(end))
	}
	if err := c.Publish(t.Context(), recordsFor(time.Hour, []byte("two"))); err != nil {
		t.Fatal(err)
	}
	raw.Set(t.Context(), c.recordVersion(), before, 0) // the server lost that write at once
	sync(3, "after a record that was lost")
	for range 3 {
		if err := c.Publish(t.Context(), recordsFor(time.Hour, []byte("three"))); err != nil {
			t.Fatal(err)
		}
		if now := raw.Get(t.Context(), c.recordVersion()).Val(); now == before {
			t.Error("a version came again")
		}
	}
	sync(4, "after three records")
	raw.FlushAll(t.Context())
	sync(5, "when everything is lost")
	sync(5, "when that is known")
	w.read = w.read.Add(-readEvery)
	sync(6, "after a while")
}

// What others stand for is removed, and nothing else.
func TestSupersededRecordsAreRemoved(t *testing.T) {
	s, r := opened(t)
	c, raw := s.Sessions(), r.raw()
	for i := range 3 * removeAtOnce {
		if err := c.Publish(t.Context(), recordsFor(time.Hour+time.Duration(i)*time.Second, fmt.Append(nil, i))); err != nil {
			t.Fatal(err)
		}
	}
	raw.ZAdd(t.Context(), c.recordSet(), redisZ("another's", time.Now().Add(time.Minute)))
	w := recordWatch{c: c, apply: func(held []SharedRecord, all bool) (gone []int, _ error) {
		if held[0].Record != nil {
			t.Error("what does not open did not come as such")
		}
		for i, h := range held[1:] {
			if want := fmt.Sprint(i); string(h.Record) != want {
				t.Fatalf("record %d is %q", i, h.Record)
			}
			if i != 7 {
				gone = append(gone, i+1)
			}
		}
		return gone, nil
	}}
	if err := w.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := raw.ZCard(t.Context(), c.recordSet()).Val(); n != 2 {
		t.Errorf("%d members are left, want record 7 and the one that does not open", n)
	}
	var late records
	w = recordWatch{c: c, apply: late.apply}
	if err := w.sync(t.Context()); err != nil || late.all() != "7" {
		t.Errorf("left: %q, %v", late.all(), err)
	}
}

// A replica's watch survives an outage of the server.
func TestWatchSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	s, r := opened(t)
	c := s.Sessions()
	var heard records
	watch(t, c, &heard)
	testtool.Eventually(t, "the first sync", func() bool { return heard.current.Load() && !s.Status().RevocationsSynced.IsZero() })
	r.kill()
	testtool.Eventually(t, "the outage is noticed", func() bool { return !heard.current.Load() })
	r.start()
	testtool.Eventually(t, "and its end", func() bool { return heard.current.Load() })
	testtool.Eventually(t, "a record is taken again", func() bool {
		return c.Publish(t.Context(), recordsFor(time.Hour, []byte("after"))) == nil
	})
	testtool.Eventually(t, "and heard", func() bool { return heard.has("after") })
}

// records collects what a watch applies.
type records struct {
	current atomic.Bool

	mu       sync.Mutex
	seen     [][]byte
	readings int
	ends     []time.Time // of the last reading
}

func (r *records) apply(held []SharedRecord, all bool) ([]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for _, h := range held {
		if h.Record == nil {
			err = errSealed
			continue
		}
		r.seen = append(r.seen, bytes.Clone(h.Record))
	}
	if all {
		r.readings++
		r.ends = nil
		for _, h := range held {
			r.ends = append(r.ends, h.End)
		}
	}
	return nil, err
}

func (r *records) know(err error) { r.current.Store(err == nil) }

func (r *records) has(s string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.seen {
		if string(b) == s {
			return true
		}
	}
	return false
}

func (r *records) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(bytes.Join(r.seen, []byte(" ")))
}
