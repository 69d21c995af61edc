package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

func TestMain(m *testing.M) {
	quietLibrary()
	goleak.VerifyTestMain(m)
}

// quietLibrary keeps go-redis from writing to the tests' standard error.
func quietLibrary() { LogLibrary(slog.New(slog.DiscardHandler)) }

// redisServer is a real server on loopback that the test may mistreat.
type redisServer struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	gone chan struct{}
}

// startRedis starts a server on a free port; it ends with the test. args are
// configuration directives as on redis-server's command line.
func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	r := &redisServer{t: t, addr: freeAddress(t), dir: t.TempDir(), args: args}
	t.Cleanup(r.kill)
	r.start()
	return r
}

// start starts the server at its address, again after kill.
func (r *redisServer) start() { r.t.Helper(); r.startWith() }

// startWith starts the server with a configuration file before its directives.
func (r *redisServer) startWith(conf ...string) {
	r.t.Helper()
	binary := testtool.Require(r.t, "redis-server", "redis-server")
	_, port, _ := net.SplitHostPort(r.addr)
	args := append(conf, "--port", port, "--bind", "127.0.0.1", "--dir", r.dir,
		"--daemonize", "no", "--protected-mode", "no", "--loglevel", "warning")
	if len(conf) == 0 {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, r.args...)
	r.cmd = exec.Command(binary, args...)
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	gone := make(chan struct{})
	r.gone = gone
	cmd := r.cmd
	go func() { cmd.Wait(); close(gone) }()
	r.waitListening()
}

func (r *redisServer) waitListening() {
	r.t.Helper()
	address := r.addr
	for i, a := range r.args {
		if a == "--tls-port" {
			address = net.JoinHostPort("127.0.0.1", r.args[i+1])
		}
	}
	testtool.Eventually(r.t, "redis-server listens at "+address, func() bool {
		select {
		case <-r.gone:
			log, _ := os.ReadFile(filepath.Join(r.dir, "log"))
			r.t.Fatalf("redis-server ended: %s", log)
		default:
		}
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (r *redisServer) kill() {
	if r.cmd == nil || r.cmd.Process == nil {
		return
	}
	r.cmd.Process.Signal(syscall.SIGCONT)
	r.cmd.Process.Kill()
	<-r.gone
}

func (r *redisServer) stop() { r.signal(syscall.SIGSTOP) }
func (r *redisServer) cont() { r.signal(syscall.SIGCONT) }

func (r *redisServer) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// raw is a plain client of the server: the operator's view.
func (r *redisServer) raw() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: r.addr, Protocol: 2, MaintNotificationsConfig: noNotifications()})
	r.t.Cleanup(func() { c.Close() })
	return c
}

// freeAddress returns an address on loopback that nobody uses, with room for a
// cluster's bus above it.
func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testtool.FreePort(t, 10_000))
}

func pauseFor(t testing.TB, d time.Duration) { pause(t.Context(), d) }

// writeKeys writes a key file.
func writeKeys(t testing.TB, path string, keys ...string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "store.keys")
	}
	if err := os.WriteFile(path, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newKey returns a line for a key file.
func newKey() string { return newKeys(1)[0] }

// newKeys returns n lines for one key file. Two keys in 256 have the same short
// name, which a file refuses, so those are drawn again.
func newKeys(n int) (lines []string) {
	for len(lines) < n {
		b := make([]byte, keySize)
		rand.Read(b)
		more := append(slices.Clone(lines), hex.EncodeToString(b))
		if _, err := ParseKeyring([]byte(strings.Join(more, "\n"))); err == nil {
			lines = more
		}
	}
	return lines
}

// open returns a running Store; it ends with the test.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.KeyFile == "" {
		o.KeyFile = writeKeys(t, "", newKey())
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second // a busy machine is no reason to fail, where time is not the subject
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := s.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// opened is a Store on a fresh server.
func opened(t testing.TB) (*Store, *redisServer) {
	t.Helper()
	r := startRedis(t)
	return open(t, Options{Addresses: []string{r.addr}}), r
}

func newID(c *Sessions) (id [16]byte) {
	rand.Read(id[:])
	id[0] = c.Hint()
	return id
}

func put(t testing.TB, c *Sessions, id [16]byte, value string, life time.Duration) {
	t.Helper()
	if err := c.Write(t.Context(), []Change{{ID: id, Value: []byte(value), Life: life}}); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, c *Sessions, id [16]byte) string {
	t.Helper()
	b, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func redisZ(member string, end time.Time) redis.Z {
	return redis.Z{Score: float64(end.UnixMilli()), Member: member}
}

// recordsFor returns records to publish that are kept for life.
func recordsFor(life time.Duration, values ...[]byte) (out []SharedRecord) {
	for _, v := range values {
		out = append(out, SharedRecord{Record: v, End: time.Now().Add(life)})
	}
	return out
}

// watch runs c's Watch until the test ends.
func watch(t testing.TB, c *Sessions, heard *records) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Watch(ctx, heard.apply, heard.know); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// lockedBuffer is a log to read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.b.String()
	l.b.Reset()
	return s
}

func (l *lockedBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
