package upstream

import (
	"cmp"
	"maps"
	"sync"
)

// Ledger is what one generation of pools hands to the next: what is known of each
// backend, by the name of its pool and its URL. A pool made with the [Ledger.Next]
// of another's ledger shares its counts, while requests are in flight at both, and
// starts with its verdicts. The zero value knows nothing; a Ledger is safe for
// concurrent use.
type Ledger struct {
	before map[ledgerKey]*record // of the generation before

	mu    sync.Mutex
	pages map[ledgerKey]*record // of the pools made with this ledger
}

type ledgerKey struct{ pool, url string }

// Next returns the ledger for the pools that are to take over. A backend that none
// of them has is remembered for as long as requests are in flight, should it return.
// Next changes nothing, so that pools which never come into force leave no trace.
func (l *Ledger) Next() *Ledger {
	next := &Ledger{before: make(map[ledgerKey]*record)}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, r := range l.before {
		if r.inFlight.Load() > 0 {
			next.before[key] = r
		}
	}
	maps.Copy(next.before, l.pages)
	return next
}

// record returns what is known of a backend, which is nothing if it is new.
func (l *Ledger) record(pool, url string) *record {
	if l == nil {
		return new(record)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := ledgerKey{pool, url}
	r := cmp.Or(l.pages[key], l.before[key], new(record))
	if l.pages == nil {
		l.pages = make(map[ledgerKey]*record)
	}
	l.pages[key] = r
	return r
}
