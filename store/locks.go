package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// defaultLockLife is how long a lock outlives its holder's crash.
	defaultLockLife = 30 * time.Second
	// lockPoll is how often a lock that another holds is tried.
	lockPoll = 500 * time.Millisecond
)

// lease is a lock that this process holds.
type lease struct {
	token  string
	cancel context.CancelFunc // ends the renewal
	done   chan struct{}
}

// A lock belongs to whoever knows its token: both scripts do nothing for
// anybody else.
var (
	renewLock = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
return 0`)
	releaseLock = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then
	return redis.call("DEL", KEYS[1])
end
return 0`)
)

// errLockLost says that a lock ran out under its holder.
var errLockLost = errors.New("store: the lock was lost: the store was out of reach for longer than it lives")

func (c *Certificates) lockKey(name string) string { return c.s.o.Prefix + "{c}:lock:" + name }

// Lock waits for the lock of name. It is renewed until Unlock; if the process
// dies, it runs out by itself.
func (c *Certificates) Lock(ctx context.Context, name string) error {
	for {
		ok, err := c.TryLock(ctx, name)
		if ok || err != nil {
			return err
		}
		if !pause(ctx, lockPoll) {
			return fmt.Errorf("store: lock %q: %w", name, ctx.Err())
		}
	}
}

// TryLock takes the lock of name if nobody holds it. Within this process a lock
// is held until its Unlock, also when it was lost meanwhile: Unlock knows names
// alone, and would else give back the lock of whoever took it next.
func (c *Certificates) TryLock(ctx context.Context, name string) (bool, error) {
	var b [16]byte
	rand.Read(b[:])
	renewal, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lease{token: hex.EncodeToString(b[:]), cancel: cancel, done: make(chan struct{})}
	if !c.reserve(name, l) {
		cancel()
		return false, nil
	}
	held := false
	err := c.s.do(ctx, c.lockKey(name), patient|writing, func(ctx context.Context) error {
		err := c.s.client.Do(ctx, "set", c.lockKey(name), l.token, "px", c.lockLife.Milliseconds(), "nx").Err()
		held = err == nil
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	if !held {
		cancel()
		close(l.done)
		c.mu.Lock()
		delete(c.locks, name)
		c.mu.Unlock()
		return false, err
	}
	go c.renew(renewal, name, l)
	return true, nil
}

// reserve notes a lease as this process's one for name. It reports false when
// there is one already.
func (c *Certificates) reserve(name string, l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locks[name] != nil {
		return false
	}
	c.locks[name] = l
	return true
}

// renew keeps a lock alive until ctx ends or it is lost.
func (c *Certificates) renew(ctx context.Context, name string, l *lease) {
	defer close(l.done)
	for pause(ctx, c.lockLife/3) {
		err := c.extend(ctx, name, l.token, c.lockLife)
		if errors.Is(err, errLockLost) {
			c.s.log.Warn("lock lost", "name", name, "err", err)
			return
		}
	}
}

// RenewLockLease renews a lock that this process holds. It lives no longer for
// it than any other: it is renewed all the time anyway, and a longer life would
// only be the longer wait after a crash of its holder.
func (c *Certificates) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	c.mu.Lock()
	l := c.locks[name]
	c.mu.Unlock()
	if l == nil {
		return errLockLost
	}
	return c.extend(ctx, name, l.token, c.lockLife)
}

func (c *Certificates) extend(ctx context.Context, name, token string, d time.Duration) error {
	var n int
	err := c.s.do(ctx, c.lockKey(name), patient|writing, func(ctx context.Context) (err error) {
		n, err = renewLock.Run(ctx, c.s.client, []string{c.lockKey(name)}, token, d.Milliseconds()).Int()
		return err
	})
	if err == nil && n == 0 {
		return errLockLost
	}
	return err
}

// Unlock gives the lock of name back. A lock that was lost meanwhile, and
// perhaps is another's now, is left alone and reported.
func (c *Certificates) Unlock(ctx context.Context, name string) error {
	c.mu.Lock()
	l := c.locks[name]
	delete(c.locks, name)
	c.mu.Unlock()
	if l == nil {
		return fmt.Errorf("store: lock %q is not held", name)
	}
	l.cancel()
	<-l.done
	var n int
	err := c.s.do(ctx, c.lockKey(name), patient|writing, func(ctx context.Context) (err error) {
		n, err = releaseLock.Run(ctx, c.s.client, []string{c.lockKey(name)}, l.token).Int()
		return err
	})
	if err == nil && n == 0 {
		return fmt.Errorf("store: lock %q: %w", name, errLockLost)
	}
	return err
}
