package cachebench

import (
	"fmt"
	"time"

	"github.com/Yiling-J/theine-go"
	"github.com/dgraph-io/ristretto/v2"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/jellydator/ttlcache/v3"
	"github.com/maypok86/otter/v2"
)

type golangLRU[K comparable] struct {
	c *expirable.LRU[K, *session]
}

func newGolangLRU[K comparable](cfg config) target[K] {
	return &golangLRU[K]{expirable.NewLRU[K, *session](cfg.size, nil, cfg.lifetime)}
}

func (t *golangLRU[K]) put(k K)      { t.c.Add(k, theSession) }
func (t *golangLRU[K]) get(k K) bool { _, ok := t.c.Get(k); return ok }
func (t *golangLRU[K]) remove(k K)   { t.c.Remove(k) }

type ttlCache[K comparable] struct {
	c *ttlcache.Cache[K, *session]
}

func newTTLCache[K comparable](cfg config) target[K] {
	return &ttlCache[K]{ttlcache.New(
		ttlcache.WithCapacity[K, *session](uint64(cfg.size)),
		ttlcache.WithTTL[K, *session](cfg.lifetime),
		ttlcache.WithDisableTouchOnHit[K, *session](),
	)}
}

func (t *ttlCache[K]) put(k K)      { t.c.Set(k, theSession, ttlcache.DefaultTTL) }
func (t *ttlCache[K]) get(k K) bool { return t.c.Get(k) != nil }
func (t *ttlCache[K]) remove(k K)   { t.c.Delete(k) }

type otterCache[K comparable] struct {
	c *otter.Cache[K, *session]
}

func newOtter[K comparable](cfg config) (target[K], error) {
	o := &otter.Options[K, *session]{MaximumSize: cfg.size}
	if cfg.lifetime > 0 {
		o.ExpiryCalculator = otter.ExpiryWriting[K, *session](cfg.lifetime)
	}
	c, err := otter.New(o)
	return &otterCache[K]{c}, err
}

func (t *otterCache[K]) put(k K)      { t.c.Set(k, theSession) }
func (t *otterCache[K]) get(k K) bool { _, ok := t.c.GetIfPresent(k); return ok }
func (t *otterCache[K]) remove(k K)   { t.c.Invalidate(k) }

type theineCache[K comparable] struct {
	c        *theine.Cache[K, *session]
	lifetime time.Duration
}

func newTheine[K comparable](cfg config) (target[K], error) {
	c, err := theine.NewBuilder[K, *session](int64(cfg.size)).Build()
	return &theineCache[K]{c, cfg.lifetime}, err
}

func (t *theineCache[K]) put(k K) {
	if t.lifetime == 0 {
		t.c.Set(k, theSession, 1)
		return
	}
	t.c.SetWithTTL(k, theSession, 1, t.lifetime)
}
func (t *theineCache[K]) settle()      { t.c.Wait() }
func (t *theineCache[K]) get(k K) bool { _, ok := t.c.Get(k); return ok }
func (t *theineCache[K]) remove(k K)   { t.c.Delete(k) }

// ristretto takes integers, strings and byte slices as keys; handles go in as the
// latter.
type ristrettoInts struct {
	c        *ristretto.Cache[int, *session]
	lifetime time.Duration
}

type ristrettoHandles struct {
	c        *ristretto.Cache[[]byte, *session]
	lifetime time.Duration
}

func newRistretto[K comparable](cfg config) (target[K], error) {
	var k K
	switch any(k).(type) {
	case int:
		c, err := ristrettoOf[int](cfg)
		return any(&ristrettoInts{c, cfg.lifetime}).(target[K]), err
	case [32]byte:
		c, err := ristrettoOf[[]byte](cfg)
		return any(&ristrettoHandles{c, cfg.lifetime}).(target[K]), err
	}
	return nil, fmt.Errorf("ristretto takes no key of type %T", k)
}

func ristrettoOf[K ristretto.Key](cfg config) (*ristretto.Cache[K, *session], error) {
	return ristretto.NewCache(&ristretto.Config[K, *session]{
		NumCounters: 10 * int64(cfg.size), MaxCost: int64(cfg.size), BufferItems: 64, IgnoreInternalCost: true,
	})
}

func (t *ristrettoInts) put(k int)      { t.c.SetWithTTL(k, theSession, 1, t.lifetime) }
func (t *ristrettoInts) settle()        { t.c.Wait() }
func (t *ristrettoInts) get(k int) bool { _, ok := t.c.Get(k); return ok }
func (t *ristrettoInts) remove(k int)   { t.c.Del(k) }

func (t *ristrettoHandles) put(k [32]byte)      { t.c.SetWithTTL(k[:], theSession, 1, t.lifetime) }
func (t *ristrettoHandles) settle()             { t.c.Wait() }
func (t *ristrettoHandles) get(k [32]byte) bool { _, ok := t.c.Get(k[:]); return ok }
func (t *ristrettoHandles) remove(k [32]byte)   { t.c.Del(k[:]) }
