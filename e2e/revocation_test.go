package e2e

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// TestMustStaple: a must-staple certificate is served without its staple only
// when there is no other choice, which /readyz can be made to tell; at a swap
// the old one serves until the first staple of the new one is there, and no
// staple is ever that of another certificate.
func TestMustStaple(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	responder := startGated(t, ca, pki.ResponderOptions{})
	p := newProxy(t, filesConfig+`
admin: {address: "{{admin}}", ready: {must_staple: true}}
ocsp: {timeout: 20s, prepare_timeout: 4s}
`)
	request := pki.Request{Names: []string{"localhost"}, OCSPServers: []string{responder.url}, MustStaple: true}
	first := p.issue(ca, "tls", request)
	responder.hold()
	p.start()
	eventually(t, "the program answers that it is not ready for want of a staple", func() bool {
		code, body := p.adminGet("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "must-staple")
	})
	if got := p.look(ca, "localhost"); !got.leaf.Equal(first.Leaf) || got.staple != nil {
		t.Error("without a staple the certificate is not served as it is")
	}
	if n := p.metric("tlsproxy_ocsp_must_staple_missing"); n != 1 {
		t.Errorf("tlsproxy_ocsp_must_staple_missing is %v", n)
	}
	responder.open()
	p.waitReady()
	if p.look(ca, "localhost").staple == nil {
		t.Error("ready without a staple")
	}

	responder.hold()
	asked := responder.asked.Load()
	second := p.issue(ca, "tls", request)
	eventually(t, "the responder is asked about the new certificate", func() bool { return responder.asked.Load() > asked })
	for range 20 {
		if got := p.look(ca, "localhost"); !got.leaf.Equal(first.Leaf) || got.staple == nil {
			t.Fatal("the old certificate with its staple is not served while the new one has none")
		}
	}
	responder.open()
	eventually(t, "the new certificate is served", func() bool {
		got := p.look(ca, "localhost")
		if got.staple == nil {
			t.Fatal("a handshake during the swap had no staple")
		}
		return got.leaf.Equal(second.Leaf)
	})

	// The wait is bounded: then it is served all the same, and said to be.
	responder.hold()
	third := p.issue(ca, "tls", request)
	eventually(t, "the certificate is served without a staple", func() bool {
		got := p.look(ca, "localhost")
		return got.leaf.Equal(third.Leaf) && got.staple == nil
	})
	if code, _ := p.adminGet("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d", code)
	}
	if p.count(`"level":"ERROR"`, "must-staple certificate will be served without a staple") != 1 {
		t.Error("the log does not say once that a staple is missing")
	}
	responder.open()
	p.waitReady()
}

