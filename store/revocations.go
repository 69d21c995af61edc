package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	recordPurpose = "revocation"
	// recordID is the identity that records are sealed for: they all lie in
	// one set, and one under another's name is still that one.
	recordID = "record"

	// syncEvery is how often a replica looks whether it missed a
	// revocation that was announced while it did not listen.
	syncEvery = time.Second
)

// keys of the revocations; the tag keeps them on one server of a cluster.
func (c *Sessions) recordSet() string     { return c.s.o.Prefix + "{r}:records" }
func (c *Sessions) recordVersion() string { return c.s.o.Prefix + "{r}:version" }
func (c *Sessions) recordChannel() string { return c.s.o.Prefix + "revocations" }

// Publish keeps a revocation record for life and tells every replica.
func (c *Sessions) Publish(ctx context.Context, record []byte, life time.Duration) error {
	ring := c.s.keys.ring.Load()
	sealed, err := ring.seal(ring.active, recordPurpose, []byte(recordID), record)
	if err != nil {
		return err
	}
	now := time.Now()
	err = c.s.do(ctx, c.recordSet(), patient|writing, func(ctx context.Context) error {
		_, err := c.s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.ZRemRangeByScore(ctx, c.recordSet(), "-inf", strconv.FormatInt(now.UnixMilli(), 10))
			p.ZAdd(ctx, c.recordSet(), redis.Z{Score: float64(now.Add(life).UnixMilli()), Member: sealed})
			p.Incr(ctx, c.recordVersion())
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	// The record is kept; who does not hear of it now finds it within syncEvery.
	c.s.client.Publish(ctx, c.recordChannel(), sealed)
	return nil
}

// Watch calls apply with every record that is held and with each new one,
// until ctx ends; records may come more than once and in any order. It calls
// current with true once all that is held was applied, and with false when it
// cannot look. In a cluster it does not: while the one master that has the
// records is down nobody can add any, and the others' sessions go on.
func (c *Sessions) Watch(ctx context.Context, apply func(record []byte), current func(bool)) error {
	sub := c.s.client.Subscribe(ctx, c.recordChannel())
	defer sub.Close()
	announced := sub.Channel()
	w := recordWatch{c: c, apply: apply}
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		switch err := w.sync(ctx); {
		case err == nil:
			c.s.synced.Store(time.Now().UnixNano())
			current(true)
		case c.s.o.Mode != Cluster:
			current(false)
		}
		for looked := false; !looked; {
			select {
			case m, ok := <-announced:
				if !ok {
					announced = nil
					continue
				}
				c.open(m.Payload, apply)
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
	apply   func([]byte)
	version string
	known   bool
}

// sync reads all records if there are others than last time.
func (w *recordWatch) sync(ctx context.Context) error {
	version, err := w.c.version(ctx)
	if err != nil || w.known && version == w.version {
		return err
	}
	if err := w.c.readRecords(ctx, w.apply); err != nil {
		return err
	}
	w.version, w.known = version, true
	return nil
}

// version changes with every record.
func (c *Sessions) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	v, err := c.s.client.Get(ctx, c.recordVersion()).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return v, err
}

func (c *Sessions) readRecords(ctx context.Context, apply func([]byte)) error {
	ctx, cancel := context.WithTimeout(ctx, longCall)
	defer cancel()
	records, err := c.s.client.ZRangeByScore(ctx, c.recordSet(), &redis.ZRangeBy{
		Min: fmt.Sprintf("(%d", time.Now().UnixMilli()), Max: "+inf",
	}).Result()
	if err != nil {
		return err
	}
	for _, r := range records {
		c.open(r, apply)
	}
	return nil
}

// open applies a record. One that does not open was not made by a replica.
func (c *Sessions) open(sealed string, apply func([]byte)) {
	record, err := c.s.keys.ring.Load().open(recordPurpose, []byte(recordID), []byte(sealed))
	if err != nil {
		c.s.corrupt.Add(1)
		return
	}
	apply(record)
}
