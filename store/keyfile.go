package store

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// keyFileInterval is how often the key file is looked at.
const keyFileInterval = 10 * time.Second

// keyFile is a key file and the ring last read from it.
type keyFile struct {
	path string
	ring atomic.Pointer[Keyring]

	mu   sync.Mutex
	seen os.FileInfo
	err  error
}

// load reads the file. If that fails, the ring that was read before stays.
func (f *keyFile) load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err == nil {
		var b []byte
		if b, err = os.ReadFile(f.path); err == nil {
			var ring *Keyring
			if ring, err = ParseKeyring(b); err == nil {
				f.ring.Store(ring)
			}
			clear(b)
		}
	}
	f.seen = info
	f.err = nil
	if err != nil {
		f.err = fmt.Errorf("store: key file %q: %w", f.path, err)
	}
	return f.err
}

// changed reports whether the file is another than the one last read.
func (f *keyFile) changed() bool {
	info, err := os.Stat(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.seen == nil {
		return (err == nil) != (f.seen != nil)
	}
	return !os.SameFile(info, f.seen) || !info.ModTime().Equal(f.seen.ModTime()) || info.Size() != f.seen.Size()
}

// problem is why the file could not be read last time, nil if it could.
func (f *keyFile) problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// watchKeys reads the key file again when it changed, until ctx ends.
func (s *Store) watchKeys(ctx context.Context) {
	for pause(ctx, keyFileInterval) {
		if !s.keys.changed() {
			continue
		}
		if err := s.ReloadKeys(); err != nil {
			s.log.Error("store keys not reloaded, the old ones stay in use", "err", err)
		}
	}
}

// ReloadKeys reads the key file again. On an error the keys read before stay
// in use.
func (s *Store) ReloadKeys() error {
	before := s.keys.ring.Load().active.hint
	if err := s.keys.load(); err != nil {
		return err
	}
	ring := s.keys.ring.Load()
	s.log.Info("store keys read", "keys", len(ring.keys), "active", fmt.Sprintf("%02x", ring.active.hint))
	if ring.active.hint != before {
		select {
		case s.resealing <- struct{}{}:
		default:
		}
	}
	return nil
}

// pause waits for d, or less when ctx ends, which it reports as false.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
