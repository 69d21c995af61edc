package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// record is what is known of a backend, whichever pool found it out: a backend
// does not come up, nor fall idle, because the configuration was loaded again.
type record struct {
	inFlight atomic.Int64
	requests atomic.Uint64
	failures atomic.Uint64

	down         atomic.Bool  // by health checks
	dialFails    atomic.Int32 // in a row
	ejectedUntil atomic.Int64 // Unix nanoseconds; zero: not ejected

	mu        sync.Mutex // guards the fields below
	lastErr   string
	lastCheck time.Time
	since     time.Time
	checked   bool // a check has decided
	streak    int  // checks in a row that contradict down
	terms     terms
}

// terms are the settings that the verdicts of a record were found under.
type terms struct {
	path, host           string // what a check asks
	statusMin, statusMax int    // and which answers pass
	ejectAfter           int
	ejectFor             time.Duration
}

func termsOf(o *Options) terms {
	return terms{
		path: o.Health.Path, host: o.Health.Host, statusMin: o.Health.StatusMin, statusMax: o.Health.StatusMax,
		ejectAfter: o.EjectAfter, ejectFor: o.EjectFor,
	}
}

// sameCheck reports whether checks ask the same and want the same answer. How
// often, how long and how many times in a row is no other question.
func (t terms) sameCheck(old terms) bool {
	t.ejectAfter, t.ejectFor = old.ejectAfter, old.ejectFor
	return t == old
}

// takeOver goes on under the terms of a pool that begins to work. Verdicts stand
// that these terms could have given. An answer to another question stands until the
// first check decides, so that a backend known to be down gets no requests before;
// without checks nothing could ever bring it up.
func (r *record) takeOver(next terms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.terms
	r.terms = next
	if !next.sameCheck(old) {
		r.checked, r.streak = false, 0
	}
	if next.path == "" && r.down.Swap(false) {
		r.since = time.Now()
	}
	if next.ejectAfter != old.ejectAfter || next.ejectFor != old.ejectFor {
		r.dialFails.Store(0)
		r.ejectedUntil.Store(0)
	}
}
