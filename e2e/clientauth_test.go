package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// identityConfig serves one backend by a site of each mode. BACKEND is its URL.
const identityConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - {hosts: [none.test], routes: [{upstream: app}]}
  - hosts: [request.test]
    tls: {client_auth: {mode: request}}
    routes: [{upstream: app}]
  - hosts: [given.test]
    tls: {client_auth: {mode: verify_if_given, ca_file: "{{dir}}/clients.pem", forward: &forward {
      subject: X-Client-Subject, serial: X-Client-Serial, fingerprint: X-Client-Fingerprint, verify: X-Client-Verify}}}
    routes: [{upstream: app}]
  - hosts: [require.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem", forward: *forward}}
    routes: [{upstream: app}]
upstreams:
  app: {backends: ["BACKEND"]}
`

// identityNames are all headers by which the configuration above tells who a
// client is.
var identityNames = []string{
	"Client-Cert", "Client-Cert-Chain", "X-Client-Subject", "X-Client-Serial", "X-Client-Fingerprint", "X-Client-Verify",
}

// startIdentity starts a proxy whose backend answers with the headers it got.
func startIdentity(t *testing.T) (p *proxy, ca, clients *pki.CA) {
	t.Helper()
	backend := serve(t, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(r.Header) })
	ca, clients = newCA(t), newCA(t)
	p = newProxy(t, strings.Replace(identityConfig, "BACKEND", backend, 1))
	p.issue(ca, "tls", pki.Request{Names: []string{"none.test", "request.test", "given.test", "require.test"}})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	p.start()
	p.waitReady()
	return p, ca, clients
}

// certClient is an HTTP client of one version and protocol that sends cert,
// whatever CAs the server names; nil sends none.
func (p *proxy) certClient(pool *x509.CertPool, version uint16, h2 bool, cert *tls.Certificate) *http.Client {
	client := p.client(pool, h2)
	client.Transport.(*http.Transport).DisableKeepAlives = true
	config := client.Transport.(*http.Transport).TLSClientConfig
	config.MinVersion, config.MaxVersion = version, version
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return client
}

// identityAt makes a request on a new connection, with copies of all identity
// headers that the client made up, and returns those that the backend got.
func identityAt(t *testing.T, client *http.Client, host string) (headers map[string]string, resumed bool, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range identityNames {
		req.Header[name] = []string{"spoofed", "twice"}
		req.Header[strings.ToLower(name)] = []string{"spoofed"}
		req.Header[strings.ReplaceAll(name, "-", "_")] = []string{"spoofed"}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	var got http.Header
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	headers = map[string]string{}
	for name, values := range got {
		canonical := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		for _, known := range identityNames {
			if canonical == known {
				headers[name] = strings.Join(values, " and ")
			}
		}
	}
	return headers, resp.TLS.DidResume, nil
}

// identityOf is what backends are to be told of a verified chain whose first
// intermediate is given.
func identityOf(cert *tls.Certificate, intermediate *x509.Certificate) map[string]string {
	serial := fmt.Sprintf("%X", cert.Leaf.SerialNumber)
	want := map[string]string{
		"Client-Cert":      ":" + base64.StdEncoding.EncodeToString(cert.Leaf.Raw) + ":",
		"X-Client-Subject": cert.Leaf.Subject.String(), "X-Client-Serial": serial,
		"X-Client-Fingerprint": fmt.Sprintf("%x", sha256.Sum256(cert.Leaf.Raw)), "X-Client-Verify": "SUCCESS",
	}
	if intermediate != nil {
		want["Client-Cert-Chain"] = ":" + base64.StdEncoding.EncodeToString(intermediate.Raw) + ":"
	}
	return want
}

// TestClientCertificateModes is every mode against every kind of client, in
// both versions and protocols: who comes in, what the backend is told, and that
// a resumed connection is told of like a full one. What clients say of
// themselves in these headers never arrives.
func TestClientCertificateModes(t *testing.T) {
	t.Parallel()
	p, ca, clients := startIdentity(t)
	intermediate, err := clients.NewIntermediate(pki.CAOptions{Name: "clients' intermediate"})
	if err != nil {
		t.Fatal(err)
	}
	direct, behind, foreign := clientCert(t, clients, "alice"), clientCert(t, intermediate, "bob"), clientCert(t, newCA(t), "mallory")
	kinds := []struct {
		name string
		cert *tls.Certificate
		told map[string]string // where it is verified; nil: refused there
	}{
		{"no certificate", nil, map[string]string{"X-Client-Verify": "NONE"}},
		{"certificate of the CA", &direct, identityOf(&direct, nil)},
		{"certificate of an intermediate", &behind, identityOf(&behind, intermediate.Certificate)},
		{"certificate of a foreign CA", &foreign, nil},
	}
	for _, host := range []string{"none.test", "request.test", "given.test", "require.test"} {
		for _, kind := range kinds {
			want := kind.told
			switch {
			case host == "none.test" || host == "request.test":
				want = map[string]string{} // nothing is verified, so nothing is said
			case host == "require.test" && kind.cert == nil:
				want = nil
			}
			for name, version := range bothVersions {
				for _, h2 := range []bool{false, true} {
					what := fmt.Sprintf("%s, %s, TLS %s, h2 %v", host, kind.name, name, h2)
					client := p.certClient(ca.Pool(), version, h2, kind.cert)
					for visit := range 3 {
						got, resumed, err := identityAt(t, client, host)
						if (err == nil) != (want != nil) {
							t.Fatalf("%s: visit %d ended with %v", what, visit, err)
						}
						if want == nil {
							continue
						}
						if !maps.Equal(got, want) {
							t.Errorf("%s: on visit %d the backend was told\n%v, want\n%v", what, visit, got, want)
						}
						if resumed != (visit > 0) {
							t.Errorf("%s: visit %d resumed %v", what, visit, resumed)
						}
					}
				}
			}
		}
	}
	for reason, n := range map[string]float64{"client_cert_missing": 3 * 4, "client_cert_invalid": 2 * 3 * 4} {
		eventually(t, "every refusal is counted as "+reason, func() bool {
			return p.metric("tlsproxy_handshake_failures_total", fmt.Sprintf("reason=%q", reason)) >= n
		})
	}
}

const authorisationConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - name: listed
    hosts: [listed.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem", crl_file: "{{dir}}/clients.crl", allow_file: "{{dir}}/clients.allow"}}
    routes: [{upstream: echo}]
  - name: other
    hosts: [other.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem"}}
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// crl is a list of ca, good for an hour, with certificates on it.
func crl(t *testing.T, ca *pki.CA, number int64, certs ...tls.Certificate) []byte {
	t.Helper()
	list := &x509.RevocationList{
		Number: big.NewInt(number), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour),
	}
	for _, cert := range certs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: cert.Leaf.SerialNumber, RevocationTime: list.ThisUpdate})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.Certificate, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// TestAuthorisationOfResumedClients changes the files that say who may come in
// under clients that hold sessions.
func TestAuthorisationOfResumedClients(t *testing.T) {
	t.Parallel()
	for name, version := range bothVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, clients := newCA(t), newCA(t)
			alice, bob := clientCert(t, clients, "alice"), clientCert(t, clients, "bob")
			p := newProxy(t, authorisationConfig)
			p.issue(ca, "tls", pki.Request{Names: []string{"listed.test", "other.test"}})
			p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
			p.write("clients.crl", string(crl(t, clients, 1)))
			p.write("clients.allow", "cn:alice\ncn:bob # and nobody else\n")
			p.start()
			p.waitReady()
			crlFile, allowFile := filepath.Join(p.dir, "clients.crl"), filepath.Join(p.dir, "clients.allow")

			a, b := p.tlsClient(ca.Pool(), version, alice), p.tlsClient(ca.Pool(), version, bob)
			elsewhere := p.tlsClient(ca.Pool(), version, alice)
			elsewhere.want(t, "first visit elsewhere", "other.test", false)
			for visit := range 3 {
				a.want(t, "alice", "listed.test", visit > 0)
				b.want(t, "bob", "listed.test", visit > 0)
			}
			refused := func(what string, c *tlsClient) {
				t.Helper()
				eventually(t, what, func() bool {
					_, err := c.request("listed.test")
					// Where the file changed after the handshake it is 421, and
					// the next connection is judged.
					return err != nil && !strings.Contains(err.Error(), " 421 ")
				})
			}
			reason := func(reason string) {
				t.Helper()
				eventually(t, "the refusal is counted as "+reason, func() bool { // after the client heard of it
					return p.metric("tlsproxy_handshake_failures_total", fmt.Sprintf("reason=%q", reason)) > 0
				})
			}

			replace(t, crlFile, crl(t, clients, 2, alice))
			refused("alice, who holds a session, is refused once she is on the CRL", a)
			reason("client_cert_revoked")
			b.want(t, "bob after a CRL without him", "listed.test", true)
			elsewhere.want(t, "alice at the site without a CRL", "other.test", true)

			for what, breaks := range map[string]func(){
				"broken":  func() { replace(t, crlFile, []byte("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")) },
				"missing": func() { os.Remove(crlFile) },
			} {
				breaks()
				refused("the site whose CRL is "+what+" is closed", b)
				elsewhere.want(t, "the site beside it", "other.test", true)
				if n := p.metric("tlsproxy_client_auth_available", `site="listed"`); n != 0 {
					t.Errorf("tlsproxy_client_auth_available = %v while the CRL is %s", n, what)
				}
				if n := p.metric("tlsproxy_client_auth_available", `site="other"`); n != 1 {
					t.Errorf("tlsproxy_client_auth_available of the other site = %v", n)
				}
				replace(t, crlFile, crl(t, clients, 3, alice))
				eventually(t, "the site is open again", func() bool {
					_, err := b.request("listed.test")
					return err == nil
				})
				b.want(t, "bob after the CRL was mended", "listed.test", true)
			}
			reason("client_auth_unavailable")
			if end := p.metric("tlsproxy_client_auth_crl_expiry_timestamp_seconds", `site="listed"`); end < float64(time.Now().Unix()) {
				t.Errorf("tlsproxy_client_auth_crl_expiry_timestamp_seconds = %v", end)
			}

			replace(t, crlFile, crl(t, clients, 4))
			eventually(t, "alice is let in again", func() bool {
				_, err := a.request("listed.test")
				return err == nil
			})
			replace(t, allowFile, []byte("cn:bob\n"))
			refused("alice, who holds a session, is refused once she is off the allow-list", a)
			reason("client_cert_denied")
			b.want(t, "bob under the new allow-list", "listed.test", false)
			b.want(t, "bob again", "listed.test", true)
			replace(t, allowFile, []byte("nonsense\n"))
			refused("the site with the broken allow-list is closed", b)
			elsewhere.want(t, "the site beside it", "other.test", true)
		})
	}
}
