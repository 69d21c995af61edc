package testtool

import (
	"testing"
	"time"
)

// patience bounds every wait for a condition. It is long because the machine
// may be busy; a test that passes never comes near it.
const patience = time.Minute

// Eventually waits until cond holds, for what another goroutine or program does
// in its own time; what says what that is. It asks every few milliseconds, and
// ends the test after a minute.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
