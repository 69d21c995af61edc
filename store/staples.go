package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Staples shares OCSP responses, so that a fleet fetches each once.
type Staples struct{ s *Store }

// Staples returns the part of the Store that shares OCSP responses.
func (s *Store) Staples() *Staples { return &Staples{s} }

const staplePurpose = "staple"

func (c *Staples) key(ring *Keyring, kind string, key [32]byte) string {
	return c.s.o.Prefix + kind + ring.active.name(staplePurpose, key[:])
}

// Get returns the value at key; nil without an error when there is none or it
// does not open.
func (c *Staples) Get(ctx context.Context, key [32]byte) ([]byte, error) {
	ring := c.s.keys.ring.Load()
	name := c.key(ring, "o:", key)
	var sealed []byte
	err := c.s.do(ctx, name, patient|reading, func(ctx context.Context) (err error) {
		sealed, err = c.s.client.Get(ctx, name).Bytes()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	plain, err := ring.open(staplePurpose, key[:], sealed)
	if err != nil {
		c.s.corrupt.Add(1)
		return nil, nil
	}
	return plain, nil
}

// Put sets the value at key, to be forgotten at the given time. A time that
// has passed deletes it.
func (c *Staples) Put(ctx context.Context, key [32]byte, value []byte, until time.Time) error {
	ring := c.s.keys.ring.Load()
	name := c.key(ring, "o:", key)
	sealed, err := ring.seal(ring.active, staplePurpose, key[:], value)
	if err != nil {
		return err
	}
	life := time.Until(until)
	return c.s.do(ctx, name, patient|writing, func(ctx context.Context) error {
		if life < time.Millisecond {
			return c.s.client.Unlink(ctx, name).Err()
		}
		return c.s.client.Set(ctx, name, sealed, life).Err()
	})
}

// Claim reports whether the caller is the only one to have claimed key within
// d. Claims are not released.
func (c *Staples) Claim(ctx context.Context, key [32]byte, d time.Duration) (bool, error) {
	name := c.key(c.s.keys.ring.Load(), "oc:", key)
	var first bool
	err := c.s.do(ctx, name, patient|writing, func(ctx context.Context) error {
		err := c.s.client.Do(ctx, "set", name, "1", "px", max(d, time.Millisecond).Milliseconds(), "nx").Err()
		first = err == nil
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return first, err
}
