package front

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/session"
)

// A client whose certificate was replaced goes on as who it was while its
// session lasts: a resumption says nothing of certificates. When the old
// certificate is revoked, the session is refused once and gone, so that the
// client, which may offer it for ever, can show its new certificate.
func TestRevokedSessionOfAClientWithANewCertificate(t *testing.T) {
	pki := newMatrixPKI(t)
	second := newClient(t, pki.clientCA, "ann2.example")
	forVersions(t, func(t *testing.T, version uint16) {
		dir := t.TempDir()
		write(t, dir, "ca.crl", emptyCRL(t, pki.clientCA))
		v := verifier(t, clientauth.Options{
			Site: "app", Mode: clientauth.Require,
			CAFiles: []string{write(t, dir, "ca.pem", pki.clientCA.pem())}, CRLFiles: []string{dir + "/ca.crl"},
		})
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "app", ClientAuth: v}))}}
		}})
		cache := &anyName{}
		config := r.client("app.example", version, cache)
		config.Certificates = []tls.Certificate{*pki.client.tls()}
		r.mustVisit(config)
		cache.hold = true

		config = config.Clone()
		config.Certificates = []tls.Certificate{*second.tls()}
		_, body := r.mustVisit(config)
		wantWords(t, body, "resumed=true", "client=ann.example")

		write(t, dir, "ca.crl", emptyCRL(t, pki.clientCA, pki.client))
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		before := r.sessions.Stats().Lookups
		if _, _, err := r.visit(config); alertOf(err) == "" {
			t.Errorf("the session of a revoked certificate: %v; want an alert", err)
		}
		if got := r.waitFailure(); got != ReasonCertRevoked {
			t.Errorf("reason %s", got)
		}
		after := r.sessions.Stats().Lookups
		if hits := after[session.Hit] - before[session.Hit]; hits != 1 || after[session.Declined] != before[session.Declined] {
			t.Errorf("the lookup of the refused connection was counted as %d hits and %d declined; crypto/tls did resume it",
				hits, after[session.Declined]-before[session.Declined])
		}
		_, body = r.mustVisit(config)
		wantWords(t, body, "resumed=false", "session=absent", "client=ann2.example")
	})
}

// The same where the check after the handshake refuses.
func TestRefusalAfterTheHandshakeEndsTheSession(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		inner := verifier(t, clientauth.Options{Mode: clientauth.Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())}})
		auth := &authorizer{ClientAuth: inner, authorize: func() error { return nil }}
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "app", ClientAuth: auth}))}}
		}})
		cache := &anyName{}
		config := r.client("app.example", version, cache)
		config.Certificates = []tls.Certificate{*pki.client.tls()}
		r.mustVisit(config)
		cache.hold = true
		auth.authorize = func() error { return errors.New("no") }
		if _, body, err := r.visit(config); err == nil {
			t.Errorf("answer %q; want none", body)
		}
		r.waitFailure()
		auth.authorize = func() error { return nil }
		_, body := r.mustVisit(config)
		wantWords(t, body, "resumed=false", "session=absent")
	})
}
