package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// directoryConfig serves the pairs of a directory for any name.
const directoryConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - directory: "{{dir}}/pairs"
sites:
  - hosts: ["*"]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// certificateStatus is what /api/status says of one certificate.
type certificateStatus struct {
	Name, Source, Fingerprint string
	Names, Warnings           []string
	NotAfter                  time.Time `json:"not_after"`
	KeyType                   string    `json:"key_type"`
	LastError                 string    `json:"last_error"`
}

type stapleStatus struct {
	Certificate string
	Names       []string
	State       string
	LastResult  string    `json:"last_result"`
	NextFetch   time.Time `json:"next_fetch"`
}

// certificates returns what /api/status says of certificates and staples, by
// file and by fingerprint.
func (p *proxy) certificates() (map[string]certificateStatus, map[string]stapleStatus) {
	p.t.Helper()
	_, body := p.adminGet("/api/status")
	var status struct {
		Certificates []certificateStatus
		Staples      []stapleStatus
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		p.t.Fatalf("/api/status: %v", err)
	}
	certs, staples := make(map[string]certificateStatus), make(map[string]stapleStatus)
	for _, c := range status.Certificates {
		certs[filepath.Base(c.Name)] = c
	}
	for _, s := range status.Staples {
		staples[s.Certificate] = s
	}
	return certs, staples
}

// TestThousandCertificates: a start with 1,000 certificates waits for no
// responder, and one stuck responder among three delays the staples of its own
// certificates alone. Status and metrics know every one of them.
func TestThousandCertificates(t *testing.T) {
	t.Parallel()
	const n = 1000
	ca := newCA(t)
	p := newProxy(t, directoryConfig)
	var responders []*gatedResponder
	for range 3 {
		responders = append(responders, startGated(t, ca, pki.ResponderOptions{}))
	}
	responders[1].hold()
	p.write("pairs/.keep", "")
	for i := range n {
		cert, err := ca.Issue(pki.Request{Names: []string{fmt.Sprintf("c%d.test", i)}, OCSPServers: []string{responders[i%3].url}})
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Join(p.dir, "pairs", fmt.Sprintf("c%d", i))
		if err := pki.WritePair(cert, base+".crt", base+".key"); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	p.start()
	p.waitReady()
	ready := time.Since(began)
	if ready > 10*time.Second { // alone it takes a tenth of that
		t.Errorf("ready after %v", ready)
	}
	for i := range 30 {
		p.look(ca, fmt.Sprintf("c%d.test", i)) // before most of the staples are there
	}
	healthy := n - n/3
	p.patiently(90*time.Second, "the other responders' certificates are stapled", func() bool {
		return p.metric("tlsproxy_ocsp_certificates", `state="stapled"`) >= float64(healthy)
	})
	t.Logf("ready after %v, all staples to be had after %v", ready, time.Since(began))
	for i := range 60 {
		began := time.Now()
		if got := p.look(ca, fmt.Sprintf("c%d.test", i)); (got.staple != nil) != (i%3 != 1) {
			t.Errorf("certificate %d: a staple: %v", i, got.staple != nil)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a handshake took %v", took)
		}
	}
	certs, staples := p.certificates()
	if len(certs) != n || len(staples) != n {
		t.Errorf("/api/status has %d certificates and %d staples", len(certs), len(staples))
	}
	for name, c := range certs {
		if len(c.Names) != 1 || c.KeyType == "" || c.NotAfter.IsZero() || staples[c.Fingerprint].State == "" {
			t.Fatalf("/api/status says of %s: %+v, %+v", name, c, staples[c.Fingerprint])
		}
	}
	_, text := p.adminGet("/metrics")
	for _, name := range []string{"tlsproxy_certificate_expiry_timestamp_seconds", "tlsproxy_ocsp_staple_expiry_timestamp_seconds"} {
		if got := strings.Count(text, "\n"+name+"{"); got != n {
			t.Errorf("%d values of %s", got, name)
		}
	}
	if p.metric("tlsproxy_ocsp_fetches_total", `result="timeout"`) == 0 {
		t.Error("the stuck responder was not asked: this test shows nothing")
	}
}

// TestDamagedState: whatever lies in the state directory, the start does not
// fail or wait, nothing wrong is stapled, and everything is fetched anew.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	responder := startGated(t, ca, pki.ResponderOptions{})
	p := newProxy(t, directoryConfig)
	p.write("pairs/.keep", "")
	damages := map[string]func(path string, good []byte) error{
		"whole": nil,
		"corrupt": func(path string, good []byte) error {
			return os.WriteFile(path, append(good[:len(good)-1:len(good)-1], good[len(good)-1]^1), 0o600)
		},
		"truncated": func(path string, good []byte) error { return os.WriteFile(path, good[:100], 0o600) },
		"empty":     func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"foreign":   nil, // below
		"expired":   nil, // below
		"fifo":      func(path string, _ []byte) error { return syscall.Mkfifo(path, 0o600) },
		"directory": func(path string, _ []byte) error { return os.Mkdir(path, 0o700) }, // unreadable, whoever we are
		"loop":      func(path string, _ []byte) error { return os.Symlink(path, path) },
	}
	leaves := make(map[string]*x509.Certificate)
	for name := range damages {
		leaves[name] = p.issue(ca, "pairs/"+name, pki.Request{Names: []string{name + ".test"}, OCSPServers: []string{responder.url}}).Leaf
	}
	all := func() bool { return p.metric("tlsproxy_ocsp_certificates", `state="stapled"`) == float64(len(damages)) }
	p.start()
	p.waitReady()
	eventually(t, "all are stapled", all)
	p.signal(syscall.SIGTERM)
	p.wait()
	foreign, err := os.ReadFile(p.stapleFile(leaves["whole"], ".der"))
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-48 * time.Hour)
	expired, err := pki.ResponseSpec{ProducedAt: then, Signer: ca.Key, SignerCert: ca.Certificate, Singles: []pki.SingleSpec{
		{CertID: pki.CertID{Serial: leaves["expired"].SerialNumber, Issuer: ca.Certificate}, ThisUpdate: then, NextUpdate: then.Add(time.Hour)},
	}}.Sign()
	if err != nil {
		t.Fatal(err)
	}
	damages["foreign"] = func(path string, _ []byte) error { return os.WriteFile(path, foreign, 0o600) }
	damages["expired"] = func(path string, _ []byte) error { return os.WriteFile(path, expired, 0o600) }
	for name, damage := range damages {
		if damage == nil {
			continue
		}
		path := p.stapleFile(leaves[name], ".der")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := damage(path, good); err != nil {
			t.Fatal(err)
		}
	}
	responder.hold()
	p.start()
	p.waitReady()
	for name := range damages {
		if stapled := p.look(ca, name+".test").staple != nil; stapled != (name == "whole") {
			t.Errorf("%s: stapled: %v", name, stapled)
		}
		if n := p.count("stored ocsp response is not used", p.stapleFile(leaves[name], ".der")); (n == 1) != (name != "whole") {
			t.Errorf("%s: %d warnings", name, n)
		}
	}
	responder.open()
	eventually(t, "all are stapled again", all)
	if n := p.count("cannot be stored"); n != 1 { // the directory in the way
		t.Errorf("%d warnings about what cannot be stored", n)
	}
}

