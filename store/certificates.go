package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"
)

// Certificates shares what ACME needs: accounts, keys, certificates and locks.
// Values are sealed; their names, which hold host names, are not. They have no
// lifetime, so the server must not evict keys without one: its
// maxmemory-policy is noeviction or one of volatile-*.
type Certificates struct {
	s     *Store
	mu    sync.Mutex
	locks map[string]*lease

	lockLife time.Duration
}

var (
	_ certmagic.Storage          = (*Certificates)(nil)
	_ certmagic.TryLocker        = (*Certificates)(nil)
	_ certmagic.LockLeaseRenewer = (*Certificates)(nil)
)

// Certificates returns the part of the Store that shares certificates. Locks
// belong to the value returned: take one for the whole process.
func (s *Store) Certificates() *Certificates {
	return &Certificates{s: s, locks: map[string]*lease{}, lockLife: defaultLockLife}
}

const certificatePurpose = "certificate"

func (c *Certificates) hash() string { return c.s.o.Prefix + "{c}:files" }

// Store puts value at name.
func (c *Certificates) Store(ctx context.Context, name string, value []byte) error {
	ring := c.s.keys.ring.Load()
	plain := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(value)), uint64(time.Now().UnixNano()))
	sealed, err := ring.seal(ring.active, certificatePurpose, []byte(name), append(plain, value...))
	if err != nil {
		return err
	}
	return c.s.do(ctx, c.hash(), patient|writing, func(ctx context.Context) error {
		return c.s.client.HSet(ctx, c.hash(), name, sealed).Err()
	})
}

// Load returns the value at name; an error that is fs.ErrNotExist when there
// is none.
func (c *Certificates) Load(ctx context.Context, name string) ([]byte, error) {
	value, _, err := c.load(ctx, name)
	return value, err
}

func (c *Certificates) load(ctx context.Context, name string) (value []byte, modified time.Time, err error) {
	var sealed []byte
	err = c.s.do(ctx, c.hash(), patient|reading, func(ctx context.Context) (err error) {
		sealed, err = c.s.client.HGet(ctx, c.hash(), name).Bytes()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return nil, modified, fmt.Errorf("store: %q: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, modified, err
	}
	plain, err := c.s.keys.ring.Load().open(certificatePurpose, []byte(name), sealed)
	if err != nil || len(plain) < 8 {
		c.s.corrupt.Add(1)
		return nil, modified, fmt.Errorf("store: %q: %w", name, errSealed)
	}
	return plain[8:], time.Unix(0, int64(binary.BigEndian.Uint64(plain))), nil
}

// Delete removes name and everything below it.
func (c *Certificates) Delete(ctx context.Context, name string) error {
	names, err := c.below(ctx, name)
	if err != nil || len(names) == 0 {
		return err
	}
	return c.s.do(ctx, c.hash(), patient|writing, func(ctx context.Context) error {
		return c.s.client.HDel(ctx, c.hash(), names...).Err()
	})
}

// Exists reports whether name or something below it is there.
func (c *Certificates) Exists(ctx context.Context, name string) bool {
	names, err := c.below(ctx, name)
	return err == nil && len(names) > 0
}

// List returns the names below path: all of them, or with recursive false only
// the next level, which may be directories.
func (c *Certificates) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	path = strings.Trim(path, "/")
	names, err := c.below(ctx, path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		rest := strings.TrimPrefix(strings.TrimPrefix(name, path), "/")
		if rest == "" {
			continue
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper && !recursive {
			name = strings.TrimPrefix(path+"/"+first, "/")
		}
		out = append(out, name)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 && path != "" {
		return nil, fmt.Errorf("store: %q: %w", path, fs.ErrNotExist)
	}
	return out, nil
}

// Stat describes name.
func (c *Certificates) Stat(ctx context.Context, name string) (certmagic.KeyInfo, error) {
	value, modified, err := c.load(ctx, name)
	if err == nil {
		return certmagic.KeyInfo{Key: name, Modified: modified, Size: int64(len(value)), IsTerminal: true}, nil
	}
	if errors.Is(err, fs.ErrNotExist) && c.Exists(ctx, name) {
		return certmagic.KeyInfo{Key: name}, nil
	}
	return certmagic.KeyInfo{}, err
}

// below returns name, if it is there, and all names below it, sorted.
func (c *Certificates) below(ctx context.Context, name string) ([]string, error) {
	name = strings.Trim(name, "/")
	var all []string
	err := c.s.do(ctx, c.hash(), patient|reading, func(ctx context.Context) (err error) {
		all, err = c.s.client.HKeys(ctx, c.hash()).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(n string) bool {
		return name != "" && n != name && !strings.HasPrefix(n, name+"/")
	})
	slices.Sort(all)
	return all, nil
}

// replaceField sets a field of a hash if it still is what it was.
var replaceField = redis.NewScript(`
if redis.call("HGET", KEYS[1], ARGV[1]) == ARGV[2] then
	return redis.call("HSET", KEYS[1], ARGV[1], ARGV[3])
end
return 0`)

// reseal seals with the active key what another one sealed, whenever the
// active key changed, so that an old key can be removed from the file.
func (s *Store) reseal(ctx context.Context) {
	c := s.Certificates()
	for {
		select {
		case <-s.resealing:
		case <-ctx.Done():
			return
		}
		for {
			n, err := c.reseal(ctx)
			if n > 0 {
				s.log.Info("store values sealed with the active key", "values", n)
			}
			if err == nil || ctx.Err() != nil {
				break
			}
			if !pause(ctx, keyFileInterval) {
				return
			}
		}
	}
}

func (c *Certificates) reseal(ctx context.Context) (n int, err error) {
	ring := c.s.keys.ring.Load()
	names, err := c.below(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		done, err := c.resealOne(ctx, ring, name)
		if err != nil {
			return n, err
		}
		if done {
			n++
		}
	}
	return n, nil
}

func (c *Certificates) resealOne(ctx context.Context, ring *Keyring, name string) (done bool, err error) {
	err = c.s.do(ctx, c.hash(), patient|writing, func(ctx context.Context) error {
		old, err := c.s.client.HGet(ctx, c.hash(), name).Bytes()
		if err != nil || len(old) < sealExtra || old[1] == ring.active.hint {
			return err
		}
		plain, err := ring.open(certificatePurpose, []byte(name), old)
		if err != nil {
			return nil // not ours to repair; Load says so
		}
		sealed, err := ring.seal(ring.active, certificatePurpose, []byte(name), plain)
		if err != nil {
			return err
		}
		err = replaceField.Run(ctx, c.s.client, []string{c.hash()}, name, old, sealed).Err()
		done = err == nil
		return err
	})
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return done, err
}
