package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

// Every way to fail that a client can choose is made to happen, so that each
// keeps its reason, also those that crypto/tls tells in words only.
func TestFailureReasons(t *testing.T) {
	pki := newMatrixPKI(t)
	client := func(name string, edit func(*tls.Config)) func(*rig) {
		return func(r *rig) {
			c := r.client(name, 0, nil)
			c.MinVersion = tls.VersionTLS12
			if edit != nil {
				edit(c)
			}
			_, _, _ = r.visit(c)
		}
	}
	raw := func(data string) func(*rig) {
		return func(r *rig) {
			c := r.dial()
			_, _ = c.Write([]byte(data))
			_ = c.(*memnet.Conn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}
	clientCert := func(id *identity) func(*tls.Config) {
		return func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return id.tls(), nil }
		}
	}
	tests := []struct {
		name   string
		do     func(*rig)
		want   Reason
		policy PolicyOptions
	}{
		{"closes at once", raw(""), ReasonEOF, PolicyOptions{}},
		{"closes in the hello", raw("\x16\x03\x01\x02\x00\x01\x00"), ReasonEOF, PolicyOptions{}},
		{"resets", func(r *rig) { r.dial().(*memnet.Conn).Reset() }, ReasonEOF, PolicyOptions{}},
		{"plain HTTP", raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ReasonPlainHTTP, PolicyOptions{}},
		{"plain HTTP/2", raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ReasonPlainHTTP, PolicyOptions{}},
		{"not TLS", raw("SSH-2.0-OpenSSH_9.9\r\n"), ReasonBadRecord, PolicyOptions{}},
		{"zeros", raw(strings.Repeat("\x00", 64)), ReasonBadRecord, PolicyOptions{}},
		{"PROXY header", raw("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n"), ReasonProxyHeader, PolicyOptions{}},
		{"no hello but an alert", raw("\x15\x03\x01\x00\x02\x02\x28"), ReasonClientAlert, PolicyOptions{}},
		{"a hello of nonsense", raw("\x16\x03\x01\x00\x05\x01\x00\x00\x01\xff"), ReasonProtocol, PolicyOptions{}},
		{"TLS 1.1", client("app.example", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), ReasonNoSharedVersion, PolicyOptions{}},
		{"TLS 1.2 where 1.3 is asked", client("app.example", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), ReasonNoSharedVersion, PolicyOptions{MinVersion: tls.VersionTLS13}},
		{"no cipher suite", client("app.example", func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
		}), ReasonNoSharedCipher, PolicyOptions{}},
		{"no curve, 1.2", client("app.example", func(c *tls.Config) {
			c.MaxVersion, c.CurvePreferences = tls.VersionTLS12, []tls.CurveID{tls.CurveP521}
		}), ReasonNoSharedCipher, PolicyOptions{Curves: []tls.CurveID{tls.X25519}}},
		{"no curve, 1.3", client("app.example", func(c *tls.Config) {
			c.MinVersion, c.CurvePreferences = tls.VersionTLS13, []tls.CurveID{tls.CurveP521}
		}), ReasonNoSharedCipher, PolicyOptions{Curves: []tls.CurveID{tls.X25519}}},
		{"no protocol", client("app.example", func(c *tls.Config) { c.NextProtos = []string{"spdy/1"} }), ReasonNoSharedALPN, PolicyOptions{}},
		{"h2 where it is off", client("app.example", func(c *tls.Config) { c.NextProtos = []string{"h2"} }), ReasonNoSharedALPN, PolicyOptions{DisableHTTP2: true}},
		{"unknown name", client("nobody.test", nil), ReasonUnknownSNI, PolicyOptions{}},
		{"no name", client("192.0.2.1", func(c *tls.Config) { c.InsecureSkipVerify = true }), ReasonUnknownSNI, PolicyOptions{}},
		{"no certificate", client("app.example", nil), ReasonNoCertificate, PolicyOptions{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }, Keys: func(string) [][32]byte { return nil },
		}},
		{"certificate fails", client("app.example", nil), ReasonNoCertificate, PolicyOptions{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("x") }, Keys: func(string) [][32]byte { return nil },
		}},
		{"panic", client("app.example", nil), ReasonInternal, PolicyOptions{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("x") }, Keys: func(string) [][32]byte { return nil },
		}},
		{"no signature algorithm", client("app.example", nil), ReasonNoSharedCipher, ed25519Policy(t, pki.serverCA)},
		{"client does not trust us, 1.2", client("app.example", func(c *tls.Config) { c.RootCAs, c.MaxVersion = pki.otherCA.pool(), tls.VersionTLS12 }), ReasonClientAlert, PolicyOptions{}},
		{"client does not trust us, 1.3", client("app.example", func(c *tls.Config) { c.RootCAs = pki.otherCA.pool() }), ReasonClientAlert, PolicyOptions{}},
		{"no client certificate", client("app.example", nil), ReasonCertMissing, authPolicy(t, pki, clientauth.Options{})},
		{"foreign client certificate", client("app.example", clientCert(newClient(t, pki.otherCA, "eve"))), ReasonCertInvalid, authPolicy(t, pki, clientauth.Options{})},
		{"client certificate not on the list", client("app.example", clientCert(newClient(t, pki.clientCA, "eve"))), ReasonCertDenied, authPolicy(t, pki, clientauth.Options{Allow: []string{"cn:ann"}})},
		{"client certificate proves nothing", client("app.example", clientCert(&identity{cert: newClient(t, pki.clientCA, "eve").cert, key: newKey(t)})), ReasonCertInvalid, authPolicy(t, pki, clientauth.Options{})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
				test.policy.Site = "app"
				return []ListenerOptions{{Address: listenAddr, Table: r.table(nil, Site{Hosts: []string{"app.example"}, Policy: r.policy(test.policy)})}}
			}})
			test.do(r)
			if got := r.waitFailure(); got != test.want {
				t.Errorf("reason %s (%v); want %s", got, r.observer.events[0].Err, test.want)
			}
			if n := r.front.Stats().Failures[test.want]; n != 1 {
				t.Errorf("counted %d times; want once", n)
			}
			if len(r.observer.reasons()) != 1 {
				t.Errorf("events %q; want one", r.observer.reasons())
			}
		})
	}
}

