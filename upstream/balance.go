package upstream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// acquire chooses a backend that was not tried yet and counts a request in flight
// at it. If nothing but ejected backends is left it takes one of those: an attempt
// that may fail is better than a refusal.
func (p *Pool) acquire(tried []*backend) (*backend, error) {
	if len(p.backends) == 1 && tried == nil {
		return p.acquireOnly(p.backends[0])
	}
	var room, spare [8]*backend // most pools need no allocation
	fit, ejected := room[:0], spare[:0]
	for _, b := range p.backends {
		switch {
		case b.down.Load() || slices.Contains(tried, b):
		case b.ejected():
			ejected = append(ejected, b)
		default:
			fit = append(fit, b)
		}
	}
	if b := p.acquireOf(fit, (*backend).admit); b != nil {
		return b, nil
	}
	if len(fit) == 0 {
		if b := p.acquireOf(ejected, nil); b != nil {
			return b, nil
		}
	}
	if len(fit)+len(ejected) == 0 {
		return nil, ErrUnavailable
	}
	return nil, fmt.Errorf("%w (%d)", ErrBusy, p.opts.MaxRequests)
}

func (p *Pool) acquireOnly(b *backend) (*backend, error) {
	if b.down.Load() {
		return nil, ErrUnavailable
	}
	if !b.tryAcquire() {
		return nil, fmt.Errorf("%w (%d)", ErrBusy, p.opts.MaxRequests)
	}
	return b, nil
}

// acquireOf chooses among candidates until one has room; it reorders them.
func (p *Pool) acquireOf(candidates []*backend, admit func(*backend) bool) *backend {
	for len(candidates) > 0 {
		i := p.choose(candidates)
		b := candidates[i]
		if (admit == nil || admit(b)) && b.tryAcquire() {
			return b
		}
		candidates = slices.Delete(candidates, i, i+1)
	}
	return nil
}

// choose returns the index of the candidate to take.
func (p *Pool) choose(candidates []*backend) int {
	n := len(candidates)
	if n == 1 {
		return 0
	}
	switch p.opts.Balance {
	case LeastConn:
		return leastConn(candidates, int(p.next.Add(1)%uint64(n)))
	case RandomTwo:
		i, j := rand.IntN(n), rand.IntN(n-1)
		if j >= i {
			j++
		}
		if candidates[j].inFlight.Load() < candidates[i].inFlight.Load() {
			return j
		}
		return i
	default:
		return int((p.next.Add(1) - 1) % uint64(n))
	}
}

// leastConn returns the candidate with the fewest requests in flight; of equals,
// the first one from start on.
func leastConn(candidates []*backend, start int) int {
	best, fewest := start, candidates[start].inFlight.Load()
	for k := 1; k < len(candidates) && fewest > 0; k++ {
		i := (start + k) % len(candidates)
		if n := candidates[i].inFlight.Load(); n < fewest {
			best, fewest = i, n
		}
	}
	return best
}

// ejected reports whether the backend is to be left alone now.
func (b *backend) ejected() bool {
	until := b.ejectedUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// admit lets requests through; after an ejection only one at a time, until a
// connection was made.
func (b *backend) admit() bool {
	until := b.ejectedUntil.Load()
	if until == 0 {
		return true
	}
	return b.ejectedUntil.CompareAndSwap(until, time.Now().Add(b.pool.opts.EjectFor).UnixNano())
}
