package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sessions shares TLS sessions and their revocations: it is what the session
// package calls a Store.
type Sessions struct{ s *Store }

// Sessions returns the part of the Store that shares TLS sessions.
func (s *Store) Sessions() *Sessions { return &Sessions{s} }

const sessionPurpose = "session"

// Change is one write of [Sessions.Write]: with a Value, put it for Life;
// without, cut what is there to Life, or delete it when Life is not positive.
type Change = struct {
	ID    [16]byte
	Value []byte
	Life  time.Duration
}

// Hint returns the first byte of new sessions' IDs: the active key's.
func (c *Sessions) Hint() byte { return c.s.keys.ring.Load().active.hint }

// MAC returns the authenticator of id; ok is false when the key that id's
// first byte names is not held. It blocks on nothing.
func (c *Sessions) MAC(id [16]byte) (mac [15]byte, ok bool) {
	key := c.s.keys.ring.Load().byHint[id[0]]
	if key == nil {
		return mac, false
	}
	return key.macOf(id), true
}

// key returns the server's key of id and the ring's key that seals it.
func (c *Sessions) key(id [16]byte) (ring *Keyring, sealer *ringKey, key string, ok bool) {
	ring = c.s.keys.ring.Load()
	sealer = ring.byHint[id[0]]
	if sealer == nil {
		return nil, nil, "", false
	}
	return ring, sealer, c.s.o.Prefix + "s:" + sealer.name(sessionPurpose, id[:]), true
}

// Get returns the value of id, nil when there is none or it does not open.
func (c *Sessions) Get(ctx context.Context, id [16]byte) ([]byte, error) {
	ring, _, key, ok := c.key(id)
	if !ok {
		return nil, nil
	}
	var sealed []byte
	err := c.s.do(ctx, key, urgent|reading, func(ctx context.Context) (err error) {
		sealed, err = c.s.client.Get(ctx, key).Bytes()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	plain, err := ring.open(sessionPurpose, id[:], sealed)
	if err != nil {
		c.s.corrupt.Add(1)
		return nil, nil
	}
	return plain, nil
}

// Take removes id and reports whether it was there: of several takers of one
// ID, on any replica, exactly one is told true. What was there but does not
// open is not counted as there.
func (c *Sessions) Take(ctx context.Context, id [16]byte) (bool, error) {
	ring, _, key, ok := c.key(id)
	if !ok {
		return false, nil
	}
	var sealed []byte
	err := c.s.do(ctx, key, urgent|writing, func(ctx context.Context) (err error) {
		sealed, err = c.s.client.GetDel(ctx, key).Bytes()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := ring.open(sessionPurpose, id[:], sealed); err != nil {
		c.s.corrupt.Add(1)
		return false, nil
	}
	return true, nil
}

// command is one write on its way.
type command struct {
	key  string
	send func(context.Context, redis.Pipeliner) redis.Cmder
}

// Write makes the changes, in their order for each ID. After an error some or
// none are made; making them again does no harm.
func (c *Sessions) Write(ctx context.Context, changes []Change) error {
	var errs []error
	batches := map[*server][]command{}
	for _, ch := range changes {
		cmd, err := c.command(ch)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if cmd.send == nil {
			continue // nobody holds its key any more
		}
		srv, err := c.s.serverFor(ctx, cmd.key)
		if err != nil {
			return err
		}
		batches[srv] = append(batches[srv], cmd)
	}
	for srv, batch := range batches {
		errs = append(errs, c.send(ctx, srv, batch))
	}
	return errors.Join(errs...)
}

// command seals a change.
func (c *Sessions) command(ch Change) (command, error) {
	ring, sealer, key, ok := c.key(ch.ID)
	if !ok {
		return command{}, nil
	}
	life := max(ch.Life, time.Millisecond)
	switch {
	case ch.Value != nil:
		sealed, err := ring.seal(sealer, sessionPurpose, ch.ID[:], ch.Value)
		if err != nil {
			return command{}, err
		}
		return command{key, func(ctx context.Context, p redis.Pipeliner) redis.Cmder {
			return p.Do(ctx, "set", key, sealed, "px", life.Milliseconds())
		}}, nil
	case ch.Life <= 0:
		return command{key, func(ctx context.Context, p redis.Pipeliner) redis.Cmder {
			return p.Unlink(ctx, key)
		}}, nil
	}
	return command{key, func(ctx context.Context, p redis.Pipeliner) redis.Cmder {
		return p.Do(ctx, "pexpire", key, life.Milliseconds(), "lt")
	}}, nil
}

// refusal is the error of a call that a server does not allow or take, so that
// trying again is no use.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

// Refused tells session, which does not know this package, what e is.
func (e refusal) Refused() bool { return true }

// send makes one server's part of the changes in one round trip.
func (c *Sessions) send(ctx context.Context, srv *server, batch []command) error {
	var cmds []redis.Cmder
	return c.s.do(ctx, batch[0].key, patient|reading, func(ctx context.Context) error {
		_, err := c.s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, cmd := range batch {
				cmds = append(cmds, cmd.send(ctx, p))
			}
			return nil
		})
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		for _, cmd := range cmds {
			if e := cmd.Err(); judge(e) == refused {
				srv.wrote(e)
				return refusal{e} // it will not take the rest of them either
			}
		}
		if err == nil {
			srv.wrote(nil)
		}
		return err
	})
}
