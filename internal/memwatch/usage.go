package memwatch

import "runtime/metrics"

// usage is what the runtime says of its memory.
type usage struct {
	inUse   int64  // bytes that a collection would not give back
	limited uint64 // the last collection whose CPU time was limited; 0: none
}

// The metrics that usage is made of, in the order of their samples.
const (
	live = iota
	total
	released
	objects
	idle
	slack
	limiter
)

// reader reads them without allocating.
type reader struct {
	samples []metrics.Sample
}

func newReader() *reader {
	names := [...]string{
		live:     "/gc/heap/live:bytes",
		total:    "/memory/classes/total:bytes",
		released: "/memory/classes/heap/released:bytes",
		objects:  "/memory/classes/heap/objects:bytes",
		idle:     "/memory/classes/heap/free:bytes",
		slack:    "/memory/classes/heap/unused:bytes",
		limiter:  "/gc/limiter/last-enabled:gc-cycle",
	}
	r := &reader{samples: make([]metrics.Sample, len(names))}
	for i, name := range names {
		r.samples[i].Name = name
	}
	return r
}

// read adds the heap that was live at the last collection and what is not heap:
// stacks and the runtime's own structures.
func (r *reader) read() usage {
	metrics.Read(r.samples)
	n := func(i int) int64 { return int64(r.samples[i].Value.Uint64()) }
	notHeap := n(total) - n(released) - n(objects) - n(idle) - n(slack)
	return usage{
		inUse:   n(live) + max(0, notHeap),
		limited: r.samples[limiter].Value.Uint64(),
	}
}
