package ocsp

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// run runs s until the returned function is called.
func run(t testing.TB, s *Stapler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		s.fetcher.client.CloseIdleConnections()
	}
}

// tlsServer serves cert, stapled by s, and ends with the test.
func tlsServer(t testing.TB, s *Stapler, cert *tls.Certificate) string {
	t.Helper()
	config := &tls.Config{GetCertificate: s.GetCertificate(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serveOne(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func serveOne(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = conn.Read(make([]byte, 1)) // handshakes, and waits for the client to close
}

// handshake connects and returns what a client sees.
func handshake(t testing.TB, addr string, ca *pki.CA, name string) tls.ConnectionState {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: name, RootCAs: ca.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState()
}
