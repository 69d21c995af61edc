package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial makes a connection and gives both ends.
func dial(t *testing.T) (client, server *Conn) {
	t.Helper()
	var n Network
	ln, err := n.Listen("tcp", "192.0.2.1:443")
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.DialFrom(t.Context(), "203.0.113.7:5000", "192.0.2.1:443")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close(); ln.Close() })
	return c.(*Conn), s.(*Conn)
}

func TestAddresses(t *testing.T) {
	c, s := dial(t)
	for got, want := range map[net.Addr]string{
		c.LocalAddr(): "203.0.113.7:5000", c.RemoteAddr(): "192.0.2.1:443",
		s.LocalAddr(): "192.0.2.1:443", s.RemoteAddr(): "203.0.113.7:5000",
	} {
		if got.String() != want {
			t.Errorf("address %v; want %s", got, want)
		}
		if _, ok := got.(*net.TCPAddr); !ok {
			t.Errorf("address is a %T; want *net.TCPAddr", got)
		}
	}
}

func TestBytesArriveBeforeTheEnd(t *testing.T) {
	c, s := dial(t)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	if string(got) != "hello" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after CloseWrite = %v", err)
	}
	// the other direction still works
	if _, err := s.Write([]byte("bye")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := c.in.write([]byte("x")); err == nil {
		t.Error("a closed end writes")
	}
}

func TestClosedPeer(t *testing.T) {
	c, s := dial(t)
	s.Close()
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write to a closed peer = %v; want EPIPE", err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read from a closed peer = %v; want EOF", err)
	}
	if err := s.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close = %v", err)
	}
	if err := s.SetReadDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SetReadDeadline after Close = %v", err)
	}
}

func TestReset(t *testing.T) {
	c, s := dial(t)
	if _, err := s.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	if _, err := c.Read(make([]byte, 8)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after a reset = %v; want ECONNRESET", err)
	}
}

func TestLargeTransfer(t *testing.T) {
	c, s := dial(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB, far above the buffer
	go func() {
		_, _ = c.Write(sent)
		c.Close()
	}()
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("received %d bytes, %v; want the %d sent", len(got), err, len(sent))
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := Pipe(&net.TCPAddr{}, &net.TCPAddr{})
		defer c.Close()
		defer s.Close()
		began := time.Now()
		if err := c.SetReadDeadline(began.Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 1))
		if nerr, ok := errors.AsType[net.Error](err); !errors.Is(err, os.ErrDeadlineExceeded) || !ok || !nerr.Timeout() {
			t.Errorf("read = %v; want a timeout", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("read took %v; want 3 s", took)
		}

		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write(make([]byte, streamSize+1)); n != streamSize || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write = %d, %v; want %d and a timeout", n, err, streamSize)
		}

		// moving the deadline lets a blocked read live on
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(500 * time.Millisecond)
			_ = c.SetReadDeadline(time.Time{})
			time.Sleep(time.Hour)
			_, _ = s.Write([]byte("x"))
		}()
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("read = %v after the deadline was removed", err)
		}
		if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read past the deadline = %v", err)
		}
	})
}

func TestListenAndDialErrors(t *testing.T) {
	var n Network
	ln, err := n.Listen("tcp", "192.0.2.1:443")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("tcp", "192.0.2.1:443"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second Listen = %v; want EADDRINUSE", err)
	}
	if _, err := n.Listen("udp", "192.0.2.1:443"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Listen on udp = %v", err)
	}
	if _, err := n.Listen("tcp", "localhost:443"); err == nil {
		t.Error("a name is accepted")
	}
	if _, err := n.Dial("tcp", "192.0.2.1:444"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial = %v; want ECONNREFUSED", err)
	}
	free, err := n.Listen("tcp", "192.0.2.1:0")
	if err != nil || free.Addr().(*net.TCPAddr).Port == 0 {
		t.Errorf("Listen on port 0 = %v, %v", free, err)
	}

	// connections that nobody accepted are reset with the listener
	c, err := n.Dial("tcp", "192.0.2.1:443")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read = %v; want ECONNRESET", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v", err)
	}
	again, err := n.Listen("tcp", "192.0.2.1:443")
	if err != nil {
		t.Errorf("the address is not free after Close: %v", err)
	}
	again.FailAccept(syscall.EMFILE)
	if _, err := again.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Accept = %v; want EMFILE", err)
	}
}

func TestDialWaitsForTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n Network
		ln, err := n.Listen("tcp", "192.0.2.1:443")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		for range backlog {
			if _, err := n.Dial("tcp", "192.0.2.1:443"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.DialContext(ctx, "tcp", "192.0.2.1:443"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial = %v; want the context's end", err)
		}
	})
}
