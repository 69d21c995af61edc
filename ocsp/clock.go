package ocsp

import "time"

// wallClock returns now, nil meaning time.Now, without the reading of the
// monotonic clock: that one stands still while a machine is suspended, and in a
// comparison of two times it comes before the wall clock.
func wallClock(now func() time.Time) func() time.Time {
	if now == nil {
		now = time.Now
	}
	return func() time.Time { return now().Round(0) }
}
