package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// AccessLogOptions configures an [AccessLog].
type AccessLogOptions struct {
	// Path is the file to append to, made with mode 0640 if it is missing. "" means
	// Writer.
	Path string
	// Writer is written to if Path is empty; nil means standard output.
	Writer io.Writer
	// Query writes the query of requests too. It is off by default because queries
	// carry secrets.
	Query bool
	// Buffer is how many bytes may wait for the disk; records beyond it are dropped
	// and counted. Zero means 4 MiB.
	Buffer int
	// FlushInterval is how long a record may wait; zero means 1 s.
	FlushInterval time.Duration
	// Logger takes write errors; nil means [slog.Default].
	Logger *slog.Logger
}

// AccessLog writes one JSON object a line for each request. It is an [Observer]
// that never waits for the disk. Make it with [NewAccessLog].
type AccessLog struct {
	opts AccessLogOptions
	full chan struct{} // has a value when the buffer is worth writing early

	mu      sync.Mutex // guards the fields below; never held while writing
	buf     []byte     // records to write
	records uint64     // in buf
	stats   AccessLogStats

	file    sync.Mutex // guards the fields below; held while writing
	out     io.Writer
	closer  io.Closer // nil: not ours to close
	spare   []byte    // the buffer written last
	failing bool      // the last write failed
}

// AccessLogStats counts records since the start.
type AccessLogStats struct {
	Written uint64 `json:"written"`
	Dropped uint64 `json:"dropped"` // no room, or a write error
}

var _ Observer = (*AccessLog)(nil)

// earlyFlush is the number of waiting bytes that are written without waiting for
// the interval.
const earlyFlush = 64 << 10

// NewAccessLog opens the file. Nothing is written before Run.
func NewAccessLog(opts AccessLogOptions) (*AccessLog, error) {
	opts.Buffer = cmp.Or(opts.Buffer, 4<<20)
	opts.FlushInterval = cmp.Or(opts.FlushInterval, time.Second)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Buffer < 0 || opts.FlushInterval < 0 {
		return nil, errors.New("access log: the buffer or the flush interval is negative")
	}
	l := &AccessLog{opts: opts, full: make(chan struct{}, 1), out: opts.Writer}
	if opts.Path != "" {
		f, err := openLog(opts.Path)
		if err != nil {
			return nil, err
		}
		l.out, l.closer = f, f
		return l, nil
	}
	if l.out == nil {
		l.out = os.Stdout
	}
	return l, nil
}

func openLog(path string) (*os.File, error) {
	// A named pipe that nobody reads is an error, not a wait without end.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	return f, nil
}

// Reopening is the path of an [AccessLog] opened anew, and nothing written to it
// yet. Call Install or Discard, once. Both do nothing on nil.
type Reopening struct {
	log  *AccessLog
	file *os.File
}

// Reopen opens the path anew, for log rotation; the old file stays in use until
// Install. It returns nil without a path.
func (l *AccessLog) Reopen() (*Reopening, error) {
	if l.opts.Path == "" {
		return nil, nil
	}
	f, err := openLog(l.opts.Path)
	if err != nil {
		return nil, err
	}
	return &Reopening{l, f}, nil
}

// Install has everything from now on written to the new file and closes the old
// one.
func (r *Reopening) Install() {
	if r == nil {
		return
	}
	r.log.file.Lock()
	defer r.log.file.Unlock()
	if r.log.closer != nil {
		r.log.closer.Close()
	}
	r.log.out, r.log.closer = r.file, r.file
}

// Discard closes the new file.
func (r *Reopening) Discard() {
	if r != nil {
		r.file.Close()
	}
}

// Run writes records until ctx is done, then writes what is left, closes the file
// and returns nil. Stop it after the last request.
func (l *AccessLog) Run(ctx context.Context) error {
	tick := time.NewTicker(l.opts.FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.full:
		case <-ctx.Done():
			l.flush()
			return l.closeFile()
		}
		l.flush()
	}
}

func (l *AccessLog) closeFile() error {
	l.file.Lock()
	defer l.file.Unlock()
	if l.closer == nil {
		return nil
	}
	err := l.closer.Close()
	l.out, l.closer = io.Discard, nil
	return err
}

// Request queues the record; it drops it if there is no room.
func (l *AccessLog) Request(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.buf)
	if before < l.opts.Buffer {
		l.buf = r.appendJSON(l.buf, l.opts.Query)
	}
	if before >= l.opts.Buffer || len(l.buf) > l.opts.Buffer {
		l.buf = l.buf[:before]
		l.stats.Dropped++
		return
	}
	l.records++
	if before < earlyFlush && len(l.buf) >= earlyFlush {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// flush writes what has been queued.
func (l *AccessLog) flush() {
	l.file.Lock()
	defer l.file.Unlock()
	l.mu.Lock()
	buf, records := l.buf, l.records
	l.buf, l.records = l.spare[:0], 0
	l.mu.Unlock()
	if len(buf) == 0 {
		l.spare = buf
		return
	}
	_, err := l.out.Write(buf)
	l.spare = buf
	if cap(buf) > 2*earlyFlush {
		l.spare = nil // a burst is over
	}
	l.wrote(records, err)
}

// wrote counts records and tells once of each time that writing starts to fail.
func (l *AccessLog) wrote(records uint64, err error) {
	l.mu.Lock()
	if err != nil {
		l.stats.Dropped += records
	} else {
		l.stats.Written += records
	}
	l.mu.Unlock()
	if err != nil && !l.failing {
		l.opts.Logger.Error("access log cannot be written", "err", err)
	}
	l.failing = err != nil
}

// Stats returns the counts.
func (l *AccessLog) Stats() AccessLogStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}
