package memnet

import (
	"io"
	"sync"
	"time"
)

// streamSize is how many bytes a stream holds that nobody has read.
const streamSize = 64 << 10

// stream is one direction of a connection: a bounded buffer between a writing
// and a reading end.
type stream struct {
	mu   sync.Mutex
	cond *sync.Cond

	buf        []byte
	readClosed bool  // the reading end was closed
	writeErr   error // why reads end: io.EOF after a close, errReset after a reset

	readDeadline, writeDeadline deadline
}

func newStream() *stream {
	s := &stream{}
	s.cond = sync.NewCond(&s.mu)
	s.readDeadline.owner = s
	s.writeDeadline.owner = s
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readClosed:
			return 0, errClosed
		case s.readDeadline.passed:
			return 0, errDeadline
		case len(p) == 0:
			return 0, nil
		case len(s.buf) > 0:
			n := copy(p, s.buf)
			s.buf = s.buf[n:]
			if len(s.buf) == 0 {
				s.buf = nil
			}
			s.cond.Broadcast()
			return n, nil
		case s.writeErr != nil:
			return 0, s.writeErr
		}
		s.cond.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := 0
	for {
		switch {
		case s.writeErr == io.EOF:
			return written, errClosed
		case s.writeErr != nil:
			return written, s.writeErr
		case s.readClosed:
			return written, errBroken
		case s.writeDeadline.passed:
			return written, errDeadline
		case len(p) == 0:
			return written, nil
		}
		if room := streamSize - len(s.buf); room > 0 {
			n := min(room, len(p))
			s.buf = append(s.buf, p[:n]...)
			p = p[n:]
			written += n
			s.cond.Broadcast()
			continue
		}
		s.cond.Wait()
	}
}

func (s *stream) closeReader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readClosed = true
	s.buf = nil
	s.readDeadline.stop()
	s.cond.Broadcast()
}

func (s *stream) closeWriter(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr == nil {
		s.writeErr = err
	}
	s.writeDeadline.stop()
	s.cond.Broadcast()
}

func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = nil
	s.writeErr = errReset
	s.writeDeadline.stop()
	s.cond.Broadcast()
}

// deadline wakes its stream when a time has come. Its fields are guarded by the
// stream's lock.
type deadline struct {
	owner  *stream
	timer  *time.Timer
	passed bool
	epoch  uint64 // tells a timer that fired late from the present one
}

func (d *deadline) set(t time.Time) {
	s := d.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	d.stop()
	d.passed = false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.passed = true
		s.cond.Broadcast()
		return
	}
	epoch := d.epoch
	d.timer = time.AfterFunc(wait, func() { d.fire(epoch) })
}

func (d *deadline) fire(epoch uint64) {
	d.owner.mu.Lock()
	defer d.owner.mu.Unlock()
	if d.epoch != epoch {
		return
	}
	d.passed = true
	d.owner.cond.Broadcast()
}

// stop forgets the timer; the caller holds the stream's lock.
func (d *deadline) stop() {
	d.epoch++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
