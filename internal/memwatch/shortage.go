package memwatch

import "time"

const (
	// worthwhile is the part of what was asked for that Shed must free to be asked
	// again at the next look: one in so many.
	worthwhile = 8
	// maxWait is the longest that Shed is not asked for having freed too little.
	maxWait = time.Minute
)

// A shortage is a time of short memory. Where Shed frees little, memory is held by
// something else, or by what comes as fast as it is dropped: asking at each look would
// drop everything new for nothing, so the waits between get longer.
type shortage struct {
	growth int64 // of what is in use that ends a wait early

	on    bool
	last  time.Time     // when memory was last seen short
	wait  time.Duration // before Shed is asked again; 0: it freed enough
	until time.Time     // the end of the wait
	least int64         // the least in use since Shed was asked
	said  bool          // that little is left, in the log
}

// see takes in what a look found, and reports whether the shortage began or ended with
// it. With a wait it ends when memory has been well for as long, and the next one goes
// on with that wait: near the mark it would come and go at each look.
func (s *shortage) see(now time.Time, short bool, inUse int64) (begun, ended bool) {
	s.least = min(s.least, inUse)
	switch {
	case short:
		begun = !s.on
		s.on, s.last = true, now
	case s.on && now.Sub(s.last) > s.wait:
		ended = true
		s.on, s.said = false, false
	}
	return begun, ended
}

// due reports whether to ask Shed now: no wait is on, or more is in use than when it
// began.
func (s *shortage) due(now time.Time, inUse int64) bool {
	return s.wait == 0 || !now.Before(s.until) || inUse-s.least > s.growth
}

// delay makes the next wait, twice as long as the one before, and reports whether it is
// the first of this shortage.
func (s *shortage) delay(now time.Time, inUse int64, first time.Duration) bool {
	said := s.said
	s.wait, s.said = min(maxWait, max(first, 2*s.wait)), true
	s.until, s.least = now.Add(s.wait), inUse
	return !said
}
