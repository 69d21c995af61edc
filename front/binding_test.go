package front

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/session"
)

const otherAddr = "192.0.2.1:444"

// bound is the world of the binding matrix: a site that can be changed between
// two visits.
type bound struct {
	*rig
	clientCA *identity
	cert     *tls.Certificate // the client's
	version  uint16
	cache    *anyName
	auth     clientauth.Options
	policy   PolicyOptions
	ports    [2]ListenerOptions // listenAddr, otherAddr: without tables
	dir      string
}

// newBound makes a site without client certificates on two listeners.
func newBound(t *testing.T, version uint16, pki *matrixPKI) *bound {
	b := &bound{clientCA: pki.clientCA, cert: pki.client.tls(), version: version, cache: &anyName{}, dir: t.TempDir()}
	b.auth = clientauth.Options{Site: "app", CAFiles: []string{write(t, b.dir, "ca.pem", pki.clientCA.pem())}}
	b.policy.Site = "app"
	b.ports = [2]ListenerOptions{{Address: listenAddr}, {Address: otherAddr}}
	b.rig = newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
		b.rig = r
		return b.build()
	}})
	return b
}

// build makes the listeners from what the fields say now.
func (b *bound) build() []ListenerOptions {
	b.t.Helper()
	o := b.policy
	if b.auth.Mode != clientauth.None {
		v, err := clientauth.New(b.auth)
		if err != nil {
			b.t.Fatal(err)
		}
		o.ClientAuth = v
	}
	table := b.table(b.rig.policy(PolicyOptions{Site: "default"}),
		Site{Hosts: []string{"app.example", "b.example"}, Policy: b.rig.policy(o)})
	ports := b.ports
	for i := range ports {
		ports[i].Table = table
	}
	return ports[:]
}

// reload puts what the fields say in force.
func (b *bound) reload() { b.t.Helper(); b.install(Config{Listeners: b.build()}) }

