package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// hold makes a connection that stays open, with its handshake done and one
// request answered.
func (r *rig) hold(from string) *tls.Conn {
	r.t.Helper()
	c := tls.Client(r.dialFrom(from, listenAddr), r.client("app.example", tls.VersionTLS13, nil))
	if err := c.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// heldBack waits until n connections wait at a limit.
func (r *rig) heldBack(n int) {
	r.t.Helper()
	testtool.Eventually(r.t, fmt.Sprintf("%d connections to be held back", n), func() bool {
		return r.front.Stats().HeldBack == n
	})
}

func TestMaxConnections(t *testing.T) {
	r := newRig(t, rigOptions{limits: Limits{MaxConnections: 2}})
	one, two := r.hold("203.0.113.1:1"), r.hold("203.0.113.2:1")
	defer two.Close()

	third := make(chan error, 1)
	go func() {
		_, _, err := visitOver(r.dialFrom("203.0.113.3:1", listenAddr), r.client("app.example", tls.VersionTLS13, nil))
		third <- err
	}()
	// it counts while it waits: a proxy that stays full must not look idle
	r.heldBack(1)
	if s := r.front.Stats(); s.Full != 1 || s.Open != 2 {
		t.Errorf("full %d times with %d open; want once with 2", s.Full, s.Open)
	}
	select {
	case err := <-third:
		t.Fatalf("the third connection did not wait: %v", err)
	default:
	}
	one.Close()
	if err := <-third; err != nil {
		t.Errorf("the third connection: %v", err)
	}
	if s := r.front.Stats(); s.Full != 1 || s.HeldBack != 0 {
		t.Errorf("full %d times, %d held back; want once and none", s.Full, s.HeldBack)
	}

	// a reload lifts the limit
	r.install(Config{Listeners: []ListenerOptions{{Address: listenAddr, Table: r.front.ports[listenAddr].current.Load().table}}})
	for i := range 5 {
		defer r.hold(fmt.Sprintf("203.0.113.9:%d", i+1)).Close()
	}
}

// Connections that wait for room when the end comes are closed.
func TestShutdownWhileFull(t *testing.T) {
	r := newRig(t, rigOptions{limits: Limits{MaxConnections: 1}})
	defer r.hold("203.0.113.1:1").Close()
	waiting := r.dialFrom("203.0.113.2:1", listenAddr)
	r.heldBack(1)
	r.stop()
	r.heldBack(0)
	if _, err := waiting.Read(make([]byte, 1)); err == nil {
		t.Error("the waiting connection was answered")
	}
}

func TestMaxHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pki := newMatrixPKI(t)
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, limits: Limits{MaxHandshakes: 1}})
		silent := r.dial()
		defer silent.Close()
		synctest.Wait()
		began := time.Now()
		time.AfterFunc(DefaultHandshakeTimeout/2, func() {
			if s := r.front.Stats(); s.Full != 1 || s.HeldBack != 1 {
				t.Errorf("full %d times, %d held back; want one of each", s.Full, s.HeldBack)
			}
		})
		r.mustVisit(r.client("app.example", tls.VersionTLS13, nil)) // once the silent one has run into its deadline
		if took := time.Since(began); took != DefaultHandshakeTimeout {
			t.Errorf("took %v; want %v", took, DefaultHandshakeTimeout)
		}
	})
}

func TestMaxPerClient(t *testing.T) {
	r := newRig(t, rigOptions{limits: Limits{MaxPerClient: 2}})
	open := []*tls.Conn{r.hold("203.0.113.1:1"), r.hold("203.0.113.1:2")}
	refused := func(from string) {
		t.Helper()
		if _, _, err := visitOver(r.dialFrom(from, listenAddr), r.client("app.example", tls.VersionTLS13, nil)); err == nil {
			t.Errorf("%s: let in", from)
		}
	}
	refused("203.0.113.1:3")
	if got := r.waitFailure(); got != ReasonClientLimit {
		t.Errorf("reason %s", got)
	}
	defer r.hold("203.0.113.2:1").Close() // another client
	open[0].Close()
	testtool.Eventually(t, "the place to be given back", func() bool {
		r.front.clients.mu.Lock()
		defer r.front.clients.mu.Unlock()
		return r.front.clients.open[netip.MustParseAddr("203.0.113.1")] == 1
	})
	defer r.hold("203.0.113.1:4").Close()
	open[1].Close()

	// one /64 is one client
	defer r.hold("[2001:db8::1]:1").Close()
	defer r.hold("[2001:db8::2]:1").Close()
	refused("[2001:db8::3]:1")
	defer r.hold("[2001:db8:0:1::1]:1").Close()
}

func TestClientKey(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		if got := clientKey(netip.MustParseAddr(addr)); got != netip.MustParseAddr(want) {
			t.Errorf("clientKey(%s) = %s; want %s", addr, got, want)
		}
	}
	if clientKey(netip.Addr{}).IsValid() {
		t.Error("an unknown address has a key")
	}
}

func TestHandshakeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pki := newMatrixPKI(t)
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, limits: Limits{HandshakeRate: 2, HandshakeBurst: 4}})
		visits := func(from string, n int) (ok int) {
			for range n {
				if _, _, err := visitOver(r.dialFrom(from, listenAddr), r.client("app.example", tls.VersionTLS13, nil)); err == nil {
					ok++
				}
			}
			return ok
		}
		if got := visits("203.0.113.1:1", 10); got != 4 {
			t.Errorf("%d of 10 at once; want the burst of 4", got)
		}
		if got := visits("203.0.113.2:1", 3); got != 3 {
			t.Errorf("another client: %d of 3", got)
		}
		time.Sleep(time.Second)
		if got := visits("203.0.113.1:1", 10); got != 2 {
			t.Errorf("%d after a second; want the rate of 2", got)
		}
		time.Sleep(time.Minute)
		if got := visits("203.0.113.1:1", 10); got != 4 {
			t.Errorf("%d after a minute; want the burst of 4, no more", got)
		}
		if n := r.front.Stats().Failures[ReasonRateLimited]; n != 20 {
			t.Errorf("counted %d refusals; want 20", n)
		}
	})
}

// The table of rates is bounded whatever addresses come.
func TestRateTableIsBounded(t *testing.T) {
	l, err := newRateLimiter()
	if err != nil {
		t.Fatal(err)
	}
	l.set(1, 1)
	for i := range rateClients + 5000 {
		l.allow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if n := l.limiters.Stats().Entries; n > rateClients {
		t.Errorf("%d clients remembered; want at most %d", n, rateClients)
	}
	l.set(0, 0)
	if n := l.limiters.Len(); n != 0 {
		t.Errorf("%d clients remembered with the limit off", n)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	f, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for want, l := range map[string]Limits{
		"handshake timeout": {HandshakeTimeout: -1},
		"PROXY headers":     {ProxyHeaderTimeout: -1},
		"burst":             {HandshakeBurst: -1},
	} {
		if _, err := f.Prepare(Config{Limits: l}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Prepare = %v; want an error with %q", err, want)
		}
	}
}

func TestLimitDefaults(t *testing.T) {
	got := Limits{}.withDefaults()
	want := Limits{HandshakeTimeout: 10 * time.Second, ProxyHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, MaxHandshakes: 8192, HandshakeBurst: 1}
	if got != want {
		t.Errorf("defaults = %+v; want %+v", got, want)
	}
	off := Limits{WriteTimeout: -1, MaxConnections: -1, MaxHandshakes: -1, MaxPerClient: -1, HandshakeRate: -1}.withDefaults()
	if off.WriteTimeout != 0 || off.MaxConnections != 0 || off.MaxHandshakes != 0 || off.MaxPerClient != 0 || off.HandshakeRate != 0 {
		t.Errorf("switched off = %+v", off)
	}
	if got := (Limits{HandshakeRate: 2.5}).withDefaults().HandshakeBurst; got != 3 {
		t.Errorf("burst of rate 2.5 = %d; want 3", got)
	}
}

// A failing Accept is tried again, more and more slowly, and heals.
func TestAcceptBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pki := newMatrixPKI(t)
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, noStart: true})
		ln := r.front.ports[listenAddr].listeners[0].(*memnet.Listener)
		var errs []error
		for range 10 {
			errs = append(errs, syscall.EMFILE)
		}
		ln.FailAccept(errs...)
		r.start(testLog(t))
		defer r.stop()
		began := time.Now()
		r.mustVisit(r.client("app.example", tls.VersionTLS13, nil))
		// 5 10 20 40 80 160 320 640 1000 1000 ms
		if took := time.Since(began); took != 3275*time.Millisecond {
			t.Errorf("accepted after %v; want 3.275 s", took)
		}
		if n := r.front.Stats().AcceptErrors; n != 10 {
			t.Errorf("counted %d errors; want 10", n)
		}
	})
}

// A client that stops reading is dropped, and one that reads a byte a second is
// not: the timeout is of a write, not of a response.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
		c := &conn{Conn: a}
		c.writes.timeout = 10 * time.Second
		read := make(chan struct{})
		go func() { // slower than the timeout, taken over all
			defer close(read)
			buf := make([]byte, 16<<10)
			for {
				if _, err := io.ReadFull(b, buf); err != nil {
					return
				}
				time.Sleep(4 * time.Second)
			}
		}()
		began := time.Now()
		for range 20 {
			if _, err := c.Write(make([]byte, 16<<10)); err != nil {
				t.Fatalf("a slow reader: %v after %v", err, time.Since(began))
			}
		}
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("wrote for %v; the reader was not slow", took)
		}
		c.Close()
		<-read
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
		c := &conn{Conn: a}
		c.writes.timeout = 10 * time.Second
		defer c.Close()
		defer b.Close()
		time.Sleep(time.Hour) // idle before is no matter
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		began := time.Now()
		if _, err := c.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write = %v; want a timeout", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %v; want 10 s", took)
		}

		// a deadline of somebody else counts if it is earlier
		if err := c.SetWriteDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		began = time.Now()
		_, err := c.Write(make([]byte, 1))
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != 2*time.Second {
			t.Errorf("write = %v after %v; want a timeout after 2 s", err, took)
		}
	})
}
