package front

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/clientauth"
)

// verifier makes a clientauth.Verifier of options.
func verifier(t testing.TB, o clientauth.Options) *clientauth.Verifier {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	v, err := clientauth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// crypto/tls by itself resumes a session under any server name. A client that
// authenticated for one site, or for none, must not enter another with nothing
// but its session, in any combination of modes, authorities and allow-lists.
func TestSessionsDoNotCrossSites(t *testing.T) {
	pki := newMatrixPKI(t)
	dir := t.TempDir()
	ca1 := []string{write(t, dir, "1.pem", pki.clientCA.pem())}
	ca2 := []string{write(t, dir, "2.pem", pki.otherCA.pem())}
	sites := []struct {
		name    string
		auth    clientauth.Options
		refuses bool // a client without a certificate
	}{
		{"open", clientauth.Options{}, false},
		{"request", clientauth.Options{Mode: clientauth.Request}, false},
		{"given", clientauth.Options{Mode: clientauth.VerifyIfGiven, CAFiles: ca1}, false},
		{"ca1", clientauth.Options{Mode: clientauth.Require, CAFiles: ca1}, true},
		{"ca2", clientauth.Options{Mode: clientauth.Require, CAFiles: ca2}, true},
		{"strict", clientauth.Options{Mode: clientauth.Require, CAFiles: ca1, Allow: []string{"dns:nobody.example"}}, true},
		{"tenant", clientauth.Options{Mode: clientauth.Require, CAFiles: ca1, Allow: []string{"dns:ann.example"}}, true},
	}
	cert := newServer(t, pki.serverCA, newKey(t), "*.cross.test")
	forVersions(t, func(t *testing.T, version uint16) {
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: cert, listeners: func(r *rig) []ListenerOptions {
			var all []Site
			for _, s := range sites {
				o := PolicyOptions{Site: s.name}
				if s.auth.Mode != clientauth.None {
					o.ClientAuth = verifier(t, s.auth)
				}
				all = append(all, Site{Hosts: []string{s.name + ".cross.test"}, Policy: r.policy(o)})
			}
			return []ListenerOptions{{Address: listenAddr, Table: r.table(nil, all...)}}
		}})
		for _, from := range sites {
			if from.name == "strict" || from.name == "ca2" {
				continue // nobody of the test gets in there, so there is no session
			}
			for _, to := range sites {
				cache := &anyName{}
				first := r.client(from.name+".cross.test", version, cache)
				first.Certificates = []tls.Certificate{*pki.client.tls()}
				r.mustVisit(first)
				cache.hold = true
				_, body, err := r.visit(r.client(to.name+".cross.test", version, cache)) // with no certificate
				switch {
				case from.name == to.name:
					if err != nil {
						t.Errorf("%s again: %v", from.name, err)
						continue
					}
					wantWords(t, body, "resumed=true")
				case to.refuses:
					if alertOf(err) == "" {
						t.Errorf("%s to %s: %q, %v; want an alert", from.name, to.name, body, err)
					}
				case err != nil:
					t.Errorf("%s to %s: %v; want a full handshake", from.name, to.name, err)
				default:
					wantWords(t, body, "resumed=false", "session=sni", "client=")
				}
			}
		}
	})
}

