package proxy

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// errStalled says why a response over HTTP/2 was cut short.
var errStalled = errors.New("the client did not take a part of the response in time")

// serverBuffer is what net/http keeps of an HTTP/2 response before it writes.
const serverBuffer = 4 << 10

// streamWrite bounds each write to an HTTP/2 stream. A client may keep the
// stream's window shut while its socket takes everything, so deadlines of the
// connection do not see it. The stream's own deadline is a timer that resets it
// even if nobody writes, and setting it costs a message to the connection's loop;
// so it is used only on a write that took too long, and for what the server
// still writes after the handler.
type streamWrite struct {
	rw       http.ResponseWriter
	timeout  time.Duration // of each write; zero or less: no bound
	buffered int           // what may still wait in the server's buffer

	mu      sync.Mutex
	timer   *time.Timer // nil before a write that may block
	armed   bool        // the timer runs
	since   time.Time   // when the write under way began; zero: none is
	stalled bool        // one took too long
	done    bool        // the handler has ended, and rw is no longer ours
}

// begin comes before n bytes are written, or with flush before all are sent.
// What the server's buffer takes cannot block.
func (s *streamWrite) begin(n int, flush bool) {
	if s.timeout <= 0 {
		return
	}
	s.buffered += n
	if !flush && s.buffered <= serverBuffer {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
	if !s.armed {
		s.arm(s.timeout)
	}
}

// end comes after the write.
func (s *streamWrite) end(flush bool) {
	if s.timeout <= 0 {
		return
	}
	if flush {
		s.buffered = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// arm is called with mu held.
func (s *streamWrite) arm(d time.Duration) {
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.check)
		return
	}
	s.timer.Reset(d)
}

// check resets the stream if a write is late, comes back when it will be, and
// rests while there is none.
func (s *streamWrite) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.done || s.since.IsZero() {
		return
	}
	if left := s.timeout - time.Since(s.since); left > 0 {
		s.arm(left)
		return
	}
	s.stalled = true
	_ = http.NewResponseController(s.rw).SetWriteDeadline(time.Unix(1, 0))
}

// finish bounds what the server sends after the handler.
func (s *streamWrite) finish() {
	if s.timeout <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.buffered > 0 && !s.stalled {
		_ = http.NewResponseController(s.rw).SetWriteDeadline(time.Now().Add(s.timeout)) // recorders have none
	}
}

// late reports whether a write took too long.
func (s *streamWrite) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled
}
