package front

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"
)

// BenchmarkConnection is a whole connection in memory, client included: compare
// "front" with "bare", which is crypto/tls alone with the same client.
func BenchmarkConnection(b *testing.B) {
	for _, version := range versions {
		for _, kind := range []string{"full", "resumed"} {
			b.Run("front/"+kind+"/"+versionLabel(version), func(b *testing.B) {
				r := newRig(b, rigOptions{})
				r.server.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
				var cache tls.ClientSessionCache
				if kind == "resumed" {
					cache = tls.NewLRUClientSessionCache(1)
				}
				config := r.client("app.example", version, cache)
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := r.visit(config); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("bare/"+kind+"/"+versionLabel(version), func(b *testing.B) { benchBare(b, version, kind) })
		}
	}
}

func benchBare(b *testing.B, version uint16, kind string) {
	r := newRig(b, rigOptions{noStart: true})
	config := &tls.Config{GetCertificate: r.certs.getCertificate, NextProtos: []string{"h2", "http/1.1"}, CipherSuites: defaultCipherSuites()}
	ln, err := r.network.Listen("tcp", otherAddr)
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(tls.NewListener(ln, config))
	}()
	defer func() { server.Close(); <-done }()
	var cache tls.ClientSessionCache
	if kind == "resumed" {
		cache = tls.NewLRUClientSessionCache(1)
	}
	client := r.client("app.example", version, cache)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := visitOver(r.dialFrom(clientAddr, otherAddr), client); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWrite is what the wrapper under TLS adds to a write.
func BenchmarkWrite(b *testing.B) {
	r := newRig(b, rigOptions{})
	c := r.hold(clientAddr)
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	own := &conn{Conn: discardConn{c}}
	own.writes.timeout = DefaultWriteTimeout
	p := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = own.Write(p)
	}
}

// discardConn writes nowhere.
type discardConn struct{ *tls.Conn }

func (discardConn) Write(p []byte) (int, error) { return len(p), nil }