func (b *bound) config(name string) *tls.Config {
	c := b.client(name, b.version, b.cache)
	if b.cert != nil {
		cert := b.cert
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

// matrixPKI is the certificates of the matrix, made once.
type matrixPKI struct {
	serverCA, server, renewed, rekeyed *identity
	clientCA, otherCA, client          *identity
}

func newMatrixPKI(t *testing.T) *matrixPKI {
	names := []string{"app.example", "b.example", "other.test"}
	p := &matrixPKI{serverCA: newCA(t, "server ca"), clientCA: newCA(t, "client ca"), otherCA: newCA(t, "other ca")}
	key := newKey(t)
	p.server = newServer(t, p.serverCA, key, names...)
	p.renewed = newServer(t, p.serverCA, key, names...)
	p.rekeyed = newServer(t, p.serverCA, newKey(t), names...)
	p.client = newClient(t, p.clientCA, "ann.example")
	return p
}

// bindingCase is one row: what is in force at the first visit, what changes,
// and what the second visit finds.
type bindingCase struct {
	name   string
	before func(*bound)
	change func(*bound)
	second string // server name, default the first one
	port   string // of the second visit
	alpn   []string
	want   string // "hit", "refused", or the session.Result of the miss
}

func withAuth(mode clientauth.Mode) func(*bound) {
	return func(b *bound) { b.auth.Mode = mode }
}

func bindingCases(pki *matrixPKI) []bindingCase {
	noCert := func(b *bound) { b.cert = nil }
	reload := func(edits ...func(*bound)) func(*bound) {
		return func(b *bound) {
			for _, e := range edits {
				e(b)
			}
			b.reload()
		}
	}
	otherCA := func(b *bound) {
		b.auth.CAFiles = []string{write(b.t, b.dir, "two.pem", append(pki.clientCA.pem(), pki.otherCA.pem()...))}
	}
	return []bindingCase{
		{name: "same", want: "hit"},
		{name: "same, another listener of the same policy", port: otherAddr, want: "hit"},
		{name: "same name in capitals", second: "APP.Example", want: "hit"},
		{name: "other SNI, same site", second: "b.example", want: "sni"},
		{name: "other SNI, other site", second: "other.test", want: "sni"},
		{name: "no SNI", second: "-", want: "sni"},
		{name: "listener of another policy", port: otherAddr, change: reload(func(b *bound) {
			b.ports[1].ProxyProtocol = ProxyOptional
			b.ports[1].TrustedProxies = mustPrefixes("10.0.0.0/8")
		}), want: "scope"},
		{name: "other ALPN of the client", alpn: []string{"http/1.1"}, want: "hit"}, // the policy's list decides, not the choice from it
		{name: "other ALPN list of the site", change: reload(func(b *bound) { b.policy.DisableHTTP2 = true }), want: "scope"},
		{name: "other cipher suites", change: reload(func(b *bound) { b.policy.CipherSuites = defaultCipherSuites()[:4] }), want: "scope"},
		{name: "reloaded, unchanged", change: reload(), want: "hit"},
		{name: "reloaded, site renamed", change: reload(func(b *bound) { b.policy.Site = "renamed" }), want: "hit"},
		{name: "server key replaced", change: func(b *bound) { b.certs.set("", pki.rekeyed) }, want: "key"},
		{name: "certificate renewed with the same key", change: func(b *bound) { b.certs.set("", pki.renewed) }, want: "hit"},

		{name: "none to request", change: reload(withAuth(clientauth.Request)), want: "scope"},
		{name: "none to verify_if_given", change: reload(withAuth(clientauth.VerifyIfGiven)), want: "scope"},
		{name: "none to require, with certificate", change: reload(withAuth(clientauth.Require)), want: "scope"},
		{name: "none to require, without certificate", change: reload(withAuth(clientauth.Require), noCert), want: "refused"},
		{name: "request to require, without certificate", before: withAuth(clientauth.Request), change: reload(withAuth(clientauth.Require), noCert), want: "refused"},
		{name: "request to require, with certificate", before: withAuth(clientauth.Request), change: reload(withAuth(clientauth.Require)), want: "scope"},
		{name: "verify_if_given to require", before: withAuth(clientauth.VerifyIfGiven), change: reload(withAuth(clientauth.Require)), want: "scope"},
		{name: "require to none", before: withAuth(clientauth.Require), change: reload(withAuth(clientauth.None)), want: "scope"},
		{name: "require to request", before: withAuth(clientauth.Require), change: reload(withAuth(clientauth.Request)), want: "scope"},
		{name: "require to verify_if_given", before: withAuth(clientauth.Require), change: reload(withAuth(clientauth.VerifyIfGiven)), want: "scope"},
		{name: "require, unchanged", before: withAuth(clientauth.Require), change: reload(), want: "hit"},
		{name: "require, unchanged, client without its certificate", before: withAuth(clientauth.Require), change: noCert, want: "hit"},
		{name: "verify_if_given, unchanged", before: withAuth(clientauth.VerifyIfGiven), change: reload(), want: "hit"},
		{name: "request, unchanged", before: withAuth(clientauth.Request), change: reload(), want: "hit"},

		{name: "authority added", before: withAuth(clientauth.Require), change: reload(otherCA), want: "scope"},
		{name: "authority replaced", before: withAuth(clientauth.Require), change: reload(func(b *bound) {
			b.auth.CAFiles = []string{write(b.t, b.dir, "other.pem", pki.otherCA.pem())}
		}), want: "refused"},
		{name: "same authorities in another file", before: withAuth(clientauth.Require), change: reload(func(b *bound) {
			b.auth.CAFiles = []string{write(b.t, b.dir, "copy.pem", pki.clientCA.pem())}
		}), want: "hit"},
		{name: "allow-list added, client on it", before: withAuth(clientauth.Require), change: reload(func(b *bound) {
			b.auth.Allow = []string{"dns:ann.example"}
		}), want: "scope"},
		{name: "allow-list added, client not on it", before: withAuth(clientauth.Require), change: reload(func(b *bound) {
			b.auth.Allow = []string{"dns:bob.example"}
		}), want: "refused"},
		{name: "allow-list unchanged", before: func(b *bound) {
			b.auth.Mode = clientauth.Require
			b.auth.Allow = []string{"dns:ann.example"}
		}, change: reload(), want: "hit"},
	}
}

func TestBindingMatrix(t *testing.T) {
	pki := newMatrixPKI(t)
	for _, test := range bindingCases(pki) {
		for _, version := range versions {
			t.Run(test.name+"/"+versionLabel(version), func(t *testing.T) { runBinding(t, pki, version, test) })
		}
	}
}

func runBinding(t *testing.T, pki *matrixPKI, version uint16, test bindingCase) {
	b := newBound(t, version, pki)
	if test.before != nil {
		test.before(b)
		b.reload()
	}
	first := b.config("app.example")
	first.NextProtos = nil
	if _, body := b.mustVisit(first); !strings.Contains(body, "resumed=false") {
		t.Fatalf("first visit: %s", body)
	}
	if b.cache.last == nil {
		t.Fatal("the client was given no session")
	}
	if test.change != nil {
		test.change(b)
	}
	name := test.second
	switch name {
	case "":
		name = "app.example"
	case "-":
		name = ""
	}
	second := b.config(name)
	second.NextProtos = test.alpn
	if name == "" {
		second.ServerName, second.InsecureSkipVerify = "192.0.2.1", true // an address is not sent as a name
	}
	port := test.port
	if port == "" {
		port = listenAddr
	}
	_, body, err := visitOver(b.dialFrom(clientAddr, port), second)
	checkBinding(t, test.want, body, err)
}

func checkBinding(t *testing.T, want, body string, err error) {
	t.Helper()
	if want == "refused" {
		if alert := alertOf(err); alert == "" {
			t.Errorf("second visit: %q, %v; want an alert", body, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("second visit: %v; only clients that fail authorisation may be refused", err)
	}
	wantWords(t, body, fmt.Sprintf("resumed=%v", want == "hit"), "session="+want)
}

// The life of a session ends exactly at its lifetime, for one without client
// certificates and for one with, over resumptions too.
func TestBindingAge(t *testing.T) {
	pki := newMatrixPKI(t)
	for _, mode := range []clientauth.Mode{clientauth.None, clientauth.Require} {
		life := session.DefaultLifetime
		if mode == clientauth.Require {
			life = session.DefaultClientAuthLifetime
		}
		for _, age := range []time.Duration{life - time.Second, life, life + time.Second} {
			for _, version := range versions {
				want := string(session.Hit)
				if age >= life {
					want = string(session.Lineage)
				}
				t.Run(fmt.Sprintf("%s/%v/%s", mode, age, versionLabel(version)), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { runAge(t, pki, version, mode, age, want) })
				})
			}
		}
	}
}

func runAge(t *testing.T, pki *matrixPKI, version uint16, mode clientauth.Mode, age time.Duration, want string) {
	b := newBound(t, version, pki)
	b.auth.Mode = mode
	b.reload()
	b.mustVisit(b.config("app.example"))
	time.Sleep(age / 2)
	if _, body := b.mustVisit(b.config("app.example")); !strings.Contains(body, "resumed=true") {
		t.Fatalf("half-way visit: %s", body)
	}
	time.Sleep(age - age/2)
	_, body := b.mustVisit(b.config("app.example"))
	if want == "hit" {
		wantWords(t, body, "resumed=true")
		return
	}
	// At the very end the entry may have left the cache already: either way it
	// is a full handshake and not an error.
	wantWords(t, body, "resumed=false")
	if !strings.Contains(body, "session=lineage") && !strings.Contains(body, "session=absent") {
		t.Errorf("visit past the end: %s", body)
	}
}