// Lists, files and authorities that change hold for the next connection of a
// session too, and a client that stays welcome keeps its identity.
func TestAuthorisationOfResumedConnections(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		dir := t.TempDir()
		allow := write(t, dir, "allow", []byte("dns:ann.example\n"))
		crl := write(t, dir, "ca.crl", emptyCRL(t, pki.clientCA))
		v := verifier(t, clientauth.Options{
			Site: "app", Mode: clientauth.Require, CAFiles: []string{write(t, dir, "ca.pem", pki.clientCA.pem())},
			AllowFiles: []string{allow}, CRLFiles: []string{crl},
		})
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(
				r.policy(PolicyOptions{Site: "default"}),
				Site{Hosts: []string{"app.example"}, Policy: r.policy(PolicyOptions{Site: "app", ClientAuth: v})})}}
		}})
		config := r.client("app.example", version, &anyName{})
		config.Certificates = []tls.Certificate{*pki.client.tls()}
		_, body := r.mustVisit(config)
		wantWords(t, body, "client=ann.example", "resumed=false")
		_, body = r.mustVisit(config)
		wantWords(t, body, "client=ann.example", "resumed=true")

		write(t, dir, "ca.crl", emptyCRL(t, pki.clientCA, pki.client))
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.visit(config); alertOf(err) == "" {
			t.Errorf("a revoked client: %v; want an alert", err)
		}
		if got := r.waitFailure(); got != ReasonCertRevoked {
			t.Errorf("reason %s", got)
		}
		if h := r.observer.events[2]; !h.Resumed && version == tls.VersionTLS12 && h.Session == "" {
			t.Errorf("the refusal was not of a resumption: %+v", h)
		}

		write(t, dir, "ca.crl", emptyCRL(t, pki.clientCA))
		write(t, dir, "allow", []byte("dns:bob.example\n"))
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.visit(config); alertOf(err) == "" {
			t.Errorf("a client taken off the list: %v; want an alert", err)
		}
		r.waitTold(4)

		// A broken file closes this site and no other.
		write(t, dir, "allow", []byte("broken"))
		if v.Reload() == nil {
			t.Fatal("a broken list reloads")
		}
		if _, _, err := r.visit(config); alertOf(err) != "internal error" {
			t.Errorf("a closed site: %v; want the alert internal_error", err)
		}
		r.waitTold(5)
		r.mustVisit(r.client("b.example", version, nil))
		want := []Reason{"", "", ReasonCertRevoked, ReasonCertDenied, ReasonAuthUnavailable, ""}
		r.waitTold(len(want))
		if reasons := r.observer.reasons(); !slices.Equal(reasons, want) {
			t.Errorf("reasons %q; want %q", reasons, want)
		}
	})
}

// A list that runs out closes the site to its clients, resumed or not.
func TestOutdatedCRLRefusesResumption(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		dir := t.TempDir()
		now := time.Now()
		v := verifier(t, clientauth.Options{
			Site: "app", Mode: clientauth.Require, CAFiles: []string{write(t, dir, "ca.pem", pki.clientCA.pem())},
			CRLFiles: []string{write(t, dir, "ca.crl", emptyCRL(t, pki.clientCA))}, Now: func() time.Time { return now },
		})
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "app", ClientAuth: v}))}}
		}})
		config := r.client("app.example", version, &anyName{})
		config.Certificates = []tls.Certificate{*pki.client.tls()}
		r.mustVisit(config)
		now = now.Add(2 * time.Hour)
		if _, _, err := r.visit(config); alertOf(err) == "" {
			t.Errorf("visit = %v; want an alert", err)
		}
		if got := r.waitFailure(); got != ReasonCertUnchecked {
			t.Errorf("reason %s", got)
		}
	})
}

// What a client merely presents, without anybody verifying it, is not vouched
// for, also when its session resumes.
func TestRequestedCertificatesAreNotVerified(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		v := verifier(t, clientauth.Options{Site: "app", Mode: clientauth.Request})
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "app", ClientAuth: v}))}}
		}})
		config := r.client("app.example", version, &anyName{})
		config.Certificates = []tls.Certificate{*pki.client.tls()}
		for _, resumed := range []string{"false", "true"} {
			_, body := r.mustVisit(config)
			wantWords(t, body, "client=", "resumed="+resumed)
		}
	})
}

