package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	recordPurpose = "revocation"
	// recordID is the identity that records are sealed for: they all lie in
	// one set, and one under another's name is still that one.
	recordID = "record"

	// syncEvery is how often a replica looks whether the revocations in the
	// store are others than those that it read.
	syncEvery = time.Second
	// readEvery is how often it reads them though that does not show: a set
	// may have lost some, or all, without its version.
	readEvery = time.Minute
	// removeAtOnce bounds what the server removes in one go.
	removeAtOnce = 500
	// farAway bounds the ends that a server may tell, in milliseconds.
	farAway = 1 << 48
)

// SharedRecord is one record of [Sessions.Publish] and [Sessions.Watch], and
// until when it is kept. A nil Record is one that does not open; in an
// announcement End is zero.
type SharedRecord = struct {
	Record []byte
	End    time.Time
}

// keys of the revocations; the tag keeps them on one server of a cluster.
func (c *Sessions) recordSet() string     { return c.s.o.Prefix + "{r}:records" }
func (c *Sessions) recordVersion() string { return c.s.o.Prefix + "{r}:version" }
func (c *Sessions) recordChannel() string { return c.s.o.Prefix + "revocations" }

// Publish keeps revocation records and tells every replica.
func (c *Sessions) Publish(ctx context.Context, records []SharedRecord) error {
	ring := c.s.keys.ring.Load()
	members := make([]redis.Z, len(records))
	for i, r := range records {
		sealed, err := ring.seal(ring.active, recordPurpose, []byte(recordID), r.Record)
		if err != nil {
			return err
		}
		members[i] = redis.Z{Score: float64(r.End.UnixMilli()), Member: string(sealed)}
	}
	err := c.s.do(ctx, c.recordSet(), patient|writing, func(ctx context.Context) error {
		_, err := c.s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.ZRemRangeByScore(ctx, c.recordSet(), "-inf", strconv.FormatInt(time.Now().UnixMilli(), 10))
			p.ZAdd(ctx, c.recordSet(), members...)
			p.Set(ctx, c.recordVersion(), newVersion(), 0)
			return nil
		})
		return err
	})
	c.s.published.Store(true)
	if err != nil {
		return err
	}
	// The records are kept; who does not hear of them now finds them within syncEvery.
	c.s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, m := range members {
			p.Publish(ctx, c.recordChannel(), m.Member)
		}
		return nil
	})
	return nil
}

// newVersion is what a set of records is known by. It is drawn at random, since
// a server that lost its last writes would count to the same numbers again.
func newVersion() string { return strconv.FormatInt(rand.Int64N(1<<62), 10) }

