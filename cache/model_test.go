package cache

import (
	"math"
	"slices"
	"time"
)

// model is the cache's semantics written down as plainly as possible: one list, full
// scans, what has expired is gone at once.
type model struct {
	entries  []modelEntry // the most recently used first
	capacity int          // or unbounded
	maxBytes int64        // or unbounded
	lifetime time.Duration
	overhead int64
	weigh    func(k, v int) int64
	gone     []eviction[int, int]
}

type modelEntry struct {
	key, value int
	weight     int64
	expires    int64
}

func (m *model) leave(i int, r Reason) {
	e := m.entries[i]
	m.gone = append(m.gone, eviction[int, int]{entry[int, int]{e.key, e.value}, r})
	m.entries = slices.Delete(m.entries, i, i+1)
}

// expire drops what has expired. Every operation begins with it.
func (m *model) expire(now int64) {
	for i := len(m.entries) - 1; i >= 0; i-- {
		if m.entries[i].expires <= now {
			m.leave(i, ReasonExpired)
		}
	}
}

func (m *model) find(k int) int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.key == k })
}

func (m *model) bytes() (n int64) {
	for _, e := range m.entries {
		n += e.weight
	}
	return n
}

func (m *model) get(now int64, k int) (int, bool) {
	m.expire(now)
	i := m.find(k)
	if i < 0 {
		return 0, false
	}
	e := m.entries[i]
	m.entries = slices.Insert(slices.Delete(m.entries, i, i+1), 0, e)
	return e.value, true
}

func (m *model) deadline(now int64, d time.Duration) int64 {
	if d > math.MaxInt64-time.Duration(max(now, 0)) {
		return math.MaxInt64
	}
	return now + int64(d)
}

func (m *model) put(now int64, k, v int, d time.Duration) (stored bool) {
	m.expire(now)
	weight := m.overhead + max(0, m.weigh(k, v))
	i := m.find(k)
	if d <= 0 || m.capacity == 0 || m.maxBytes != unbounded && weight > m.maxBytes {
		if i >= 0 {
			m.leave(i, ReasonDeleted)
		}
		return false
	}
	if i >= 0 {
		m.leave(i, ReasonReplaced)
	}
	m.fit(1, weight)
	m.entries = slices.Insert(m.entries, 0, modelEntry{k, v, weight, m.deadline(now, d)})
	return true
}

func (m *model) fit(more int, weight int64) {
	for len(m.entries) > 0 {
		last := len(m.entries) - 1
		switch {
		case m.capacity != unbounded && len(m.entries)+more > m.capacity:
			m.leave(last, ReasonCapacity)
		case m.maxBytes != unbounded && m.bytes()+weight > m.maxBytes:
			m.leave(last, ReasonBytes)
		default:
			return
		}
	}
}

func (m *model) cut(now int64, k int, d time.Duration) bool {
	m.expire(now)
	i := m.find(k)
	if i < 0 {
		return false
	}
	m.entries[i].expires = min(m.entries[i].expires, m.deadline(now, d))
	m.expire(now)
	return true
}

func (m *model) take(now int64, k int) (int, bool) {
	m.expire(now)
	i := m.find(k)
	if i < 0 {
		return 0, false
	}
	v := m.entries[i].value
	m.entries = slices.Delete(m.entries, i, i+1)
	return v, true
}

func (m *model) remove(now int64, k int) bool {
	m.expire(now)
	i := m.find(k)
	if i >= 0 {
		m.leave(i, ReasonDeleted)
	}
	return i >= 0
}

func (m *model) clear(now int64) {
	m.expire(now)
	for len(m.entries) > 0 {
		m.leave(0, ReasonDeleted)
	}
}

func (m *model) len(now int64) int {
	m.expire(now)
	return len(m.entries)
}

func (m *model) shed(now int64, n int) (dropped int) {
	m.expire(now)
	for ; dropped < n && len(m.entries) > 0; dropped++ {
		m.leave(len(m.entries)-1, ReasonShed)
	}
	return dropped
}

func (m *model) setCapacity(now int64, n int) {
	m.expire(now)
	m.capacity = n
	m.fit(0, 0)
}
