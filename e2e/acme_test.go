package e2e

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// pebble is an ACME CA that validates against one proxy.
type pebble struct {
	directory, mgmt string
	client          *http.Client
	log             *logBuffer
}

// pebbleOptions are what tests vary.
type pebbleOptions struct {
	validity  time.Duration // of certificates; 0: a day
	env       []string      // added to the environment: faults
	responder string        // URL of an OCSP responder that certificates name; "": none
}

// issued is how many certificates were issued.
func (ca *pebble) issued() int { return strings.Count(ca.log.String(), "Issued certificate serial") }

// startPebble runs Pebble and its name server, which answers 127.0.0.1 for
// every name, and writes the CA of Pebble's own certificate to the proxy's
// directory as pebble.pem.
func startPebble(t *testing.T, p *proxy, o pebbleOptions) *pebble {
	t.Helper()
	own := newCA(t)
	p.issue(own, "pebble", pki.Request{Names: []string{"127.0.0.1"}})
	p.write("pebble.pem", string(pki.CertificatePEM(own.Certificate)))
	port := func(addr string) int {
		_, text, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(text)
		return n
	}
	keys := "ecdsa"
	if o.responder != "" {
		keys = "rsa" // the only ones that Pebble hands out, for a responder to sign with
	}
	acme, mgmt := testtool.FreeAddr(t), testtool.FreeAddr(t)
	dns, dnsMgmt := testtool.FreeAddr(t), testtool.FreeAddr(t)
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": acme, "managementListenAddress": mgmt,
		"certificate": filepath.Join(p.dir, "pebble.crt"), "privateKey": filepath.Join(p.dir, "pebble.key"),
		"httpPort": port(p.http), "tlsPort": port(p.addr), "keyAlgorithm": keys, "ocspResponderURL": o.responder,
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "default", "validityPeriod": int(cmp.Or(o.validity, 24*time.Hour).Seconds())}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	startProcess(t, testtool.Install(t, "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.3"),
		"-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dnsserver", dns, "-management", dnsMgmt,
		"-doh", "", "-http01", "", "-https01", "", "-tlsalpn01", "")
	args := append([]string{"PEBBLE_VA_NOSLEEP=1"}, o.env...)
	args = append(args, testtool.Install(t, "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3"),
		"-config", p.write("pebble.json", string(config)), "-dnsserver", dns)
	log := startProcess(t, testtool.Require(t, "env", "coreutils"), args...)
	ca := &pebble{log: log, directory: "https://" + acme + "/dir", mgmt: "https://" + mgmt, client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: own.Pool()}, DisableKeepAlives: true}, Timeout: 5 * time.Second,
	}}
	eventually(t, "Pebble answers", func() bool {
		resp, err := ca.client.Get(ca.directory)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return ca
}

// get fetches a PEM file of the management interface and decodes it.
func (ca *pebble) get(t *testing.T, path string) []byte {
	t.Helper()
	resp, err := ca.client.Get(ca.mgmt + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s: %q", path, text)
	}
	return block.Bytes
}

// issuer is the CA that signs certificates which name a responder.
func (ca *pebble) issuer(t *testing.T) *pki.CA {
	t.Helper()
	cert, err := x509.ParseCertificate(ca.get(t, "/intermediates/0"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS1PrivateKey(ca.get(t, "/intermediate-keys/0"))
	if err != nil {
		t.Fatal(err)
	}
	return &pki.CA{Certificate: cert, Key: key}
}

// pool holds the root of the certificates that Pebble issues.
func (ca *pebble) pool(t *testing.T) *x509.CertPool {
	t.Helper()
	resp, err := ca.client.Get(ca.mgmt + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	pem, _ := io.ReadAll(resp.Body)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("Pebble's root: %q", pem)
	}
	return pool
}

const acmeConfig = `
listeners:
  - address: "{{tls}}"
http: {address: "{{http}}"}
certificates:
  - acme: {hosts: [open.test, closed.test], directory: "%s", ca_file: "{{dir}}/pebble.pem", challenges: [%s]}
sites:
  - hosts: [open.test]
    routes: [{upstream: echo}]
  - hosts: [closed.test]
    tls: {client_auth: {mode: require, ca_file: "{{dir}}/pebble.pem"}}
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// TestACME obtains certificates from Pebble, by either challenge, also for a
// site that asks clients for certificates, while a start waits for nothing.
func TestACME(t *testing.T) {
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			p := newProxy(t, "")
			ca := startPebble(t, p, pebbleOptions{})
			p.writeConfig(fmt.Sprintf(acmeConfig, ca.directory, challenge))
			p.start()
			p.waitReady()
			pool := ca.pool(t)
			eventually(t, "the certificate of the open site is served", func() bool {
				_, err := p.servedSerial(pool, "open.test")
				return err == nil
			})
			eventually(t, "the certificate of the closed site is there", func() bool {
				// Without a client certificate the handshake fails only after the
				// client has seen the server's.
				var seen *x509.Certificate
				conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "closed.test", RootCAs: pool, VerifyConnection: func(s tls.ConnectionState) error {
					seen = s.PeerCertificates[0]
					return nil
				}})
				if err == nil {
					conn.Close()
				}
				return seen != nil && seen.VerifyHostname("closed.test") == nil
			})
			checkPrivate(t, filepath.Join(p.dir, "state", "acme"))
		})
	}
}

// checkPrivate fails the test for every file below dir that others may read.
func checkPrivate(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%s: %d files, %v", dir, files, err)
	}
}

// TestACMERenewalUnderLoad renews a short-lived certificate while h2load runs:
// no request fails, and the new certificate is served.
func TestACMERenewalUnderLoad(t *testing.T) {
	t.Parallel() // it waits for most of a certificate's life
	h2load := testtool.Require(t, "h2load", "nghttp2-client")
	p := newProxy(t, "")
	ca := startPebble(t, p, pebbleOptions{validity: 45 * time.Second})
	p.writeConfig(fmt.Sprintf(acmeConfig, ca.directory, "tls-alpn-01"))
	p.start()
	p.waitReady()
	pool := ca.pool(t)
	eventually(t, "the first certificate is served", func() bool {
		_, err := p.servedSerial(pool, "open.test")
		return err == nil
	})
	first, err := p.servedSerial(pool, "open.test")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.addr)
	stop, loaded := make(chan struct{}), make(chan string, 1)
	go func() {
		for {
			select {
			case <-stop:
				loaded <- ""
				return
			default:
			}
			out, err := exec.Command(h2load, "-n", "2000", "-c", "4", "--connect-to=127.0.0.1:"+port, "https://open.test/").CombinedOutput()
			if m := h2loadResult.FindStringSubmatch(string(out)); err != nil || m == nil || m[2] != "2000" {
				loaded <- fmt.Sprintf("%v\n%s", err, out)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	p.patiently(90*time.Second, "the renewed certificate is served", func() bool {
		serial, err := p.servedSerial(pool, "open.test")
		if err != nil {
			t.Fatalf("handshake during the renewal: %v", err)
		}
		return serial.Cmp(first) != 0
	})
	close(stop)
	if failed := <-loaded; failed != "" {
		t.Errorf("h2load during the renewal: %s", failed)
	}
	if n := p.metric("tlsproxy_handshake_failures_total", `reason="internal"`); n != 0 {
		t.Errorf("%v internal failures", n)
	}
	if strings.Contains(p.stderr.String(), "panic") {
		t.Error("the log has a panic")
	}
}