// TestFullAndReadOnlyState: a state directory that takes nothing is told of
// once, and costs nothing else.
func TestFullAndReadOnlyState(t *testing.T) {
	t.Parallel()
	if !testtool.Isolated(t) {
		return
	}
	ca := newCA(t)
	p := newProxy(t, directoryConfig)
	state := filepath.Join(p.dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("a small file system (this needs mount): %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(state, syscall.MNT_DETACH) })
	fill, err := os.Create(filepath.Join(state, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	fill.Close()
	responder := startGated(t, ca, pki.ResponderOptions{})
	p.write("pairs/.keep", "")
	names := []string{"a.test", "b.test", "c.test"}
	for _, name := range names {
		p.issue(ca, "pairs/"+name, pki.Request{Names: []string{name}, OCSPServers: []string{responder.url}})
	}
	for _, kind := range []string{"full", "read-only"} {
		if kind == "read-only" {
			if err := syscall.Mount("", state, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}
		p.start()
		p.waitReady()
		eventually(t, kind+": all are stapled", func() bool {
			return p.metric("tlsproxy_ocsp_certificates", `state="stapled"`) == float64(len(names))
		})
		for _, name := range names {
			if p.look(ca, name).staple == nil {
				t.Errorf("%s: no staple for %s", kind, name)
			}
		}
		eventually(t, kind+": the failures are counted", func() bool { return p.metric("tlsproxy_ocsp_persist_errors_total") == 3 })
		if n := p.count("cannot be stored"); n != 1 {
			t.Errorf("%s: %d warnings", kind, n)
		}
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%s: exit status %d", kind, code)
		}
	}
}

// TestKindsOfFiles: what OpenSSL writes is served, encrypted or not.
func TestKindsOfFiles(t *testing.T) {
	ca := newCA(t)
	openssl := testtool.Require(t, "openssl", "openssl")
	p := newProxy(t, `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/plain.crt", key: "{{dir}}/plain.key"}
  - {pkcs12: "{{dir}}/modern.p12", passphrase_file: "{{dir}}/pass"}
  - {pkcs12: "{{dir}}/legacy.p12", passphrase_file: "{{dir}}/pass"}
  - {cert: "{{dir}}/pkcs8.crt", key: "{{dir}}/pkcs8.enc", passphrase_file: "{{dir}}/pass"}
  - {cert: "{{dir}}/scrypt.crt", key: "{{dir}}/scrypt.enc", passphrase_file: "{{dir}}/pass"}
  - {cert: "{{dir}}/rsa.crt", key: "{{dir}}/rsa.enc", passphrase_file: "{{dir}}/pass"}
  - {cert: "{{dir}}/single.pem", key: "{{dir}}/single.pem"}
sites:
  - hosts: ["*"]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`)
	pass := p.write("pass", "open sesame\n")
	leaves := make(map[string]*x509.Certificate)
	for _, name := range []string{"plain", "modern", "legacy", "pkcs8", "scrypt", "rsa", "single"} {
		r := pki.Request{Names: []string{name + ".test"}}
		if name == "rsa" {
			r.KeyType = pki.RSA2048
		}
		leaves[name] = p.issue(ca, name, r).Leaf
	}
	file := func(name string) string { return filepath.Join(p.dir, name) }
	p12 := []string{"pkcs12", "-export", "-passout", "file:" + pass}
	mustRun(t, "", openssl, append(p12, "-in", file("modern.crt"), "-inkey", file("modern.key"), "-out", file("modern.p12"))...)
	mustRun(t, "", openssl, append(p12, "-legacy", "-in", file("legacy.crt"), "-inkey", file("legacy.key"), "-out", file("legacy.p12"))...)
	mustRun(t, "", openssl, "pkcs8", "-topk8", "-in", file("pkcs8.key"), "-out", file("pkcs8.enc"), "-passout", "file:"+pass)
	mustRun(t, "", openssl, "pkcs8", "-topk8", "-scrypt", "-in", file("scrypt.key"), "-out", file("scrypt.enc"), "-passout", "file:"+pass)
	mustRun(t, "", openssl, "rsa", "-aes128", "-traditional", "-in", file("rsa.key"), "-out", file("rsa.enc"), "-passout", "file:"+pass)
	var both bytes.Buffer
	for _, part := range []string{"single.key", "single.crt"} {
		data, err := os.ReadFile(file(part))
		if err != nil {
			t.Fatal(err)
		}
		both.Write(data)
	}
	p.write("single.pem", both.String())
	p.start()
	p.waitReady()
	for name, leaf := range leaves {
		if got := p.look(ca, name+".test"); !got.leaf.Equal(leaf) {
			t.Errorf("%s is not served", name)
		}
	}

	p.write("pass", "wrong\n")
	code, body := p.reload()
	if code == 200 || strings.Count(body, "passphrase does not open the key") < 4 {
		t.Errorf("reload with a wrong passphrase answers %d: %s", code, body)
	}
	for name, leaf := range leaves {
		if got := p.look(ca, name+".test"); !got.leaf.Equal(leaf) {
			t.Errorf("%s is not served after a refused reload", name)
		}
	}
}

// pairOf are the bytes of a certificate and its key.
func pairOf(t *testing.T, cert *tls.Certificate) (chain, key []byte) {
	t.Helper()
	dir := t.TempDir()
	if err := pki.WritePair(cert, filepath.Join(dir, "c"), filepath.Join(dir, "k")); err != nil {
		t.Fatal(err)
	}
	chain, err := os.ReadFile(filepath.Join(dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	if key, err = os.ReadFile(filepath.Join(dir, "k")); err != nil {
		t.Fatal(err)
	}
	return chain, key
}

// volume is a directory in the manner of a Kubernetes volume: the files are
// links through ..data, which is replaced.
type volume struct {
	t   *testing.T
	dir string
	n   int
}

func (v *volume) swap(cert *tls.Certificate) {
	v.t.Helper()
	v.n++
	chain, key := pairOf(v.t, cert)
	name := fmt.Sprintf("..%d", v.n)
	must := func(err error) {
		v.t.Helper()
		if err != nil {
			v.t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(v.dir, name), 0o755))
	must(os.WriteFile(filepath.Join(v.dir, name, "tls.crt"), chain, 0o600))
	must(os.WriteFile(filepath.Join(v.dir, name, "tls.key"), key, 0o600))
	must(os.Symlink(name, filepath.Join(v.dir, "..tmp")))
	must(os.Rename(filepath.Join(v.dir, "..tmp"), filepath.Join(v.dir, "..data")))
	if v.n == 1 {
		for _, file := range []string{"tls.crt", "tls.key"} {
			must(os.Symlink(filepath.Join("..data", file), filepath.Join(v.dir, file)))
		}
		return
	}
	must(os.RemoveAll(filepath.Join(v.dir, fmt.Sprintf("..%d", v.n-1))))
}

// issueFor makes a certificate without writing it.
func issueFor(t *testing.T, ca *pki.CA, names ...string) *tls.Certificate {
	t.Helper()
	cert, err := ca.Issue(pki.Request{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestFastSwaps: 64 swaps a second of a volume's link, and reloads meanwhile:
// every handshake succeeds, and the last certificate is served within a second
// of the last swap.
func TestFastSwaps(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	p := newProxy(t, directoryConfig)
	v := &volume{t: t, dir: filepath.Join(p.dir, "pairs", "volume")}
	v.swap(issueFor(t, ca, "localhost"))
	p.start()
	p.waitReady()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	handshakes := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "localhost", RootCAs: ca.Pool()})
			if err != nil {
				t.Errorf("handshake between swaps: %v", err)
				return
			}
			conn.Close()
			handshakes++
		}
	})
	var certs []*tls.Certificate
	for range 200 {
		certs = append(certs, issueFor(t, ca, "localhost"))
	}
	last := certs[len(certs)-1]
	tick := time.NewTicker(time.Second / 64)
	began := time.Now()
	defer tick.Stop()
	for i, cert := range certs {
		<-tick.C
		v.swap(cert)
		if i%50 == 25 {
			p.reload() // which may come between two files
		}
	}
	swapped := time.Now()
	eventually(t, "the last certificate is served", func() bool { return p.look(ca, "localhost").leaf.Equal(last.Leaf) })
	took := time.Since(swapped)
	close(stop)
	wg.Wait()
	t.Logf("the last of %d swaps in %v was served after %v; %d handshakes", len(certs), swapped.Sub(began), took, handshakes)
	if took > 3*time.Second { // on a busy machine; a second is the promise
		t.Errorf("served %v after the last swap", took)
	}
	eventually(t, "no error is left", func() bool {
		status, _ := p.certificates()
		return status["tls.crt"].LastError == "" && p.metric("tlsproxy_certificate_failing") == 0
	})
}

// TestFilesInTransit: partial writes, a key before its certificate, deletion:
// the old certificate serves on, the status says why, and it passes by itself.
func TestFilesInTransit(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	p := newProxy(t, filesConfig)
	current := p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
	p.start()
	p.waitReady()
	serves := func() bool { return p.look(ca, "localhost").leaf.Equal(current.Leaf) }
	failing := func(what, reason string) {
		t.Helper()
		eventually(t, what+" shows in the status", func() bool {
			certs, _ := p.certificates()
			return strings.Contains(certs["tls.crt"].LastError, reason) && p.metric("tlsproxy_certificate_failing") == 1
		})
		if !serves() {
			t.Errorf("%s: the old certificate is not served", what)
		}
	}
	next := issueFor(t, ca, "localhost")
	chain, key := pairOf(t, next)
	p.write("tls.key", string(key))
	failing("a key without its certificate", "belongs to none")
	p.write("tls.crt", string(chain[:len(chain)/3]))
	failing("half a certificate", "no certificate")
	p.write("tls.crt", string(chain))
	current = next
	eventually(t, "the whole pair is served", serves)

	if err := os.Remove(filepath.Join(p.dir, "tls.crt")); err != nil {
		t.Fatal(err)
	}
	failing("a deleted certificate", "no such file")
	if code, _ := p.reload(); code == 200 {
		t.Error("a reload without the file succeeds")
	}
	if !serves() {
		t.Error("the old certificate is not served after a refused reload")
	}
	p.write("tls.crt", string(chain))
	eventually(t, "the error has passed", func() bool { return p.metric("tlsproxy_certificate_failing") == 0 && serves() })
	if err := os.Remove(filepath.Join(p.dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(p.dir, "tls.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	failing("a named pipe", "not a regular file")
	p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
	eventually(t, "the error has passed", func() bool { return p.metric("tlsproxy_certificate_failing") == 0 })
}

// TestWithoutInotify runs in a user namespace in which nothing can be watched:
// certificates and revocation lists are polled.
func TestWithoutInotify(t *testing.T) {
	t.Parallel()
	ca, clients := newCA(t), newCA(t)
	p := newProxy(t, strings.NewReplacer("ocsp: soft", `allow_file: "{{dir}}/allow"`, "ocsp: hard", "").Replace(clientsConfig))
	names := []string{"off.test", "soft.test", "hard.test"}
	p.issue(ca, "tls", pki.Request{Names: names})
	p.write("clients.pem", string(pki.CertificatePEM(clients.Certificate)))
	p.write("allow", "dns:somebody\n")
	unshare := testtool.Require(t, "unshare", "util-linux")
	real := binary
	script := p.write("limited", "#!/bin/sh\necho 0 > /proc/sys/user/max_inotify_instances && exec "+real+` "$@"`+"\n")
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	p.run(exec.Command(unshare, "--user", "--map-root-user", script))
	p.waitReady()
	eventually(t, "files are polled, which the log says", func() bool {
		return p.metric("tlsproxy_certificate_files_polled") == 1 && p.count("files cannot be watched") == 1
	})
	next := p.issue(ca, "tls", pki.Request{Names: names})
	changed := time.Now()
	eventually(t, "the new certificate is served", func() bool {
		// A client without a certificate sees the server's before it is refused.
		var leaf *x509.Certificate
		conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "off.test", RootCAs: ca.Pool(), VerifyConnection: func(s tls.ConnectionState) error {
			leaf = s.PeerCertificates[0]
			return nil
		}})
		if err == nil {
			conn.Close()
		}
		return leaf != nil && leaf.Equal(next.Leaf)
	})
	if took := time.Since(changed); took > 5*time.Second {
		t.Errorf("the new certificate is served after %v", took)
	}
	client := p.tlsClient(ca.Pool(), tls.VersionTLS13, clientCert(t, clients, "somebody"))
	client.want(t, "an allowed client", "soft.test", false)
	p.write("allow", "dns:nobody\n")
	changed = time.Now()
	eventually(t, "the client is refused", func() bool { _, err := client.request("soft.test"); return err != nil })
	if took := time.Since(changed); took > 5*time.Second {
		t.Errorf("the client is refused after %v", took)
	}
}

// TestOddCertificates: certificates that are strange but usable are served,
// with their strangeness told, and none of them hinders another.
func TestOddCertificates(t *testing.T) {
	ca := newCA(t)
	p := newProxy(t, directoryConfig)
	p.write("pairs/.keep", "")
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf("host-%d.many.test", i))
	}
	past := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	}
	leaves := make(map[string]*x509.Certificate)
	for name, r := range map[string]pki.Request{
		"many":     {Names: many},
		"nosan":    {CommonName: "nosan.test"},
		"noname":   {Template: func(c *x509.Certificate) { c.Subject.CommonName = "" }},
		"ca":       {Names: []string{"ca.test"}, Template: func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }},
		"old":      {Names: []string{"old.test", "both.test"}, Template: past},
		"new":      {Names: []string{"both.test"}},
		"wild":     {Names: []string{"*.wild.test", "xn--bcher-kva.test"}},
		"client":   {Names: []string{"client.test"}, Client: true},
		"zz-again": {Names: []string{"both.test"}},
	} {
		leaves[name] = p.issue(ca, "pairs/"+name, r).Leaf
	}
	for _, file := range []string{"new.crt", "new.key"} { // the same pair once more
		data, err := os.ReadFile(filepath.Join(p.dir, "pairs", file))
		if err != nil {
			t.Fatal(err)
		}
		p.write("pairs/copy/"+file, string(data))
	}
	p.start()
	p.waitReady()
	seen := func(name string) *x509.Certificate {
		t.Helper()
		conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	for name, want := range map[string]string{
		"host-0.many.test": "many", "host-1999.many.test": "many", "nosan.test": "nosan", "ca.test": "ca", "old.test": "old",
		"both.test": "new", "www.wild.test": "wild", "xn--bcher-kva.test": "wild", "WWW.WILD.TEST": "wild", "client.test": "client",
	} {
		if got := seen(name); !got.Equal(leaves[want]) {
			t.Errorf("%s is served with the certificate for %v", name, got.Subject)
		}
	}
	p.look(ca, "host-1000.many.test")
	certs, _ := p.certificates()
	for name, warning := range map[string]string{
		"nosan": "no subject alternative name", "noname": "no name", "ca": "is that of a CA", "old": "expired on", "client": "not for servers", "many": "",
	} {
		got := certs[name+".crt"]
		if found := slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, warning) }); found != (warning != "") && warning != "" {
			t.Errorf("%s: warnings %q", name, got.Warnings)
		}
	}
	p.mustReload()
}
