package session

import "sync/atomic"

const (
	ageBuckets = 1 << 15
	// ageStep is the resolution of ages in seconds, so that all buckets
	// together span a little more than MaxLifetime.
	ageStep = 19
)

// ages counts sessions by when they were stored, so that the age of the oldest
// is known without looking at each.
type ages struct {
	count [ageBuckets]atomic.Int32
}

func (a *ages) add(stored uint32)    { a.count[stored/ageStep%ageBuckets].Add(1) }
func (a *ages) remove(stored uint32) { a.count[stored/ageStep%ageBuckets].Add(-1) }

// oldest returns the age at now of the oldest session in seconds, exact to
// ageStep; ok is false when there is none.
func (a *ages) oldest(now uint32) (age uint32, ok bool) {
	bucket := now / ageStep
	for back := min(bucket, ageBuckets-1); ; back-- {
		if a.count[(bucket-back)%ageBuckets].Load() > 0 {
			return now - (bucket-back)*ageStep, true
		}
		if back == 0 {
			return 0, false
		}
	}
}
