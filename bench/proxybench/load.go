package proxybench

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is one measurement of one server.
type result struct {
	ops   int
	value float64       // in the unit of the row
	p99   time.Duration // 0: none
	err   error         // why it does not count
}

// worker does one operation after another. prepare, which is not measured, comes first.
type worker struct {
	prepare func() error
	do      func() error
	close   func()
}

// loaded is what a load of workers did.
type loaded struct {
	ops    int
	cpu    time.Duration // of the server
	p99    time.Duration
	failed int
	err    error // the first one
}

// load runs workers side by side against a server for a time, the first part of
// which warms up.
func (b *Bench) load(r *running, workers []worker) (loaded, error) {
	for _, w := range workers {
		if w.close != nil {
			defer w.close()
		}
	}
	for _, w := range workers {
		if w.prepare == nil {
			continue
		}
		if err := w.prepare(); err != nil {
			return loaded{}, err
		}
	}
	if _, err := b.drive(workers, b.warmup); err != nil {
		return loaded{}, err
	}
	before, err := r.cpu()
	if err != nil {
		return loaded{}, err
	}
	all, err := b.drive(workers, b.duration)
	if err != nil {
		return loaded{}, err
	}
	after, err := r.cpu()
	if err != nil {
		return loaded{}, err
	}
	all.cpu = after - before
	return all, nil
}

// drive runs the workers for a time.
func (b *Bench) drive(workers []worker, d time.Duration) (loaded, error) {
	var (
		mu    sync.Mutex
		all   loaded
		times []time.Duration
		over  atomic.Bool
		wg    sync.WaitGroup
	)
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	for _, w := range workers {
		wg.Go(func() {
			var mine []time.Duration
			var firstErr error
			failed := 0
			for !over.Load() && b.ctx.Err() == nil {
				start := time.Now()
				if err := w.do(); err != nil {
					firstErr = errors.Join(firstErr, err)
					failed++
					break // one is enough for the run not to count
				}
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, mine...)
			all.failed += failed
			if all.err == nil {
				all.err = firstErr
			}
		})
	}
	wg.Wait()
	if err := b.ctx.Err(); err != nil {
		return loaded{}, err
	}
	all.ops, all.p99 = len(times), percentile(times, 0.99)
	if all.err != nil {
		return all, fmt.Errorf("%d errors, the first: %w", all.failed, all.err)
	}
	return all, nil
}

// sleep waits, or returns why the run is to end.
func (b *Bench) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// percentile sorts times and returns the one below which the given part lies.
func percentile(times []time.Duration, part float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(int(part*float64(len(times))), len(times)-1)]
}

// visitors are the clients of the handshake rows: each connection carries one
// request.
func (b *Bench) visitors(addr string, version uint16, resumed bool) []worker {
	workers := make([]worker, b.clients)
	for i := range workers {
		c := &client{bench: b, addr: addr, version: version}
		if !resumed {
			workers[i].do = func() error { return c.stranger().visit(false) }
			continue
		}
		c.sessions = tls.NewLRUClientSessionCache(1)
		workers[i] = worker{
			prepare: func() error { return c.visit(false) },
			do:      func() error { return c.visit(true) },
		}
	}
	return workers
}

// downloaders are the clients of the bulk row.
func (b *Bench) downloaders(addr string) []worker {
	workers := make([]worker, 2)
	for i := range workers {
		c := &client{bench: b, addr: addr, version: tls.VersionTLS13}
		var conn *tls.Conn
		var r *bufio.Reader
		buf := make([]byte, blockSize)
		workers[i] = worker{
			prepare: func() (err error) {
				if conn, err = c.dial(false); err == nil {
					r = bufio.NewReaderSize(conn, 32<<10)
				}
				return err
			},
			do: func() error { return c.fetchBulk(conn, r, buf) },
			close: func() {
				if conn != nil {
					conn.Close()
				}
			},
		}
	}
	return workers
}

// idle opens connections, makes one request on each, and returns how much the
// server's memory has grown for each after a rest.
func (b *Bench) idle(r *running) result {
	c := &client{bench: b, addr: r.addr, version: tls.VersionTLS13}
	if err := c.visit(false); err != nil { // whatever is made on first use
		return result{err: err}
	}
	before, err := r.memory()
	if err != nil {
		return result{err: err}
	}
	conns := make([]*tls.Conn, 0, b.idleConns)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for range b.idleConns {
		conn, err := c.dial(false)
		if err != nil {
			return result{err: err}
		}
		conns = append(conns, conn)
		if err := greet(conn, bufio.NewReader(conn)); err != nil {
			return result{err: err}
		}
	}
	if err := b.sleep(b.rest); err != nil {
		return result{err: err}
	}
	after, err := r.memory()
	if err != nil {
		return result{err: err}
	}
	for _, conn := range conns { // they must be there still
		if err := greet(conn, bufio.NewReader(conn)); err != nil {
			return result{err: fmt.Errorf("an idle connection: %w", err)}
		}
	}
	return result{ops: b.idleConns, value: float64(after-before) / float64(b.idleConns) / 1024}
}