// TestRevokedAndCommands: `openssl ocsp` calls the certificate good and then
// revoked. The staple is gone at once, and stays away over a restart with a
// good response on disk. The commands say what they see all along.
func TestRevokedAndCommands(t *testing.T) {
	t.Parallel()
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t)
	port := testtool.FreePort(t)
	p := newProxy(t, filesConfig)
	cert := p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}, OCSPServers: []string{fmt.Sprintf("http://127.0.0.1:%d", port)}})
	issuer := p.write("issuer.pem", string(pki.CertificatePEM(ca.Certificate)))
	certFile, response := filepath.Join(p.dir, "tls.crt"), filepath.Join(p.dir, "response.der")
	command := func(exit int, args ...string) string {
		t.Helper()
		out, err := run(t, "", binary, append([]string{"ocsp"}, args...)...)
		if (err != nil) != (exit != 0) {
			t.Errorf("tlsproxy ocsp %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	responder := startOpenSSL(t, ca, port, "-nmin", "2")
	responder.serve([]*x509.Certificate{cert.Leaf}, nil)
	p.start()
	p.waitReady()
	eventually(t, "the staple appears", func() bool { return p.look(ca, "localhost").staple != nil })
	good, err := os.ReadFile(p.stapleFile(cert.Leaf, ".der"))
	if err != nil || !bytes.Equal(good, p.look(ca, "localhost").staple) {
		t.Fatalf("the stored response is not the one served: %v", err)
	}
	command(0, "fetch", "-out", response, certFile)
	command(0, "verify", "-cert", certFile, "-issuer", issuer, response)
	command(0, "show", "-servername", "localhost", p.addr)
	command(0, "show", response)
	var shown struct{ Verdict string }
	if out := command(0, "show", "-json", "-servername", "localhost", p.addr); json.Unmarshal([]byte(out), &shown) != nil || shown.Verdict != "good" {
		t.Errorf("show -json: %s", out)
	}
	if out := command(1, "verify", "-cert", certFile, "-issuer", issuer, "-at", "2040-01-01T00:00:00Z", response); !strings.Contains(out, "expired") {
		t.Errorf("verify of an expired response: %s", out)
	}

	// The next start finds a response whose time of refresh has come.
	p.signal(15)
	p.wait()
	past := time.Now().Add(-10 * time.Minute)
	if err := os.Chtimes(p.stapleFile(cert.Leaf, ".der"), past, past); err != nil {
		t.Fatal(err)
	}
	responder.serve(nil, []*x509.Certificate{cert.Leaf})
	p.start()
	p.waitReady()
	eventually(t, "the revocation is known", func() bool { return p.count("certificate is revoked") == 1 })
	known := time.Now()
	if p.look(ca, "localhost").staple != nil {
		t.Errorf("a staple %v after the revocation was known", time.Since(known))
	}
	if n := p.metric("tlsproxy_ocsp_certificates", `state="revoked"`); n != 1 {
		t.Errorf("%v revoked certificates in the metrics", n)
	}
	if text := fmt.Sprint(p.status()["staples"]); !strings.Contains(text, "state:revoked") {
		t.Errorf("/api/status: %s", text)
	}
	if out := command(1, "fetch", certFile); !strings.Contains(out, "revoked") || !strings.Contains(out, "keyCompromise") {
		t.Errorf("fetch: %s", out)
	}
	if out := command(1, "show", "-servername", "localhost", p.addr); !strings.Contains(out, "staples no response") {
		t.Errorf("show: %s", out)
	}

	p.signal(15)
	p.wait()
	responder.serve([]*x509.Certificate{cert.Leaf}, nil) // it changed its mind
	if err := os.WriteFile(p.stapleFile(cert.Leaf, ".der"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.waitReady()
	for range 20 {
		if p.look(ca, "localhost").staple != nil {
			t.Fatal("a good response on disk beat the revocation")
		}
	}
	if n := p.metric("tlsproxy_ocsp_certificates", `state="revoked"`); n != 1 {
		t.Errorf("%v revoked certificates after a restart", n)
	}
}

// hostile answers every request with the same bytes.
func hostile(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return "http://" + ln.Addr().String()
}

// TestHostileResponders: whatever responders send, nothing of it is stapled, the
// reason is counted, and handshakes do not notice.
func TestHostileResponders(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t), newCA(t)
	raw := func(data []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Write(data) }
	}
	to := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
	}
	now := time.Now()
	// spec is a good answer about leaf, to be spoiled.
	spec := func(leaf *x509.Certificate) pki.ResponseSpec {
		return pki.ResponseSpec{
			ProducedAt: now, Signer: ca.Key, SignerCert: ca.Certificate,
			Singles: []pki.SingleSpec{{CertID: pki.CertID{Serial: leaf.SerialNumber, Issuer: ca.Certificate}, ThisUpdate: now, NextUpdate: now.Add(time.Hour)}},
		}
	}
	type responder struct {
		reason string
		answer func(leaf *tls.Certificate) http.HandlerFunc
	}
	signed := func(reason string, spoil func(s *pki.ResponseSpec, leaf *tls.Certificate)) responder {
		return responder{reason, func(leaf *tls.Certificate) http.HandlerFunc {
			s := spec(leaf.Leaf)
			spoil(&s, leaf)
			der, err := s.Sign()
			if err != nil {
				t.Fatal(err)
			}
			return raw(der)
		}}
	}
	plain := func(reason string, h http.HandlerFunc) responder {
		return responder{reason, func(*tls.Certificate) http.HandlerFunc { return h }}
	}
	responders := map[string]responder{
		"html":     plain("malformed", raw([]byte("<html>please log in</html>"))),
		"endless":  plain("too_large", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, zeros{}) }),
		"dripping": plain("timeout", drip),
		"silent":   plain("timeout", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }),
		"gzip": plain("content_encoding", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write([]byte{0x1f, 0x8b})
		}),
		"loop":   plain("redirect", to("/")),
		"file":   plain("redirect", to("file:///etc/passwd")),
		"try":    plain("try_later", raw([]byte{0x30, 0x03, 0x0a, 0x01, 0x03})),
		"status": plain("http_status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }),
		"serial": signed("wrong_certificate", func(s *pki.ResponseSpec, _ *tls.Certificate) { s.Singles[0].CertID.Serial = big.NewInt(1) }),
		"issuer": signed("wrong_issuer", func(s *pki.ResponseSpec, _ *tls.Certificate) { s.Singles[0].CertID.Issuer = other.Certificate }),
		"foreign": signed("", func(s *pki.ResponseSpec, _ *tls.Certificate) { // the name is right, the key is not
			s.Signer, s.ByName = other.Key, true
		}),
		"leaf": signed("", func(s *pki.ResponseSpec, leaf *tls.Certificate) {
			s.Signer, s.SignerCert = signerOf(leaf), leaf.Leaf
			s.Certificates = []*x509.Certificate{leaf.Leaf}
		}),
		"future": signed("not_yet_valid", func(s *pki.ResponseSpec, _ *tls.Certificate) {
			s.Singles[0].ThisUpdate = now.Add(time.Hour)
			s.Singles[0].NextUpdate = now.Add(2 * time.Hour)
		}),
		"expired": signed("expired", func(s *pki.ResponseSpec, _ *tls.Certificate) {
			s.Singles[0].ThisUpdate = now.Add(-2 * time.Hour)
			s.Singles[0].NextUpdate = now.Add(-time.Hour)
		}),
	}
	p := newProxy(t, strings.Replace(filesConfig, `{cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}`, `directory: "{{dir}}/pairs"`, 1)+"\nocsp: {timeout: 2s}\n")
	p.write("pairs/.keep", "")
	for name, r := range responders {
		// The certificate names a responder that needs it to exist.
		var handler http.HandlerFunc
		ready := make(chan struct{})
		url := hostile(t, func(w http.ResponseWriter, req *http.Request) { <-ready; handler(w, req) })
		cert := p.issue(ca, "pairs/"+name, pki.Request{Names: []string{name + ".test"}, OCSPServers: []string{url}})
		handler = r.answer(cert)
		close(ready)
	}
	p.start()
	p.waitReady()
	reasons := func() map[string]string {
		got := make(map[string]string)
		for _, s := range p.status()["staples"].([]any) {
			staple := s.(map[string]any)
			reason, _ := staple["last_result"].(string)
			got[strings.TrimSuffix(staple["names"].([]any)[0].(string), ".test")] = reason
		}
		return got
	}
	eventually(t, "every responder has answered", func() bool {
		for name := range responders {
			if began := time.Now(); p.look(ca, name+".test").staple != nil {
				t.Fatalf("%s: stapled", name)
			} else if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%s: a handshake took %v", name, took)
			}
		}
		got := reasons()
		for name := range responders {
			if got[name] == "" {
				return false
			}
		}
		return true
	})
	got := reasons()
	for name, r := range responders {
		switch {
		case r.reason != "" && got[name] != r.reason:
			t.Errorf("%s: the reason is %q; want %q", name, got[name], r.reason)
		case got[name] == "good":
			t.Errorf("%s: accepted", name)
		}
		if n := p.metric("tlsproxy_ocsp_fetches_total", fmt.Sprintf("result=%q", got[name])); n == 0 {
			t.Errorf("%s: the reason %q is not counted", name, got[name])
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// drip sends a byte now and then, faster than any deadline on a single read.
func drip(w http.ResponseWriter, r *http.Request) {
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-tick.C:
			w.Write([]byte{0x30})
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			tick.Stop()
			return
		}
	}
}