// A name without a certificate is the client's to hear of as such, not as a
// fault of the server.
func TestNoCertificateIsUnrecognizedName(t *testing.T) {
	pki := newMatrixPKI(t)
	for name, get := range map[string]func(*tls.ClientHelloInfo) (*tls.Certificate, error){
		"none":  func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil },
		"fails": func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("x") },
	} {
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			policy := r.policy(PolicyOptions{Site: "app", GetCertificate: get, Keys: func(string) [][32]byte { return nil }})
			return []ListenerOptions{{Address: listenAddr, Table: r.table(nil, Site{Hosts: []string{"app.example"}, Policy: policy})}}
		}})
		_, _, err := r.visit(r.client("app.example", 0, nil))
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: the client sees %v; want the alert unrecognized_name", name, err)
		}
	}
}

func authPolicy(t *testing.T, pki *matrixPKI, o clientauth.Options) PolicyOptions {
	o.Mode, o.CAFiles = clientauth.Require, []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())}
	return PolicyOptions{ClientAuth: verifier(t, o)}
}

// ed25519Policy serves a certificate whose signatures the clients of the test
// are told not to accept, by being certificates only a version too old.
func ed25519Policy(t *testing.T, ca *identity) PolicyOptions {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := newServer(t, ca, key, "app.example").tls()
	cert.SupportedSignatureAlgorithms = []tls.SignatureScheme{tls.PKCS1WithSHA1}
	return PolicyOptions{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil },
		Keys:           func(string) [][32]byte { return nil },
	}
}

func TestReasonOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Reason
	}{
		{os.ErrDeadlineExceeded, ReasonTimeout},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), ReasonTimeout},
		{syscall.ECONNRESET, ReasonEOF},
		{syscall.EPIPE, ReasonEOF},
		{io.ErrUnexpectedEOF, ReasonEOF},
		{errors.New("tls: something new"), ReasonProtocol},
		{errors.New("something else"), ReasonOther},
		{fail(ReasonRateLimited, errors.New("x")), ReasonRateLimited},
		{toldError("client_cert_revoked"), ReasonCertRevoked},
		{toldError("whatever a client likes"), ReasonOther},
		{toldError("timeout"), ReasonOther}, // not a verifier's to say
	} {
		if got := reasonOf(test.err); got != test.want {
			t.Errorf("reasonOf(%v) = %s; want %s", test.err, got, test.want)
		}
	}
}

type toldError string

func (e toldError) Error() string           { return "told" }
func (e toldError) HandshakeReason() string { return string(e) }

