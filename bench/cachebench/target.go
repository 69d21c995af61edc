package cachebench

import (
	"fmt"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

// session stands for a value that is not copied: what is compared is the caches.
type session struct{ state [130]byte }

var theSession = new(session)

// A target is a cache under test.
type target[K comparable] interface {
	put(K)
	get(K) bool
	remove(K)
}

// config is what a target is made for.
type config struct {
	size     int
	lifetime time.Duration // 0: for ever
}

// The Go caches that are compared, ours first.
const (
	ours       = "tlsproxy"
	oursInline = "tlsproxy-inline" // with values of 130 bytes that lie in the cache
)

// A rival is a cache that others would pick.
type rival struct {
	name  string
	exact bool   // keeps every entry until it must go, in the true order of use
	note  string // what sets it apart
}

var rivals = []rival{
	{"jdk-hard", true, "sun.security.util.Cache of Java 17, hard references"},
	{"jdk-soft", true, "the same with soft references, as the JDK's TLS uses it"},
	{"golang-lru", true, "hashicorp/golang-lru v2 expirable: least recently used first, expired or not; a goroutine expunges what has expired"},
	{"ttlcache", true, "jellydator/ttlcache v3, touch on hit off; expired entries go by a heap"},
	{"otter", false, "maypok86/otter v2: W-TinyLFU, may refuse a new entry's stay; reads are recorded lossily"},
	{"theine", false, "Yiling-J/theine-go: W-TinyLFU, writes are applied later"},
	{"ristretto", false, "dgraph-io/ristretto v2: sampled LFU; drops puts under load, keeps hashes instead of keys"},
}

// newTarget makes the named cache.
func newTarget[K comparable](name string, cfg config) (target[K], error) {
	switch name {
	case ours:
		return newOurs[K](cfg)
	case oursInline:
		return newInline[K](cfg)
	case "golang-lru":
		return newGolangLRU[K](cfg), nil
	case "ttlcache":
		return newTTLCache[K](cfg), nil
	case "otter":
		return newOtter[K](cfg)
	case "theine":
		return newTheine[K](cfg)
	case "ristretto":
		return newRistretto[K](cfg)
	}
	return nil, fmt.Errorf("no cache is named %q", name)
}

type inlineTarget[K comparable] struct {
	c *cache.Cache[K, session]
}

func newInline[K comparable](cfg config) (target[K], error) {
	c, err := cache.New(cache.Options[K, session]{Capacity: cfg.size, Lifetime: cfg.lifetime})
	return &inlineTarget[K]{c}, err
}

func (t *inlineTarget[K]) put(k K)      { t.c.Put(k, *theSession) }
func (t *inlineTarget[K]) get(k K) bool { _, ok := t.c.Get(k); return ok }
func (t *inlineTarget[K]) remove(k K)   { t.c.Delete(k) }

type oursTarget[K comparable] struct {
	c *cache.Cache[K, *session]
}

func newOurs[K comparable](cfg config) (target[K], error) {
	c, err := cache.New(cache.Options[K, *session]{Capacity: cfg.size, Lifetime: cfg.lifetime})
	return &oursTarget[K]{c}, err
}

func (t *oursTarget[K]) put(k K)      { t.c.Put(k, theSession) }
func (t *oursTarget[K]) get(k K) bool { _, ok := t.c.Get(k); return ok }
func (t *oursTarget[K]) remove(k K)   { t.c.Delete(k) }
