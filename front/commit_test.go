package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

// tap is a connection that keeps what is written to it, and may stop reading
// the peer after a number of reads.
type tap struct {
	net.Conn
	mu      sync.Mutex
	written bytes.Buffer
	cut     bool // swallow everything after the first write
}

func (c *tap) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.written.Len() == 0
	c.written.Write(p)
	if c.cut && !first {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *tap) hello() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.written.Bytes())
}

// A client that says hello and leaves, even after it was given a ticket in the
// server's first flight, has stored nothing.
func TestUnfinishedHandshakesStoreNothing(t *testing.T) {
	forVersions(t, func(t *testing.T, version uint16) {
		r := newRig(t, rigOptions{})
		for i := range 5 {
			raw := r.dial()
			c := tls.Client(&tap{Conn: raw, cut: true}, r.client("app.example", version, nil)) // its Finished never arrives
			if err := raw.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			err := c.Handshake()
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err == nil {
				t.Fatal("the handshake came to its end")
			}
			raw.Close()
			testtool.Eventually(t, "the handshake to fail", func() bool { return len(r.observer.reasons()) == i+1 })
		}
		if s := r.sessions.Stats(); s.Entries != 0 || s.Stored != 0 {
			t.Errorf("stored %d sessions, %d held", s.Stored, s.Entries)
		}
		r.mustVisit(r.client("app.example", version, &anyName{}))
		if s := r.sessions.Stats(); s.Entries != 1 {
			t.Errorf("%d sessions held after a whole handshake", s.Entries)
		}
	})
}

// An eavesdropper who replays a client's hello, which has its handle in clear,
// takes nothing from the client.
func TestReplayedHelloTakesNothingAway(t *testing.T) {
	for _, reuse := range []time.Duration{0, session.SingleUse, session.Unlimited} {
		forVersions(t, func(t *testing.T, version uint16) {
			r := newRig(t, rigOptions{sessions: session.Options{Limits: session.Limits{ReuseWindow: reuse}}})
			cache := &anyName{}
			r.mustVisit(r.client("app.example", version, cache))
			held := r.sessions.Stats().Entries

			// The client's hello is caught and goes no further.
			cache.hold = true
			nowhere, end := net.Pipe()
			caught := &tap{Conn: nowhere}
			go func() {
				_, _ = end.Read(make([]byte, 4096))
				end.Close()
			}()
			_ = tls.Client(caught, r.client("app.example", version, cache)).Handshake()

			for i := range 3 {
				raw := r.dial()
				if _, err := raw.Write(caught.hello()); err != nil {
					t.Fatal(err)
				}
				if err := raw.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				_, _ = raw.Read(make([]byte, 1)) // the server has read it and answers
				raw.Close()
				testtool.Eventually(t, "the replay to fail", func() bool { return len(r.observer.reasons()) == i+2 })
			}
			if now := r.sessions.Stats().Entries; now != held {
				t.Errorf("%d sessions held; want %d as before", now, held)
			}
			_, body := r.mustVisit(r.client("app.example", version, cache))
			wantWords(t, body, "resumed=true")
		})
	}
}

// authorizer is a ClientAuth whose last word comes after the handshake.
type authorizer struct {
	ClientAuth
	authorize func() error
}

func (a *authorizer) Authorize(_ context.Context, _ tls.ConnectionState) error { return a.authorize() }

// What fails after the handshake leaves no session behind, and HTTP sees nothing
// of the connection.
func TestRefusedAfterTheHandshake(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		inner := verifier(t, clientauth.Options{Mode: clientauth.Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())}})
		auth := &authorizer{ClientAuth: inner, authorize: func() error { return nil }}
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "app", ClientAuth: auth}))}}
		}})
		config := r.client("app.example", version, &anyName{})
		config.Certificates = []tls.Certificate{*pki.client.tls()}

		auth.authorize = func() error {
			return &clientauth.Error{Reason: clientauth.Revoked, Err: errors.New("says the responder")}
		}
		if _, body, err := r.visit(config); err == nil {
			t.Errorf("answer %q; want none", body)
		}
		if s := r.sessions.Stats(); s.Stored != 0 {
			t.Errorf("stored %d sessions", s.Stored)
		}
		auth.authorize = func() error { return nil }
		_, body := r.mustVisit(config)
		wantWords(t, body, "resumed=false")
		_, body = r.mustVisit(config)
		wantWords(t, body, "resumed=true")

		auth.authorize = func() error { return errors.New("on a resumed one too") }
		if _, body, err := r.visit(config); err == nil {
			t.Errorf("answer %q on a resumed connection; want none", body)
		}
		if got := r.observer.reasons(); len(got) != 4 || got[0] != ReasonCertRevoked || got[3] != ReasonOther {
			t.Errorf("reasons %q", got)
		}
	})
}

// A session that is revoked while a connection resumes it does not get through.
func TestRevocationDuringAHandshake(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		inner := verifier(t, clientauth.Options{Mode: clientauth.Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())}})
		auth := &authorizer{ClientAuth: inner, authorize: func() error { return nil }}
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "app", ClientAuth: auth}))}}
		}})
		config := r.client("app.example", version, &anyName{})
		config.Certificates = []tls.Certificate{*pki.client.tls()}
		r.mustVisit(config)

		auth.authorize = func() error {
			return r.sessions.Revoke(t.Context(), session.CertificateSubject(pki.client.cert))
		}
		if _, body, err := r.visit(config); err == nil {
			t.Errorf("answer %q; want none", body)
		}
		if got := r.waitFailure(); got != ReasonSessionRevoked {
			t.Errorf("reason %s", got)
		}
		auth.authorize = func() error { return nil }
		_, body := r.mustVisit(config) // the client itself is welcome
		wantWords(t, body, "resumed=false", "client=ann.example")
	})
}