// Watch calls apply with all records that are held, again soon after they or
// the keys changed, and with each new one, until ctx ends; records may come
// more than once. It removes those that apply says others stand for, and keeps
// apply's error for the Status. It calls known with nil once all that is held
// was applied, and with the reason when it cannot look. In a cluster it does not
// where a server does not answer: while the one master that has the records is
// down nobody can add any, and the others' sessions go on.
func (c *Sessions) Watch(ctx context.Context, apply func(records []SharedRecord, all bool) (superseded []int, err error), known func(error)) error {
	sub := c.s.client.Subscribe(ctx, c.recordChannel())
	defer sub.Close()
	announced := sub.Channel()
	w := recordWatch{c: c, apply: apply}
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		err := w.sync(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.s.revocations.looked(cmp.Or(err, w.problem))
		if err == nil || c.s.o.Mode != Cluster || judge(err) == refused {
			known(err)
		}
		for looked := false; !looked; {
			select {
			case m, ok := <-announced:
				if !ok {
					announced = nil
					continue
				}
				w.hear(m, announced)
			case <-tick.C:
				looked = true
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// recordWatch is what a Watch has read.
type recordWatch struct {
	c       *Sessions
	apply   func([]SharedRecord, bool) ([]int, error)
	ring    *Keyring // that opened what was read
	version string
	problem error     // what apply said of it
	read    time.Time // zero: not, or something happened since
}

// hear applies what was announced, first and all that waits behind it together.
func (w *recordWatch) hear(first *redis.Message, more <-chan *redis.Message) {
	w.read = time.Time{} // the server may still lose it, and what does not open is looked at as a whole
	ring := w.c.s.keys.ring.Load()
	var heard []SharedRecord
	for m := first; m != nil; {
		if record := w.c.open(ring, m.Payload); record != nil {
			heard = append(heard, SharedRecord{Record: record})
		}
		select {
		case m = <-more:
		default:
			m = nil
		}
	}
	if len(heard) > 0 {
		w.apply(heard, false)
	}
}

// sync reads all records if they may be others than last time.
func (w *recordWatch) sync(ctx context.Context) error {
	if w.c.s.published.Swap(false) {
		w.read = time.Time{}
	}
	version, err := w.c.version(ctx)
	if err != nil {
		return err
	}
	ring := w.c.s.keys.ring.Load()
	if version == w.version && ring == w.ring && time.Since(w.read) < readEvery {
		return nil
	}
	start := time.Now()
	if err := w.readAll(ctx, ring); err != nil {
		w.read = time.Time{}
		return err
	}
	w.version, w.ring, w.read = version, ring, start
	return nil
}

// version changes with every record.
func (c *Sessions) version(ctx context.Context) (version string, err error) {
	err = c.look(ctx, probeTimeout, func(ctx context.Context) (err error) {
		version, err = c.s.client.Get(ctx, c.recordVersion()).Result()
		return err
	})
	return version, err
}

// readAll applies all records that are held, those that end first before the
// others, and removes what is superseded.
func (w *recordWatch) readAll(ctx context.Context, ring *Keyring) error {
	members, err := w.c.members(ctx)
	if err != nil {
		return err
	}
	held := make([]SharedRecord, len(members))
	for i, m := range members {
		sealed, _ := m.Member.(string)
		held[i] = SharedRecord{Record: w.c.open(ring, sealed), End: time.UnixMilli(int64(min(m.Score, farAway)))}
	}
	superseded, problem := w.apply(held, true)
	w.problem = problem
	gone := make([]any, len(superseded))
	for i, j := range superseded {
		gone[i] = members[j].Member
	}
	for some := range slices.Chunk(gone, removeAtOnce) {
		if err := w.c.remove(ctx, some); err != nil {
			break // they cost room only, and the next one who reads tries again
		}
	}
	return nil
}

// members returns what is held, in the server's order: by End, then by bytes.
func (c *Sessions) members(ctx context.Context) (members []redis.Z, err error) {
	err = c.look(ctx, longCall, func(ctx context.Context) (err error) {
		members, err = c.s.client.ZRangeByScoreWithScores(ctx, c.recordSet(), &redis.ZRangeBy{
			Min: fmt.Sprintf("(%d", time.Now().UnixMilli()), Max: "+inf",
		}).Result()
		return err
	})
	return members, err
}

// look makes a call that a Watch reads with. No breaker is asked, and none
// learns from it: it comes once a second from each replica, which must know as
// soon as the server answers whether that lost something.
func (c *Sessions) look(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(ctx)
	c.s.note(err)
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return nil
	case judge(err) == refused:
		return refusal{fmt.Errorf("store: %w", err)}
	}
	return fmt.Errorf("store: %w", err)
}

func (c *Sessions) remove(ctx context.Context, members []any) error {
	return c.s.do(ctx, c.recordSet(), patient|reading, func(ctx context.Context) error {
		return c.s.client.ZRem(ctx, c.recordSet(), members...).Err()
	})
}

// open opens a record, to nil if it does not: a replica may hold other keys.
func (c *Sessions) open(ring *Keyring, sealed string) []byte {
	record, err := ring.open(recordPurpose, []byte(recordID), []byte(sealed))
	if err != nil {
		c.s.corrupt.Add(1)
		return nil
	}
	return append([]byte{}, record...) // an empty one is one
}

// revocationStatus is what is known of the revocations in the store.
type revocationStatus struct {
	mu     sync.Mutex
	synced time.Time // when they were last known to be complete
	err    error     // why they are not
}

// looked notes a look at them.
func (s *revocationStatus) looked(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err == nil {
		s.synced = time.Now()
	}
}

func (s *revocationStatus) get() (synced time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced, s.err
}