func TestReasonsAreAllCounted(t *testing.T) {
	failures := newCounters().snapshot().Failures
	if len(failures) != len(Reasons()) {
		t.Errorf("%d counters for %d reasons", len(failures), len(Reasons()))
	}
	for _, r := range Reasons() {
		if _, ok := failures[r]; !ok || r == "" {
			t.Errorf("reason %q has no counter", r)
		}
	}
	if all := Reasons(); len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Error("a reason is listed twice")
	}
}

func TestPlainHTTPIsAnswered(t *testing.T) {
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: app.example\r\n\r\n",
		"POST /form HTTP/1.1\r\nHost: app.example\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000),
		"OPTIONS * HTTP/1.1\r\nHost: app.example\r\n\r\n",
	} {
		r := newRig(t, rigOptions{})
		c := r.dial()
		go func() { _, _ = c.Write([]byte(request)) }()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%.20q: %v", request, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 400 || !res.Close || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") ||
			!strings.Contains(string(body), "https://") {
			t.Errorf("%.20q: status %d, %q, %v", request, res.StatusCode, body, err)
		}
		c.Close()
	}
}

func TestLooksLikeHTTP(t *testing.T) {
	for first, want := range map[string]bool{
		"GET /": true, "GET /x": true, "HEAD ": true, "POST ": true, "PUT /": true, "DELET": true, "CONNE": true, "OPTIO": true,
		"TRACE": true, "PATCH": true, "PRI *": true, "GETX/": false, "\x16\x03\x01\x00\x05": false, "SSH-2": false, "PROXY": false, "": false, "GE": false,
	} {
		if got := looksLikeHTTP([]byte(first)); got != want {
			t.Errorf("looksLikeHTTP(%q) = %v; want %v", first, got, want)
		}
	}
}

// A client that is refused gets its alert, even with data of its own under way
// that nobody will read.
func TestAlertArrives(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		for name, want := range map[string]string{"nobody.test": "unrecognized name", "app.example": ""} {
			r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
				return []ListenerOptions{{Address: listenAddr, Table: r.table(nil,
					Site{Hosts: []string{"app.example"}, Policy: r.policy(authPolicy(t, pki, clientauth.Options{}))})}}
			}})
			raw := r.dial()
			c := tls.Client(raw, r.client(name, version, nil))
			err := c.Handshake()
			if err == nil {
				_, _ = c.Write(bytes.Repeat([]byte("x"), 1000))
				_, err = c.Read(make([]byte, 1))
			}
			if alert := alertOf(err); alert == "" || want != "" && alert != want {
				t.Errorf("%s: %v; want an alert %q", name, err, want)
			}
			raw.Close()
		}
	})
}

// A client that says nothing, or says its hello a byte at a time, is not waited
// for longer than the handshake's timeout.
func TestHandshakeDeadline(t *testing.T) {
	pki := newMatrixPKI(t)
	hello := clientHello(t)
	for name, drip := range map[string]bool{"silent": false, "drip": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server})
				began := time.Now()
				raw := r.dial()
				defer raw.Close()
				if drip {
					go func() {
						for _, b := range hello {
							if _, err := raw.Write([]byte{b}); err != nil {
								return
							}
							time.Sleep(time.Second)
						}
					}()
				}
				if _, err := raw.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("read = %v; want the connection closed", err)
				}
				if took := time.Since(began); took != DefaultHandshakeTimeout {
					t.Errorf("closed after %v; want %v", took, DefaultHandshakeTimeout)
				}
				synctest.Wait()
				if got := r.observer.reasons(); len(got) != 1 || got[0] != ReasonTimeout {
					t.Errorf("reasons %q", got)
				}
				time.Sleep(time.Minute) // the drip notices
			})
		})
	}
}

// Waiting for a certificate is bounded by the same timeout: the context of the
// hello ends.
func TestHandshakeDeadlineOfCallbacks(t *testing.T) {
	pki := newMatrixPKI(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{
				GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
					<-hello.Context().Done()
					return nil, hello.Context().Err()
				},
				Keys: func(string) [][32]byte { return nil },
			}))}}
		}, limits: Limits{HandshakeTimeout: 4 * time.Second}})
		began := time.Now()
		if _, _, err := r.visit(r.client("app.example", tls.VersionTLS13, nil)); err == nil {
			t.Error("the handshake succeeded")
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %v; want 4 s", took)
		}
	})
}