func emptyCRL(t testing.TB, ca *identity, revoked ...*identity) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(serials.Add(1)), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.cert.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Two names have one policy ID if a connection for either may serve requests for
// both. A request for a host of another ID must go to a connection of its own.
func TestPolicyIDs(t *testing.T) {
	pki := newMatrixPKI(t)
	caFile := write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())
	auth := func(mode clientauth.Mode) ClientAuth {
		return verifier(t, clientauth.Options{Site: "x", Mode: mode, CAFiles: []string{caFile}})
	}
	r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, noStart: true})
	app := PolicyOptions{Site: "app"}
	table := func() *Table {
		return r.table(r.policy(PolicyOptions{DisableHTTP2: true}),
			Site{Hosts: []string{"app.example"}, Policy: r.policy(app)},
			Site{Hosts: []string{"www.example", "*.www.example"}, Policy: r.policy(PolicyOptions{Site: "www"})},
			Site{Hosts: []string{"bank.example"}, Policy: r.policy(PolicyOptions{Site: "bank", ClientAuth: auth(clientauth.Require)})},
			Site{Hosts: []string{"shop.example"}, Policy: r.policy(PolicyOptions{Site: "shop", ClientAuth: auth(clientauth.Require)})},
		)
	}
	before := table()
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"app.example", "www.example", true}, // another site, the same policy
		{"app.example", "x.www.example", true},
		{"app.example", "bank.example", false},
		{"bank.example", "shop.example", false}, // both verify, but each for itself
		{"app.example", "", false},
		{"", "nobody.test", true},
	} {
		if same := before.Lookup(test.a).ID() == before.Lookup(test.b).ID(); same != test.same {
			t.Errorf("%q and %q have the same ID: %v; want %v", test.a, test.b, same, test.same)
		}
	}

	// A reload that makes a policy stricter holds for connections that are open,
	// and one that changes nothing closes none.
	if before.Lookup("bank.example").ID() != table().Lookup("bank.example").ID() {
		t.Error("a policy made again has another ID")
	}
	other := write(t, t.TempDir(), "ca.pem", newCA(t, "another client ca").pem())
	seen := map[string]string{before.Lookup("app.example").ID(): "no client authentication"}
	for _, rules := range []struct {
		name string
		o    clientauth.Options
	}{
		{"request", clientauth.Options{Mode: clientauth.Request}},
		{"verify_if_given", clientauth.Options{Mode: clientauth.VerifyIfGiven, CAFiles: []string{caFile}}},
		{"require", clientauth.Options{Mode: clientauth.Require, CAFiles: []string{caFile}}},
		{"another authority", clientauth.Options{Mode: clientauth.Require, CAFiles: []string{other}}},
		{"an allow-list", clientauth.Options{Mode: clientauth.Require, CAFiles: []string{caFile}, Allow: []string{"cn:bob"}}},
		{"another allow-list", clientauth.Options{Mode: clientauth.Require, CAFiles: []string{caFile}, Allow: []string{"cn:alice"}}},
		{"soft OCSP", clientauth.Options{Mode: clientauth.Require, CAFiles: []string{caFile}, OCSP: clientauth.Soft, Checker: neverAsked{}}},
		{"hard OCSP", clientauth.Options{Mode: clientauth.Require, CAFiles: []string{caFile}, OCSP: clientauth.Hard, Checker: neverAsked{}}},
		{"a revocation list", clientauth.Options{
			Mode: clientauth.Require, CAFiles: []string{caFile}, CRLFiles: []string{write(t, t.TempDir(), "crl.der", emptyCRL(t, pki.clientCA))},
		}},
	} {
		rules.o.Site = "x"
		app.ClientAuth = verifier(t, rules.o)
		id := table().Lookup("app.example").ID()
		if as := seen[id]; as != "" {
			t.Errorf("%s has the ID of %s", rules.name, as)
		}
		seen[id] = rules.name
	}
}

// The ID follows the files: what they allow holds for open connections too, and
// while they are broken there is no policy that a connection could have.
func TestPolicyIDFollowsFiles(t *testing.T) {
	pki := newMatrixPKI(t)
	dir := t.TempDir()
	v := verifier(t, clientauth.Options{Site: "x", Mode: clientauth.Require, CAFiles: []string{write(t, dir, "ca.pem", pki.clientCA.pem())}})
	r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, noStart: true})
	p := r.policy(PolicyOptions{Site: "app", ClientAuth: v})
	good := p.ID()
	write(t, dir, "ca.pem", []byte("no certificate"))
	if err := v.Reload(); err == nil {
		t.Fatal("a file without a certificate was taken")
	}
	if id := p.ID(); id == good {
		t.Error("the ID is that of before although nobody may enter")
	}
	write(t, dir, "ca.pem", pki.clientCA.pem())
	if err := v.Reload(); err != nil || p.ID() != good {
		t.Errorf("the ID is not that of the same rules again: %v", err)
	}
}

// neverAsked is a RevocationChecker for tests without connections.
type neverAsked struct{ clientauth.RevocationChecker }
