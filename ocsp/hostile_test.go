package ocsp

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// wrongAnswer is one thing that a hostile responder does, and how it must be
// called.
type wrongAnswer struct {
	serve http.HandlerFunc
	want  Reason
}

// fixedWorld returns a world that is the same, byte for byte, in every run: its
// keys come from fixed seeds, and Ed25519 signatures are not random.
func fixedWorld(t testing.TB) *fixed {
	return fixedWorldAt(t, time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
}

func fixedWorldAt(t testing.TB, now time.Time) *fixed {
	f := &fixed{}
	f.now = now
	f.ca, f.other = f.newCA(t, "issuer"), f.newCA(t, "other")
	f.cert = f.issue(t, f.ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{responderURL}})
	return f
}

type fixed struct {
	world
	made byte
}

func (f *fixed) key() ed25519.PrivateKey {
	f.made++
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{f.made}, ed25519.SeedSize))
}

func (f *fixed) serial(c *x509.Certificate) { c.SerialNumber = big.NewInt(1000 + int64(f.made)) }

func (f *fixed) newCA(t testing.TB, name string) *pki.CA {
	return newCA(t, pki.CAOptions{Name: name, Key: f.key(), NotBefore: f.now.Add(-1000 * time.Hour), Template: f.serial})
}

func (f *fixed) issue(t testing.TB, ca *pki.CA, r pki.Request) *tls.Certificate {
	r.Key, r.Template = f.key(), f.serial
	if r.NotBefore.IsZero() {
		r.NotBefore = f.now.Add(-24 * time.Hour)
	}
	return issue(t, ca, r)
}

func (f *fixed) delegate(t testing.TB, ca *pki.CA, r pki.Request) *tls.Certificate {
	r.CommonName, r.OCSPSigning = "ocsp signer", true
	return f.issue(t, ca, r)
}

func (f *fixed) clock() time.Time { return f.now }

func write(der []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/ocsp-response")
		_, _ = w.Write(der)
	}
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func redirect(code int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(code)
	}
}

// hang keeps the connection and says what was given, then no more.
func hang(head string, each time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, head)
		for each > 0 { // one byte at a time
			time.Sleep(each)
			if _, err := conn.Write([]byte{0x30}); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, conn) // until the client gives up
	}
}

// endless never stops sending and counts what it got rid of.
func endless(sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte{0x30}, 16<<10)
		for {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

func compressed(der []byte) http.HandlerFunc {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(der)
	_ = z.Close()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(buf.Bytes())
	}
}

