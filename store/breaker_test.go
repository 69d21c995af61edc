package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// reply is an error that a server answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

var _ redis.Error = reply("")

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want verdict
	}{
		{nil, answered},
		{redis.Nil, answered},
		{fmt.Errorf("wrapped: %w", redis.Nil), answered},
		{context.Canceled, ignored},
		{context.DeadlineExceeded, silent},
		{io.EOF, silent},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, silent},
		{errors.New("redis: connection pool timeout"), silent},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), refused},
		{reply("NOPERM User tlsproxy has no permissions to run the 'get' command"), refused},
		{reply("MISCONF Redis is configured to save RDB snapshots"), refused},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), refused},
		{reply("LOADING Redis is loading the dataset in memory"), silent},
		{reply("CLUSTERDOWN The cluster is down"), silent},
		{reply("MASTERDOWN Link with MASTER is down"), silent},
		{reply("READONLY You can't write against a read only replica."), silent},
		{reply("NOAUTH Authentication required."), silent},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), silent},
		{reply("ERR invalid password"), silent},
		{reply("ERR max number of clients reached"), silent},
		{fmt.Errorf("wrapped: %w", reply("OOM full")), refused},
	} {
		if got := judge(tt.err); got != tt.want {
			t.Errorf("judge(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// Only answers within a handshake's deadline show that a server is quick
// enough: writes that succeed in their own time do not.
func TestBreakerTripsOnUrgentCalls(t *testing.T) {
	s := &server{log: slog.New(slog.DiscardHandler)}
	slow := context.DeadlineExceeded
	for range tripAfter {
		if !s.allow() {
			t.Fatal("tripped too early")
		}
		s.report("key", slow, true)
		s.report("key", nil, false)
	}
	if s.allow() {
		t.Error("slow answers did not trip it")
	}
	q := &server{log: slog.New(slog.DiscardHandler)}
	for range 10 * tripAfter {
		q.report("key", slow, true)
		q.report("key", reply("OOM full"), true) // an answer, and in time
		q.report("key", context.Canceled, true)
	}
	if !q.allow() {
		t.Error("failures with answers between them tripped it")
	}
}

// A server whose outages follow each other is probed more and more rarely, and
// after a quiet time as often as at first.
func TestProbesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{log: slog.New(slog.DiscardHandler)}
		outage := func() (wait time.Duration) {
			for s.allow() {
				s.report("key", io.EOF, true)
			}
			start := time.Now()
			for {
				if key, ok := s.due(time.Now()); ok && key == "key" {
					break
				}
				time.Sleep(time.Millisecond)
			}
			s.probed(nil)
			return time.Since(start)
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if got := outage(); got != want*probeEvery {
				t.Errorf("probed after %v, want %v", got, want*probeEvery)
			}
		}
		time.Sleep(settled + time.Second)
		if got := outage(); got != probeEvery {
			t.Errorf("probed after %v, want %v", got, probeEvery)
		}
	})
}
