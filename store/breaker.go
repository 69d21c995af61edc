package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrUnavailable is returned, at once, while a server does not answer: it is
// not asked again until a probe in the background got through.
var ErrUnavailable = errors.New("store: the server does not answer; it is not asked until a probe gets through")

const (
	tripAfter    = 3 // calls in a row
	probeEvery   = 250 * time.Millisecond
	probeAtMost  = 15 * time.Second
	probeTimeout = time.Second
	// settled is how long a server must have answered for its next
	// outage to be probed at the quickest pace again.
	settled = 30 * time.Second
)

// server is what is known of one Redis server: whether it answers, and whether
// it takes writes.
type server struct {
	address string
	log     *slog.Logger

	mu       sync.Mutex
	failures int // in a row, of calls that a handshake may wait for
	down     bool
	since    time.Time // of the state
	lastErr  error
	probeKey string // the key whose call failed: GET on it is the probe
	probeAt  time.Time
	backoff  time.Duration
	asked    time.Time

	refusing bool // writes
	closed   bool // to reads of sessions
}

// verdict is what an answer says of its server.
type verdict int

const (
	answered verdict = iota // whatever it said
	refused                 // it does not take this write, out of memory or with its disk full, or permit this call
	silent                  // it did not answer, or cannot serve anybody now
	ignored                 // the caller gave up for reasons of its own
)

// judge sorts the errors of go-redis.
func judge(err error) verdict {
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return answered
	case errors.Is(err, context.Canceled):
		return ignored
	}
	var reply redis.Error
	if !errors.As(err, &reply) || isNetwork(err) {
		return silent
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	switch strings.TrimPrefix(code, "-") {
	case "LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "NOAUTH", "WRONGPASS", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS":
		return silent
	}
	if strings.Contains(reply.Error(), "invalid password") || strings.Contains(reply.Error(), "max number of clients") {
		return silent
	}
	return refused
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, context.DeadlineExceeded)
}

// allow reports whether the server may be asked.
func (s *server) allow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
	return !s.down
}

// report learns from a call on key. urgent calls are those that a handshake
// waits for: only their success shows that the server is quick enough.
func (s *server) report(key string, err error, urgent bool) {
	v := judge(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch v {
	case answered, refused:
		if urgent {
			s.failures = 0
		}
	case silent:
		s.failures++
		s.lastErr, s.probeKey = err, key
		if s.failures >= tripAfter && !s.down {
			s.trip()
		}
	}
}

// wrote learns from a write whether the server takes writes.
func (s *server) wrote(err error) {
	v := judge(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v == refused && !s.refusing:
		s.refusing = true
		s.log.Warn("store refuses writes: new sessions are not shared", "server", s.address, "err", err)
	case v == answered && s.refusing:
		s.refusing = false
		s.log.Info("store takes writes again", "server", s.address)
	}
}

// read learns from a read of a session whether the server permits them. That it
// answers is all that the breaker wants to know.
func (s *server) read(err error) {
	v := judge(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v == refused && !s.closed:
		s.closed = true
		s.log.Error("store refuses reads: its sessions are not resumed", "server", s.address, "err", err)
	case v == answered && s.closed:
		s.closed = false
		s.log.Info("store permits reads again", "server", s.address)
	}
}

// trip stops asking. The caller holds mu.
func (s *server) trip() {
	now := time.Now()
	if s.backoff == 0 || now.Sub(s.since) > settled {
		s.backoff = probeEvery
	} else {
		s.backoff = min(2*s.backoff, probeAtMost)
	}
	s.down, s.since, s.probeAt = true, now, now.Add(s.backoff)
	s.log.Warn("store does not answer: not asking it until it does", "server", s.address, "err", s.lastErr)
}

// due returns the key to probe with, if it is time.
func (s *server) due(now time.Time) (key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down || now.Before(s.probeAt) {
		return "", false
	}
	return s.probeKey, true
}

// probed learns from a probe.
func (s *server) probed(err error) {
	v := judge(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch v {
	case ignored:
		return
	case silent:
		s.lastErr, s.probeAt = err, now.Add(s.backoff)
		return
	}
	s.log.Info("store answers again", "server", s.address, "down_for", now.Sub(s.since).Round(time.Millisecond))
	s.down, s.since, s.failures, s.lastErr = false, now, 0, nil
}

// ServerStatus is the state of one server.
type ServerStatus struct {
	Address       string    `json:"address"`
	Up            bool      `json:"up"`
	Since         time.Time `json:"since,omitzero"` // of Up's last change; zero: none yet
	LastError     string    `json:"last_error,omitempty"`
	RefusesWrites bool      `json:"refuses_writes"`
	RefusesReads  bool      `json:"refuses_reads"` // of sessions
}

func (s *server) status() ServerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ServerStatus{Address: s.address, Up: !s.down, Since: s.since, RefusesWrites: s.refusing, RefusesReads: s.closed}
	if s.lastErr != nil && s.down {
		st.LastError = s.lastErr.Error()
	}
	return st
}
