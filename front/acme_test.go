package front

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"slices"
	"testing"

	"github.com/tlsproxy/tlsproxy/clientauth"
)

// acmeRig has a site that requires client certificates, and a challenge
// certificate that is served to whoever picks certificates by acme-tls/1.
func acmeRig(t *testing.T, reject bool) (*rig, *identity) {
	t.Helper()
	pki := newMatrixPKI(t)
	challenge := newServer(t, pki.serverCA, newKey(t), "app.example", "challenge.invalid")
	r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
		get := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if slices.Contains(hello.SupportedProtos, acmeProtocol) {
				return challenge.tls(), nil
			}
			return r.certs.getCertificate(hello)
		}
		v := verifier(t, clientauth.Options{Mode: clientauth.Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())}})
		o := TableOptions{
			Sites: []Site{{Hosts: []string{"app.example"}, Policy: r.policy(PolicyOptions{
				Site: "app", ClientAuth: v, GetCertificate: get, Keys: r.certs.keys,
			})}},
			ACMECertificate: get, RejectUnknownSNI: reject,
		}
		if !reject {
			o.Default = r.policy(PolicyOptions{Site: "default", GetCertificate: get, Keys: r.certs.keys})
		}
		table, err := NewTable(o)
		if err != nil {
			t.Fatal(err)
		}
		return []ListenerOptions{{Address: listenAddr, Table: table}}
	}})
	return r, challenge
}

func TestACMEChallenge(t *testing.T) {
	for _, reject := range []bool{false, true} {
		for _, name := range []string{"app.example", "nobody.test"} { // a site with client certificates, and none
			forVersions(t, func(t *testing.T, version uint16) {
				r, challenge := acmeRig(t, reject)
				cache := &anyName{}
				config := r.client(name, version, cache)
				config.NextProtos = []string{acmeProtocol}
				config.InsecureSkipVerify = true
				raw := r.dial()
				defer raw.Close()
				c := tls.Client(raw, config)
				if err := c.Handshake(); err != nil {
					t.Fatal(err)
				}
				state := c.ConnectionState()
				if state.NegotiatedProtocol != acmeProtocol || !state.PeerCertificates[0].Equal(challenge.cert) {
					t.Errorf("protocol %q, certificate %q", state.NegotiatedProtocol, state.PeerCertificates[0].Subject)
				}
				if _, err := c.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("read = %v; want the connection closed", err)
				}
				if cache.last != nil {
					t.Error("a ticket was sent")
				}
				if s := r.front.Stats(); s.Challenges != 1 || s.Handshakes["1.2"]+s.Handshakes["1.3"] != 0 {
					t.Errorf("stats = %+v", s)
				}
				if n := len(r.observer.reasons()); n != 0 {
					t.Errorf("the observer was told of %d handshakes", n)
				}
			})
		}
	}
}

// acme-tls/1 among other protocols gets nobody round the client certificate,
// nor a challenge's certificate.
func TestACMEAmongOthersChangesNothing(t *testing.T) {
	for _, protos := range [][]string{{acmeProtocol, "h2"}, {"h2", acmeProtocol}, {"http/1.1", acmeProtocol}, {acmeProtocol, acmeProtocol, "http/1.1"}} {
		forVersions(t, func(t *testing.T, version uint16) {
			r, challenge := acmeRig(t, false)
			config := r.client("app.example", version, nil)
			config.NextProtos = protos
			var seen []*x509.Certificate
			config.VerifyConnection = func(cs tls.ConnectionState) error {
				seen = cs.PeerCertificates
				if cs.NegotiatedProtocol == acmeProtocol {
					t.Error("acme-tls/1 was negotiated")
				}
				return nil
			}
			if _, _, err := r.visit(config); alertOf(err) == "" {
				t.Errorf("%q: %v; want an alert for want of a certificate", protos, err)
			}
			if len(seen) == 0 || seen[0].Equal(challenge.cert) {
				t.Errorf("%q: the challenge's certificate was served", protos)
			}
			if got := r.waitFailure(); got != ReasonCertMissing {
				t.Errorf("reason %s", got)
			}
		})
	}
}

// Twice the same protocol is not "alone": whoever sends it is no ACME server.
func TestACMEOnly(t *testing.T) {
	for _, test := range []struct {
		protos []string
		want   bool
	}{
		{nil, false}, {[]string{"acme-tls/1"}, true}, {[]string{"ACME-TLS/1"}, false},
		{[]string{"acme-tls/1", "acme-tls/1"}, false}, {[]string{"acme-tls/1", "h2"}, false}, {[]string{"h2"}, false},
	} {
		if got := acmeOnly(test.protos); got != test.want {
			t.Errorf("acmeOnly(%q) = %v; want %v", test.protos, got, test.want)
		}
	}
}

// Without somebody to answer challenges, such a hello is one of a client with no
// protocol in common.
func TestACMEWithoutAnswerer(t *testing.T) {
	r := newRig(t, rigOptions{})
	config := r.client("app.example", tls.VersionTLS13, nil)
	config.NextProtos = []string{acmeProtocol}
	if _, _, err := r.visit(config); alertOf(err) != "no application protocol" {
		t.Errorf("visit = %v; want the alert no_application_protocol", err)
	}
	if got := r.waitFailure(); got != ReasonNoSharedALPN {
		t.Errorf("reason %s", got)
	}
}
