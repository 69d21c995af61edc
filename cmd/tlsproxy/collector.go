package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What the garbage collector may leave uncollected. With Go's default a small heap,
// which a proxy has, is collected many times a second for want of a few MiB.
const (
	garbageAllowance = 64 << 20 // beyond which the default decides
	defaultPercent   = 100      // Go's own
	maxPercent       = 400      // more buys little: what is collected rarely is cold
)

// When nothing happens, memory is given back: looked at once a second, after two
// looks at which little had been allocated, if there is enough to give.
const (
	collectorInterval = time.Second
	quietAllocation   = 256 << 10
	quietLooks        = 2
	worthReleasing    = 4 << 20
)

// heapUse is what is read of the heap, in bytes.
type heapUse struct {
	live      uint64 // reachable at the last collection
	held      uint64 // in objects, dead ones included, or free but kept
	allocated uint64 // since the start
}

// collector sets the pace of the garbage collector.
type collector struct {
	allowance  uint64
	setPercent func(int)
	release    func() // collects, and gives free memory back to the system

	percent   int // set last
	allocated uint64
	quiet     int // looks in a row
}

// paceCollector trades memory for time while there are requests, up to
// garbageAllowance, and gives the memory back when there are none. GOGC in the
// environment is respected: then it does nothing. A memory limit has the last word
// in the runtime, and lowers the allowance here.
func (p *program) paceCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	c := &collector{
		allowance:  garbageAllowance,
		setPercent: func(percent int) { debug.SetGCPercent(percent) },
		release:    debug.FreeOSMemory,
		percent:    defaultPercent,
	}
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	tick := time.NewTicker(collectorInterval)
	defer tick.Stop()
	for {
		c.limit(debug.SetMemoryLimit(-1))
		metrics.Read(samples)
		value := func(i int) uint64 { return samples[i].Value.Uint64() }
		c.look(heapUse{live: value(0), held: value(1) + value(2), allocated: value(3)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// limit leaves at most an eighth of a memory limit to garbage.
func (c *collector) limit(bytes int64) {
	c.allowance = garbageAllowance
	if bytes != math.MaxInt64 {
		c.allowance = min(c.allowance, uint64(max(bytes, 0))/8)
	}
}

// look decides by what has happened since the last look.
func (c *collector) look(use heapUse) {
	if use.allocated-c.allocated < quietAllocation {
		c.quiet++
	} else {
		c.quiet = 0
	}
	c.allocated = use.allocated
	if c.quiet < quietLooks {
		c.set(c.percentFor(use.live))
		return
	}
	c.set(defaultPercent)
	// A large heap costs more to collect, so there must be more to gain.
	if spare := use.held - min(use.live, use.held); spare > max(worthReleasing, use.live/4) {
		c.release()
	}
}

// percentFor is the percentage of live memory that the allowance is.
func (c *collector) percentFor(live uint64) int {
	return int(min(max(c.allowance*100/max(live, 1), defaultPercent), maxPercent))
}

// set changes the percentage if that is worth the stop of all goroutines that it
// takes.
func (c *collector) set(percent int) {
	if diff := percent - c.percent; percent == c.percent || percent != defaultPercent && percent != maxPercent && -10 < diff && diff < 10 {
		return
	}
	c.percent = percent
	c.setPercent(percent)
}
