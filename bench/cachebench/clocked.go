package cachebench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tlsproxy/tlsproxy/bench/cachebench/designs"
	"github.com/tlsproxy/tlsproxy/cache"
)

// A clocked target takes its time from a clock that the measurement moves.
type clocked interface {
	put(Handle)
	putFor(Handle, time.Duration)
	get(Handle) bool
	remove(Handle)
	held() (entries, expired int)
}

// A fakeClock is moved by hand.
type fakeClock struct{ now int64 }

// newClocked makes ours, in one shard, or one of the four designs.
func newClocked(name string, size int, lifetime time.Duration, clock *fakeClock) (clocked, error) {
	if name == ours {
		c, err := cache.New(cache.Options[Handle, *session]{
			Capacity: size, Lifetime: lifetime, Shards: 1, Now: func() int64 { return clock.now },
		})
		return &clockedOurs{c}, err
	}
	if !slices.ContainsFunc(designs.All, func(d designs.Design) bool { return d.Name == name }) {
		return nil, fmt.Errorf("no design is named %q", name)
	}
	if lifetime == 0 {
		lifetime = math.MaxInt64 / 2
	}
	return &clockedDesign{designs.New[Handle](name, size, int64(lifetime), func() int64 { return clock.now })}, nil
}

type clockedOurs struct {
	c *cache.Cache[Handle, *session]
}

func (t *clockedOurs) put(k Handle)                     { t.c.Put(k, theSession) }
func (t *clockedOurs) putFor(k Handle, d time.Duration) { t.c.PutFor(k, theSession, d) }
func (t *clockedOurs) get(k Handle) bool                { _, ok := t.c.Get(k); return ok }
func (t *clockedOurs) remove(k Handle)                  { t.c.Delete(k) }
func (t *clockedOurs) held() (entries, expired int) {
	entries = t.c.Stats().Entries
	return entries, entries - t.c.Len()
}

type clockedDesign struct{ c designs.Cache[Handle] }

func (t *clockedDesign) put(k Handle)                 { t.c.Put(k) }
func (t *clockedDesign) putFor(Handle, time.Duration) { panic("the designs have one lifetime") }
func (t *clockedDesign) get(k Handle) bool            { return t.c.Get(k) }
func (t *clockedDesign) remove(k Handle)              { t.c.Delete(k) }
func (t *clockedDesign) held() (entries, expired int) { return t.c.Held() }
