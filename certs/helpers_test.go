package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	// Most of these tests wait for other programs more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	// certmagic keeps one rate limiter per CA and account for ever, and what
	// keeps a lock file fresh notices up to 5 s later that it is gone.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*RingBufferRateLimiter).loop"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"))
}

// newCA makes a root with an intermediate, and returns the intermediate.
func newCA(t testing.TB) *pki.CA {
	t.Helper()
	root, err := pki.NewRoot(pki.CAOptions{Name: "Test Root"})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := root.NewIntermediate(pki.CAOptions{Name: "Test Intermediate"})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t testing.TB, ca *pki.CA, r pki.Request) *tls.Certificate {
	t.Helper()
	cert, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// writePair writes cert and its key as name.crt and name.key.
func writePair(t testing.TB, dir, name string, cert *tls.Certificate) *Files {
	t.Helper()
	f := &Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := pki.WritePair(cert, f.Cert, f.Key); err != nil {
		t.Fatal(err)
	}
	return f
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func keyPEM(t testing.TB, cert *tls.Certificate) []byte {
	t.Helper()
	data, err := pki.KeyPEM(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newStore(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB, s *Store, sources ...Source) {
	t.Helper()
	set, err := s.Load(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	s.Install(set)
}

// run runs s until the test ends, or until stop is called.
func run(t testing.TB, s *Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// modern is the hello of a client that supports everything.
func modern(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		ServerName:        name,
		SupportedVersions: []uint16{tls.VersionTLS13, tls.VersionTLS12},
		SupportedProtos:   []string{"h2", "http/1.1"},
		SupportedCurves:   []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384},
		SignatureSchemes: []tls.SignatureScheme{
			tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.Ed25519,
			tls.PSSWithSHA256, tls.PKCS1WithSHA256,
		},
		CipherSuites: []uint16{
			tls.TLS_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		},
	}
}

// served returns the leaf for a name; nil if there is none.
func served(s *Store, name string) *x509.Certificate {
	cert, err := s.GetCertificate(modern(name))
	if err != nil {
		return nil
	}
	return cert.Leaf
}

func serves(s *Store, name string, want *tls.Certificate) bool {
	leaf := served(s, name)
	return leaf != nil && leaf.Equal(want.Leaf)
}

// eventually waits until cond holds; what says what it is.
func eventually(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %v: not %s", limit, what)
		}
	}
}

func keyID(cert *tls.Certificate) [32]byte {
	return sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo)
}

func countLines(text, part string) int { return strings.Count(text, part) }

type ctx = context.Context

func pkiRequest(names ...string) pki.Request { return pki.Request{Names: names} }

// allStacks is what all goroutines are doing.
func allStacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
