package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// sharedBody lends a request body to one try after the other, as long as nobody
// has read from it. A nil *sharedBody stands for no body.
type sharedBody struct {
	mu   sync.Mutex
	rc   io.ReadCloser
	read bool
}

func newSharedBody(req *http.Request) *sharedBody {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	return &sharedBody{rc: req.Body}
}

func (s *sharedBody) wasRead() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

func (s *sharedBody) close() {
	if s != nil {
		s.rc.Close()
	}
}

func (s *sharedBody) try() *tryBody {
	if s == nil {
		return nil
	}
	return &tryBody{shared: s}
}

// tryBody is the body as one try sees it: closing it gives it back.
type tryBody struct {
	shared  *sharedBody
	closed  bool
	settled bool // no other try will follow
}

var errBodyClosed = errors.New("read from a closed request body")

func (t *tryBody) Read(p []byte) (int, error) {
	t.shared.mu.Lock()
	if t.closed {
		t.shared.mu.Unlock()
		return 0, errBodyClosed
	}
	t.shared.read = true
	t.shared.mu.Unlock()
	return t.shared.rc.Read(p)
}

// Close is safe on a nil *tryBody.
func (t *tryBody) Close() error {
	if t == nil {
		return nil
	}
	t.shared.mu.Lock()
	last := t.settled && !t.closed
	t.closed = true
	t.shared.mu.Unlock()
	if last {
		return t.shared.rc.Close()
	}
	return nil
}

// settle makes this the last try: from now on closing it closes the request body.
func (t *tryBody) settle() {
	if t == nil {
		return
	}
	t.shared.mu.Lock()
	t.settled = true
	closed := t.closed
	t.shared.mu.Unlock()
	if closed {
		t.shared.rc.Close()
	}
}

// responseBody releases the backend once the response has ended.
type responseBody struct {
	io.ReadCloser
	backend  *backend
	released atomic.Bool
}

func newResponseBody(b *backend, res *http.Response) io.ReadCloser {
	body := &responseBody{ReadCloser: res.Body, backend: b}
	if rwc, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		return &upgradedBody{responseBody: body, rwc: rwc}
	}
	return body
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *responseBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

func (b *responseBody) release() {
	if !b.released.Swap(true) {
		b.backend.release()
	}
}

// upgradedBody is the connection behind a 101; it counts until it is closed.
type upgradedBody struct {
	*responseBody
	rwc io.ReadWriteCloser
}

func (b *upgradedBody) Read(p []byte) (int, error)  { return b.rwc.Read(p) }
func (b *upgradedBody) Write(p []byte) (int, error) { return b.rwc.Write(p) }

// CloseWrite ends the stream towards the backend and leaves the other one open.
func (b *upgradedBody) CloseWrite() error {
	if cw, ok := b.rwc.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return b.rwc.Close()
}
