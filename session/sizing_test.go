package session

import (
	"runtime"
	"testing"
	"time"
)

// The memory that docs/fleet.md says a session takes: a common one, and one
// with a client certificate of some 2 kB of state.
func TestSizing(t *testing.T) {
	const n = 20_000
	for _, tt := range []struct {
		name  string
		state int
		want  uint64
	}{{"common", 75, 400}, {"client certificate", 2000, 2500}} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, Options{MaxBytes: -1, Limits: Limits{Capacity: n}})
			e := entry{deadline: time.Now().Add(time.Hour).UnixNano()}
			state := make([]byte, tt.state)
			before := heap()
			for i := range n {
				e.client = uint64(i + 1) // each from an address of its own
				p.r.put(newID(0), e, state)
			}
			held := uint64(p.r.cache.Len())
			counted := uint64(p.r.cache.Bytes()) / held
			real := (heap() - before) / held
			runtime.KeepAlive(p)
			if held < n*9/10 {
				t.Fatalf("%d sessions are held", held)
			}
			t.Logf("%d sessions: counted %d bytes each, %d on the heap", held, counted, real)
			if counted > tt.want || real > tt.want+tt.want/4 {
				t.Errorf("a session takes %d bytes by our count and %d on the heap; docs/fleet.md says %d", counted, real, tt.want)
			}
			if counted < real*3/4 {
				t.Errorf("counted %d bytes a session, the heap says %d", counted, real)
			}
		})
	}
}
