// Package designs has the four ways to expire entries that were weighed when the
// JDK's session cache was made faster (JDK-8259886), each as small as it can be. They
// differ only in what a put does about expired entries, and in what a get does to the
// order; none is safe for concurrent use.
package designs

import "container/list"

// A Cache is bounded to a number of entries, each with the same lifetime. Time is
// whatever its clock says.
type Cache[K comparable] interface {
	Get(k K) bool
	Put(k K)
	Delete(k K)
	// Held returns the number of entries, and how many of them have expired.
	Held() (entries, expired int)
}

// Design is one of the four.
type Design struct {
	Name string
	Note string
}

// All lists them, in the order of the review.
var All = []Design{
	{"full scan", "a put that overflows removes everything that has expired; what the JDK did before"},
	{"front only", "in order of access; a put removes expired entries from the front and stops at the first live one"},
	{"insertion order", "in order of insertion, with its time; a put removes expired entries from the front, a get moves nothing"},
	{"flat skip", "in order of access; the earliest expiry is remembered, a put that overflows scans only when it has passed; what the JDK does now"},
}

// New returns a cache of the named design.
func New[K comparable](name string, capacity int, lifetime int64, now func() int64) Cache[K] {
	b := base[K]{
		capacity: capacity, lifetime: lifetime, now: now,
		byKey: map[K]*list.Element{}, order: list.New(),
	}
	switch name {
	case "full scan":
		return &fullScan[K]{b}
	case "front only":
		return &frontOnly[K]{b}
	case "insertion order":
		return &insertionOrder[K]{b}
	case "flat skip":
		return &flatSkip[K]{base: b}
	}
	return nil
}

// base is a map in an order: the front goes first.
type base[K comparable] struct {
	capacity int
	lifetime int64
	now      func() int64
	byKey    map[K]*list.Element
	order    *list.List
}

type entry[K comparable] struct {
	key     K
	expires int64
}

// live returns the element of a live entry; an expired one it removes.
func (b *base[K]) live(k K) *list.Element {
	e := b.byKey[k]
	if e != nil && e.Value.(*entry[K]).expires <= b.now() {
		b.remove(e)
		return nil
	}
	return e
}

func (b *base[K]) add(k K, now int64) {
	if e := b.byKey[k]; e != nil {
		b.remove(e)
	}
	b.byKey[k] = b.order.PushBack(&entry[K]{k, now + b.lifetime})
}

func (b *base[K]) remove(e *list.Element) {
	b.order.Remove(e)
	delete(b.byKey, e.Value.(*entry[K]).key)
}

// scan removes all expired entries and returns the earliest expiry of the others.
func (b *base[K]) scan(now int64) (earliest int64) {
	earliest = now + b.lifetime
	for e := b.order.Front(); e != nil; {
		next := e.Next()
		if t := e.Value.(*entry[K]).expires; t <= now {
			b.remove(e)
		} else {
			earliest = min(earliest, t)
		}
		e = next
	}
	return earliest
}

// expungeFront removes expired entries from the front up to the first live one.
func (b *base[K]) expungeFront(now int64) {
	for e := b.order.Front(); e != nil && e.Value.(*entry[K]).expires <= now; e = b.order.Front() {
		b.remove(e)
	}
}

// shrink removes the front if there is one entry too many.
func (b *base[K]) shrink() {
	if b.order.Len() > b.capacity {
		b.remove(b.order.Front())
	}
}

// Get is the same in all designs in order of access.
func (b *base[K]) Get(k K) bool {
	e := b.live(k)
	if e != nil {
		b.order.MoveToBack(e)
	}
	return e != nil
}

// Delete is the same in all designs.
func (b *base[K]) Delete(k K) {
	if e := b.byKey[k]; e != nil {
		b.remove(e)
	}
}

// Held is the same in all designs.
func (b *base[K]) Held() (entries, expired int) {
	now := b.now()
	for e := b.order.Front(); e != nil; e = e.Next() {
		if e.Value.(*entry[K]).expires <= now {
			expired++
		}
	}
	return b.order.Len(), expired
}