// wrongAnswers are all that a responder, or whoever sits on the way to it, can
// do wrong. The responses are built once: every run sends the same bytes.
func wrongAnswers(t testing.TB, w *fixed, sent *atomic.Int64) map[string]wrongAnswer {
	good := build(t, w.good())
	changed := func(f func(*pki.ResponseSpec)) []byte {
		s := w.good()
		f(&s)
		return build(t, s)
	}
	single := func(f func(*pki.SingleSpec)) []byte { return changed(func(s *pki.ResponseSpec) { f(&s.Singles[0]) }) }
	signer := func(c *tls.Certificate) []byte { return changed(func(s *pki.ResponseSpec) { *s = signedBy(*s, c) }) }
	answers := map[string]wrongAnswer{
		"html":                 {status(200, "<html><body>Welcome to the captive portal</body></html>"), ReasonMalformed},
		"empty body":           {status(200, ""), ReasonMalformed},
		"no content":           {status(204, ""), ReasonHTTPStatus},
		"404":                  {status(404, "not here"), ReasonHTTPStatus},
		"500 with a good body": {func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(500); _, _ = rw.Write(good) }, ReasonHTTPStatus},
		"endless body":         {endless(sent), ReasonTooLarge},
		"one byte a second":    {hang("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 50*time.Millisecond), ReasonTimeout},
		"silence":              {hang("", 0), ReasonTimeout},
		"headers, no body":     {hang("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 0), ReasonTimeout},
		"half a header":        {hang("HTTP/1.1 200 OK\r\nContent-Le", 0), ReasonTimeout},
		"endless headers":      {hang("HTTP/1.1 200 OK\r\n"+strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 100), 0), ReasonNetwork},
		"not http":             {hang("SSH-2.0-OpenSSH_9.2\r\n\r\n", 0), ReasonNetwork},
		"cut off": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "5000")
			_, _ = rw.Write(good)
		}, ReasonNetwork},
		"gzip":                 {compressed(good), ReasonContentEncoding},
		"redirect loop":        {redirect(307, "?again"), ReasonRedirect},
		"redirect to file":     {redirect(302, "file:///etc/passwd"), ReasonRedirect},
		"redirect to gopher":   {redirect(308, "gopher://127.0.0.1/"), ReasonRedirect},
		"redirect to nowhere":  {redirect(302, ""), ReasonHTTPStatus},
		"truncated":            {write(good[:len(good)-1]), ReasonMalformed},
		"trailing byte":        {write(append(bytes.Clone(good), 0)), ReasonMalformed},
		"its own request":      {func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(rw, r.Body) }, ReasonMalformed},
		"wrong serial":         {write(single(func(s *pki.SingleSpec) { s.CertID.Serial = big.NewInt(4711) })), ReasonWrongCertificate},
		"serial of another CA": {write(single(func(s *pki.SingleSpec) { s.CertID.Issuer = w.other.Certificate })), ReasonWrongIssuer},
		"leaf-signed":          {write(signer(w.cert)), ReasonUnauthorizedSigner},
		"expired delegate":     {write(signer(w.delegate(t, w.ca, pki.Request{NotBefore: w.now.Add(-3 * time.Hour), NotAfter: w.now.Add(-time.Hour)}))), ReasonSignerExpired},
		"foreign delegate":     {write(signer(w.delegate(t, w.other, pki.Request{}))), ReasonUnauthorizedSigner},
		"delegate, no purpose": {write(signer(w.issue(t, w.ca, pki.Request{CommonName: "web"}))), ReasonUnauthorizedSigner},
		"wrong signature":      {write(changed(func(s *pki.ResponseSpec) { s.Signer = w.cert.PrivateKey.(crypto.Signer) })), ReasonBadSignature},
		"other responder":      {write(changed(func(s *pki.ResponseSpec) { s.Signer, s.SignerCert = w.other.Key, w.other.Certificate })), ReasonWrongResponder},
		"from the future":      {write(single(func(s *pki.SingleSpec) { s.ThisUpdate = w.now.Add(time.Hour); s.NextUpdate = w.now.Add(2 * time.Hour) })), ReasonNotYetValid},
		"from the year 9999":   {write(single(func(s *pki.SingleSpec) { s.ThisUpdate = farFuture; s.NextUpdate = farFuture })), ReasonNotYetValid},
		"expired": {write(single(func(s *pki.SingleSpec) {
			s.ThisUpdate = w.now.Add(-9 * time.Hour)
			s.NextUpdate = w.now.Add(-time.Hour)
		})), ReasonExpired},
		"about to expire": {write(single(func(s *pki.SingleSpec) {
			s.ThisUpdate = w.now.Add(-9 * time.Hour)
			s.NextUpdate = w.now.Add(3 * time.Minute)
		})), ReasonExpired},
		"unknown":      {write(single(func(s *pki.SingleSpec) { s.Status = pki.Unknown })), ResultUnknown},
		"never issued": {write(single(func(s *pki.SingleSpec) { s.Status = pki.Revoked; s.RevokedAt = time.Unix(0, 0); s.Reason = 6 })), ResultUnknown},
		"revoked":      {write(single(func(s *pki.SingleSpec) { s.Status = pki.Revoked; s.RevokedAt = w.now })), ResultRevoked},
	}
	for code, reason := range map[int]Reason{
		1: ReasonMalformedRequest, 2: ReasonInternalError, 3: ReasonTryLater, 4: ReasonBadStatus, 5: ReasonSigRequired, 6: ReasonUnauthorized, 99: ReasonBadStatus,
	} {
		answers[fmt.Sprintf("status %d", code)] = wrongAnswer{write(build(t, pki.ResponseSpec{ResponseStatus: code})), reason}
	}
	return answers
}

