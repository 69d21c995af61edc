package ocsp

import "time"

// The rules of time, as pure functions. r is random in [0, 1).
const (
	minRefresh   = time.Minute
	backoffMin   = time.Minute
	backoffMax   = time.Hour
	firstHour    = time.Hour      // in which a CA may not have published yet
	slowRetry    = 6 * time.Hour  // of unauthorized afterwards
	youngAge     = 24 * time.Hour // certificates older than that were published long ago
	spreadEach   = 20 * time.Millisecond
	spreadMax    = time.Minute
	longestSleep = 5 * time.Minute // a timer stands still while the machine is suspended
)

// afterSuccess returns how long to wait before fetching again: half of what is
// left, give or take a tenth.
func afterSuccess(left time.Duration, r float64) time.Duration {
	return max(minRefresh, jitter(left/2, 0.1, r))
}

// afterFailure returns how long to wait after the n-th failure in a row (from
// 1), give or take half.
func afterFailure(n int, r float64) time.Duration {
	return jitter(doubling(backoffMin, backoffMax, n-1), 0.5, r)
}

// afterUnauthorized returns how long to wait when the responder disowns the
// certificate, which was registered for known and issued for age.
func afterUnauthorized(known, age time.Duration, r float64) time.Duration {
	if known < firstHour && age < youngAge {
		return time.Minute + time.Duration(r*float64(4*time.Minute))
	}
	return jitter(slowRetry, 0.5, r)
}

// firstDelay spreads the first fetches of n certificates.
func firstDelay(n int, r float64) time.Duration {
	return time.Duration(r * float64(min(time.Duration(n)*spreadEach, spreadMax)))
}

// jitter returns d, changed by up to the given part of it.
func jitter(d time.Duration, part, r float64) time.Duration {
	return time.Duration(float64(d) * (1 - part + 2*part*r))
}