func signerOf(cert *tls.Certificate) crypto.Signer { return cert.PrivateKey.(crypto.Signer) }

const clientsConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - hosts: [off.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem"}}
    routes: [{upstream: echo}]
  - hosts: [soft.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem", ocsp: soft}}
    routes: [{upstream: echo}]
  - hosts: [hard.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/clients.pem", ocsp: hard}}
    routes: [{upstream: echo}]
ocsp: {client: {timeout: 10s}}
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// TestClientOCSP asks `openssl ocsp` about client certificates, by site off,
// soft and hard, on new and on resumed connections.
func TestClientOCSP(t *testing.T) {
	t.Parallel()
	if !testtool.Isolated(t) {
		return
	}
	ca, clients := newCA(t), newCA(t)
	p := newProxy(t, clientsConfig)
	p.issue(ca, "tls", pki.Request{Names: []string{"off.test", "soft.test", "hard.test"}})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	answering, later, nobody := testtool.FreePort(t), testtool.FreePort(t), testtool.FreePort(t)
	short := startGated(t, clients, pki.ResponderOptions{Validity: 4 * time.Second})
	issue := func(name, url string) tls.Certificate {
		cert, err := clients.Issue(pki.Request{Names: []string{name}, Client: true, OCSPServers: []string{url}})
		if err != nil {
			t.Fatal(err)
		}
		return *cert
	}
	local := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	good, revoked, unknown := issue("good", local(answering)), issue("revoked", local(answering)), issue("unknown", local(answering))
	down, late, brief := issue("down", local(nobody)), issue("late", local(later)), issue("brief", short.url)
	startOpenSSL(t, clients, answering).serve([]*x509.Certificate{good.Leaf}, []*x509.Certificate{revoked.Leaf})
	p.start()
	p.waitReady()

	for name, version := range bothVersions {
		for _, c := range []struct {
			name            string
			cert            tls.Certificate
			off, soft, hard bool
		}{
			{"good", good, true, true, true},
			{"revoked", revoked, true, false, false},
			{"unknown", unknown, true, true, false},
			{"down", down, true, true, false},
		} {
			for site, enters := range map[string]bool{"off.test": c.off, "soft.test": c.soft, "hard.test": c.hard} {
				client := p.tlsClient(ca.Pool(), version, c.cert)
				_, err := client.request(site)
				if (err == nil) != enters {
					t.Errorf("TLS %s, %s, %s: %v; enters: want %v", name, site, c.name, err, enters)
				}
				if enters && err == nil {
					client.want(t, fmt.Sprintf("TLS %s, %s, %s, resumed", name, site, c.name), site, true)
				}
			}
		}
	}
	for reason, site := range map[string]string{"client_cert_revoked": "soft.test", "client_cert_unchecked": "hard.test"} {
		if n := p.metric("tlsproxy_handshake_failures_total", fmt.Sprintf("reason=%q", reason)); n < 2 {
			t.Errorf("%s of %s is counted %v times", reason, site, n)
		}
	}
	for _, result := range []string{"good", "revoked", "unavailable"} {
		if n := p.metric("tlsproxy_client_ocsp_checks_total", fmt.Sprintf("result=%q", result)); n < 1 {
			t.Errorf("checks of client certificates with the result %s: %v", result, n)
		}
	}
	if n := p.metric("tlsproxy_client_auth_ocsp_soft_failures_total", `site="soft.test"`); n < 4 {
		t.Errorf("%v soft failures are counted", n)
	}
	counted := p.metric("tlsproxy_client_auth_ocsp_soft_failures_total")
	p.mustReload()
	if n := p.metric("tlsproxy_client_auth_ocsp_soft_failures_total"); n != counted {
		t.Errorf("%v soft failures after a reload, %v before", n, counted)
	}

	// Sessions made before the revocation was known do not help.
	sessions := map[string]*tlsClient{}
	for name, version := range bothVersions {
		for site, cert := range map[string]tls.Certificate{"soft.test": late, "hard.test": brief} {
			c := p.tlsClient(ca.Pool(), version, cert)
			c.want(t, "before the revocation", site, false)
			c.want(t, "before the revocation", site, true)
			sessions[name+" "+site] = c
		}
	}
	startOpenSSL(t, clients, later).serve(nil, []*x509.Certificate{late.Leaf})
	short.Set(brief.Leaf.SerialNumber, pki.Revoked)
	for name, c := range sessions {
		_, site, _ := strings.Cut(name, " ")
		session := c.session
		hits := func() float64 { return p.metric("tlsproxy_session_lookups_total", `result="hit"`) }
		var before float64
		eventually(t, "a resumed connection is refused: TLS "+name, func() bool {
			c.session, before = session, hits()
			_, err := c.request(site)
			return err != nil
		})
		if hits() == before {
			t.Errorf("TLS %s: the refused connection was no resumed one", name)
		}
		c.session = session // which is gone by now
		if _, err := c.request(site); err == nil {
			t.Errorf("TLS %s: let in again", name)
		}
	}
}

// TestClientCRLs: complete and delta lists take effect on the next connection,
// resumed ones included, and a broken list closes its site alone.
func TestClientCRLs(t *testing.T) {
	t.Parallel()
	ca, clients := newCA(t), newCA(t)
	p := newProxy(t, strings.NewReplacer("ocsp: soft", `crl_file: ["{{dir}}/full.crl", "{{dir}}/delta.crl"]`, "ocsp: hard", "").Replace(clientsConfig))
	p.issue(ca, "tls", pki.Request{Names: []string{"off.test", "soft.test", "hard.test"}})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	good, bad, held := clientCert(t, clients, "good"), clientCert(t, clients, "bad"), clientCert(t, clients, "held")
	const onHold, removeFromCRL = 6, 8
	list := func(file string, number, base int64, entries ...x509.RevocationListEntry) {
		t.Helper()
		template := &x509.RevocationList{
			Number: big.NewInt(number), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour), RevokedCertificateEntries: entries,
		}
		if base > 0 {
			value, err := asn1.Marshal(big.NewInt(base))
			if err != nil {
				t.Fatal(err)
			}
			template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: value}}
		}
		der, err := x509.CreateRevocationList(rand.Reader, template, clients.Certificate, clients.Key)
		if err != nil {
			t.Fatal(err)
		}
		next := p.write(file+".next", string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})))
		if err := os.Rename(next, filepath.Join(p.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(c tls.Certificate, reason int) x509.RevocationListEntry {
		return x509.RevocationListEntry{SerialNumber: c.Leaf.SerialNumber, RevocationTime: time.Now().Add(-time.Minute), ReasonCode: reason}
	}
	list("full.crl", 1, 0, entry(held, onHold))
	list("delta.crl", 2, 1)
	p.start()
	p.waitReady()
	client := func(c tls.Certificate) *tlsClient { return p.tlsClient(ca.Pool(), tls.VersionTLS13, c) }
	enters := func(c *tlsClient, site string) bool {
		_, err := c.request(site)
		return err == nil
	}
	goodClient, badClient, heldClient := client(good), client(bad), client(held)
	goodClient.want(t, "good", "soft.test", false)
	badClient.want(t, "bad, not yet revoked", "soft.test", false)
	badClient.want(t, "bad, not yet revoked", "soft.test", true)
	if enters(heldClient, "soft.test") {
		t.Error("a certificate on hold enters")
	}
	session := badClient.session
	list("delta.crl", 3, 1, entry(bad, 1), entry(held, removeFromCRL))
	eventually(t, "a resumed connection is refused by the delta list", func() bool {
		badClient.session = session
		return !enters(badClient, "soft.test")
	})
	eventually(t, "the delta list has taken the hold away", func() bool { return enters(heldClient, "soft.test") })
	goodClient.want(t, "good", "soft.test", true)
	if n := p.metric("tlsproxy_handshake_failures_total", `reason="client_cert_revoked"`); n < 2 {
		t.Errorf("client_cert_revoked is counted %v times", n)
	}

	p.write("delta.crl", "half a li")
	eventually(t, "a broken list closes the site", func() bool { return !enters(goodClient, "soft.test") })
	if !enters(client(good), "off.test") {
		t.Error("a broken list of one site closes another")
	}
	if n := p.metric("tlsproxy_client_auth_available", `site="soft.test"`); n != 0 {
		t.Errorf("tlsproxy_client_auth_available is %v", n)
	}
	list("delta.crl", 4, 1)
	eventually(t, "the site is open again", func() bool { return enters(goodClient, "soft.test") })
}

// TestMustStapleIsNeverBare: however often a must-staple certificate is swapped,
// and the configuration reloaded meanwhile, no handshake gets it without its own
// staple.
func TestMustStapleIsNeverBare(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	responder := startGated(t, ca, pki.ResponderOptions{})
	p := newProxy(t, filesConfig)
	request := pki.Request{Names: []string{"localhost"}, OCSPServers: []string{responder.url}, MustStaple: true}
	p.issue(ca, "tls", request)
	p.start()
	p.waitReady()
	eventually(t, "the first staple is there", func() bool { return p.look(ca, "localhost").staple != nil })
	var last *tls.Certificate
	leaves := make(map[string]bool)
	for i := range 60 {
		last = p.issue(ca, "tls", request)
		if i%3 == 0 {
			p.reload() // which may come between the two files
		}
		for range 5 {
			got := p.look(ca, "localhost")
			if got.staple == nil {
				t.Fatalf("swap %d: a handshake without staple", i)
			}
			leaves[string(got.leaf.Raw)] = true
		}
	}
	eventually(t, "the last certificate is served", func() bool {
		got := p.look(ca, "localhost")
		return got.leaf.Equal(last.Leaf) && got.staple != nil
	})
	if len(leaves) < 3 {
		t.Errorf("only %d certificates were seen: this test shows nothing", len(leaves))
	}
}
