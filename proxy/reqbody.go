package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// drainTimeout bounds what the server reads of a request body that nobody wants.
const drainTimeout = 5 * time.Second

// requestBody counts the request body, bounds it in size and time, and remembers
// why it ended. A nil *requestBody stands for no body. It is read by goroutines of
// the transport, also when the handler has gone on.
type requestBody struct {
	rc      io.ReadCloser
	control *http.ResponseController
	timeout time.Duration // of each read; zero or less: no bound
	n       atomic.Int64
	atEnd   func() // called before the reader learns that this was all; may be nil

	mu       sync.Mutex
	answered bool      // the response has begun: the client may take its time
	ended    bool      // read to the end, or broken
	finished bool      // the connection is the server's again
	deadline time.Time // set now; zero: none
	err      error
}

func newRequestBody(ex *exchange, r *http.Request) *requestBody {
	b := &requestBody{
		rc:      r.Body,
		control: http.NewResponseController(ex.rw),
		timeout: ex.handler.opts.ReadTimeout,
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		b.timeout = -1
	}
	if limit := ex.route.maxBody; limit > 0 {
		b.rc = http.MaxBytesReader(ex.rw, r.Body, limit)
	}
	return b
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.extend()
	n, err := b.rc.Read(p)
	b.n.Add(int64(n))
	if err != nil {
		if b.atEnd != nil {
			b.atEnd()
		}
		b.end(err)
	}
	return n, err
}

func (b *requestBody) Close() error { return b.rc.Close() }

// extend moves the deadline ahead when an eighth of it has passed.
func (b *requestBody) extend() {
	if b.timeout <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.answered || b.ended || b.deadline.Sub(now) > b.timeout*7/8 {
		return
	}
	b.setDeadline(now.Add(b.timeout))
}

// setDeadline is called with mu held.
func (b *requestBody) setDeadline(t time.Time) {
	b.deadline = t
	_ = b.control.SetReadDeadline(t) // recorders have none
}

// end notes how the body ended. The deadline must go: the server goes on reading to
// find out when the client leaves.
func (b *requestBody) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if !errors.Is(err, io.EOF) && b.err == nil {
		b.err = err
	}
	if !b.deadline.IsZero() && !b.finished {
		b.setDeadline(time.Time{})
	}
}

// responding lifts the bound once the response has begun.
func (b *requestBody) responding() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered = true
	if !b.deadline.IsZero() {
		b.setDeadline(time.Time{})
	}
}

// finish bounds what the server still reads of the body after the handler, and
// makes it close the connection if there is something left to read: in full-duplex
// mode it would take the rest of a body that comes late for the next request.
func (b *requestBody) finish(rw http.ResponseWriter) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered, b.finished = true, true
	if !b.ended || b.err != nil {
		b.setDeadline(time.Now().Add(drainTimeout))
		closeAfterReply(rw)
	}
}

// closeAfterReply makes an HTTP/1 server close the connection after the response,
// even if the headers are sent already. The way there is the one that the standard
// library has for bodies over their limit.
func closeAfterReply(rw http.ResponseWriter) {
	overLimit := http.MaxBytesReader(rw, io.NopCloser(strings.NewReader("x")), 0)
	_, _ = overLimit.Read(make([]byte, 1))
}

// unread reports whether there may be something left to read.
func (b *requestBody) unread() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ended || b.err != nil
}

// failure returns why the client's body could not be read, nil if it could.
func (b *requestBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || errors.Is(b.err, http.ErrBodyReadAfterClose) {
		return nil
	}
	return &clientError{b.err}
}