var farFuture = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// None of a hostile responder's answers is ever stapled, each is named, and
// none costs more than a bounded time and memory.
func TestHostileResponder(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	w := fixedWorld(t)
	var sent atomic.Int64
	answers := wrongAnswers(t, w, &sent)
	for name, answer := range answers {
		path := "/" + strings.ReplaceAll(name, " ", "-")
		mux.HandleFunc(path+"/", answer.serve)
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			url := server.URL + "/" + strings.ReplaceAll(name, " ", "-") + "/"
			timeout := 20 * time.Second // not to be mistaken for the answer on a busy machine
			if answer.want == ReasonTimeout {
				timeout = 300 * time.Millisecond
			}
			s, err := New(Options{
				Timeout: timeout, Now: w.clock, Logger: testLogger(t), StateDir: t.TempDir(),
				Overrides: map[string]string{responderURL: url},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.fetcher.client.CloseIdleConnections()
			if err := s.Prepare(t.Context(), w.cert); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			s.refresh(t.Context(), s.list()[0])
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
				t.Errorf("allocated %d bytes", used)
			}
			if s.served(t, w.cert) != nil {
				t.Error("stapled")
			}
			got := s.statusOf(t, "a.test")
			if got.LastResult != answer.want {
				t.Errorf("result = %s (%s); want %s", got.LastResult, got.LastError, answer.want)
			}
			if s.Stats().Fetches[answer.want] == 0 {
				t.Errorf("not counted: %v", s.Stats().Fetches)
			}
			if answer.want != ResultRevoked && (got.LastError == "" || len(got.LastError) > 500) {
				t.Errorf("words for it: %q", got.LastError)
			}
			t.Log(got.LastError)
		})
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were taken from an endless body", n)
	}
}

// A hostile responder does not get rid of what is held, either.
func TestHostileResponderAfterGood(t *testing.T) {
	w := fixedWorld(t)
	held := build(t, w.good())
	for name, answer := range wrongAnswers(t, w, new(atomic.Int64)) {
		if answer.want == ResultRevoked || answer.want == ReasonTimeout || answer.want == ReasonNetwork || answer.want == ReasonTooLarge {
			continue // one must end it, the others need sockets and are in the test above
		}
		s, err := New(Options{Now: w.clock, Logger: testLogger(t), Transport: localTransport{answer.serve}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prepare(t.Context(), w.cert); err != nil {
			t.Fatal(err)
		}
		e := s.list()[0]
		r, err := Verify(held, w.cert.Leaf, w.ca.Certificate, w.now)
		if err != nil || !s.accept(e, r, w.now) {
			t.Fatal(err)
		}
		e.mu.Lock()
		e.next = w.now
		e.mu.Unlock()
		s.refresh(t.Context(), e)
		if !bytes.Equal(s.served(t, w.cert), held) {
			t.Errorf("%s: the good response is no longer stapled", name)
		}
	}
}

// Handshakes do not wait for a responder that does not answer.
func TestHandshakesNeverWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and that is all
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ca := newCA(t, pki.CAOptions{})
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{"http://" + listener.Addr().String()}})
	s, err := New(Options{Timeout: time.Hour, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	defer stop()
	if err := s.Prepare(t.Context(), cert); err != nil {
		t.Fatal(err)
	}
	server := tlsServer(t, s, cert)
	for range 20 {
		// One that waited would run into the deadline of the test.
		if handshake(t, server, ca, "a.test").OCSPResponse != nil {
			t.Error("stapled")
		}
	}
}
