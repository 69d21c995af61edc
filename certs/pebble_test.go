package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

const pebbleVersion = "@v2.10.3"

// pebble is a running ACME CA, the name server that it asks, and the host that
// it validates.
type pebble struct {
	t         *testing.T
	directory string
	caFile    string // for the directory
	mgmt      string
	dns       string // management of the name server; "": it is another one
	log       *logBuffer
	client    *http.Client
	*edge
}

// pebbleOptions are what tests vary.
type pebbleOptions struct {
	env      []string
	config   map[string]any // added to Pebble's configuration
	dns      string         // name server instead of pebble-challtestsrv
	validity time.Duration  // of certificates; 0: 90 days
}

func newPebble(t *testing.T, o pebbleOptions) *pebble {
	t.Helper()
	dir := t.TempDir()
	p := &pebble{t: t, log: new(logBuffer), edge: newEdge(t)}
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := writePair(t, dir, "pebble", issue(t, ca, pki.Request{Names: []string{"localhost", "127.0.0.1"}}))
	p.caFile = filepath.Join(dir, "ca.pem")
	writeFile(t, p.caFile, pki.CertificatePEM(ca.Certificate))
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, DisableKeepAlives: true}, Timeout: 10 * time.Second}

	dnsServer := o.dns
	if dnsServer == "" {
		dnsServer, p.dns = startDNS(t)
	}
	bin := testtool.Install(t, "github.com/letsencrypt/pebble/v2/cmd/pebble"+pebbleVersion)
	configFile := filepath.Join(dir, "pebble.json")
	startReady(t, func() *exec.Cmd {
		acmeAddr, mgmtAddr := testtool.FreeAddr(t), testtool.FreeAddr(t)
		p.directory, p.mgmt = "https://"+acmeAddr+"/dir", "https://"+mgmtAddr
		writeFile(t, configFile, p.config(o, own, acmeAddr, mgmtAddr))
		cmd := exec.Command(bin, "-config", configFile, "-dnsserver", dnsServer)
		cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
		cmd.Env = append(cmd.Env, o.env...)
		cmd.Stdout, cmd.Stderr = p.log, p.log
		return cmd
	}, func() bool {
		resp, err := p.client.Get(p.directory)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Pebble's log:\n%s", p.log)
		}
	})
	return p
}

// config is Pebble's configuration file.
func (p *pebble) config(o pebbleOptions, own *Files, acmeAddr, mgmtAddr string) []byte {
	validity := 90 * 24 * time.Hour
	if o.validity > 0 {
		validity = o.validity
	}
	config := map[string]any{
		"listenAddress":           acmeAddr,
		"managementListenAddress": mgmtAddr,
		"certificate":             own.Cert,
		"privateKey":              own.Key,
		"httpPort":                p.httpPort,
		"tlsPort":                 p.tlsPort,
		"keyAlgorithm":            "ecdsa",
		"retryAfter":              map[string]int{"authz": 1, "order": 1},
		"profiles": map[string]any{"default": map[string]any{
			"description": "default", "validityPeriod": int(validity.Seconds()),
		}},
	}
	maps.Copy(config, o.config)
	data, err := json.Marshal(map[string]any{"pebble": config})
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

// startReady starts a program and waits until it is ready. One that ends
// before is started again, with other ports: somebody else may have taken one.
func startReady(t *testing.T, command func() *exec.Cmd, ready func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for range 5 {
		cmd := command()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			cmd.Wait()
		}()
		if waitReady(ready, ended, deadline) {
			t.Cleanup(func() {
				cmd.Process.Kill()
				<-ended
			})
			return
		}
		cmd.Process.Kill()
		<-ended
	}
	t.Fatalf("%s does not get ready", command().Path)
}

func waitReady(ready func() bool, ended <-chan struct{}, deadline time.Time) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for now := range tick.C {
		select {
		case <-ended:
			return false
		default:
		}
		if ready() {
			return true
		}
		if now.After(deadline) {
			return false
		}
	}
	return false
}

// start runs a program until the test ends.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// startDNS runs Pebble's name server, which answers 127.0.0.1 for every name.
func startDNS(t *testing.T) (server, management string) {
	t.Helper()
	bin := testtool.Install(t, "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"+pebbleVersion)
	startReady(t, func() *exec.Cmd {
		server, management = testtool.FreeAddr(t), testtool.FreeAddr(t)
		return exec.Command(bin, "-dnsserver", server, "-management", management,
			"-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", "")
	}, func() bool {
		conn, err := net.Dial("tcp", management)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return server, "http://" + management
}

// post sends JSON to a management interface.
func (p *pebble) post(url string, body any) {
	p.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client.Post(url, "application/json", bytes.NewReader(data))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		p.t.Fatalf("POST %s: %s\n%s", url, resp.Status, text)
	}
}

// breakDNS makes a name unresolvable, and mendDNS undoes that.
func (p *pebble) breakDNS(name string) {
	p.t.Helper()
	p.post(p.dns+"/set-servfail", map[string]string{"host": name})
}

func (p *pebble) mendDNS(name string) {
	p.t.Helper()
	p.post(p.dns+"/clear-servfail", map[string]string{"host": name})
}

// roots are the CA's own roots.
func (p *pebble) roots() *x509.CertPool {
	p.t.Helper()
	resp, err := p.client.Get(p.mgmt + "/roots/0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		p.t.Fatal("no root in Pebble's answer")
	}
	return pool
}

// setARI sets the renewal window of a certificate.
func (p *pebble) setARI(leaf *x509.Certificate, start, end time.Time) {
	p.t.Helper()
	window, err := json.Marshal(map[string]any{
		"suggestedWindow": map[string]time.Time{"start": start, "end": end},
		"explanationURL":  "https://ca.test/why",
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.post(p.mgmt+"/set-renewal-info/", map[string]string{
		"Certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})),
		"ARIResponse": string(window),
	})
}

// issued counts the certificates issued so far.
func (p *pebble) issued() int { return strings.Count(p.log.String(), "Issued certificate serial") }

// source is an ACME source of this CA. Each test has names of its own, because
// the library knows the challenges of a process by their names alone.
func (p *pebble) source(change func(*ACME), hosts ...string) Source {
	a := &ACME{
		Hosts:   hosts,
		Email:   "ops@example.test",
		Issuers: []Issuer{{Directory: p.directory, CAFile: p.caFile}},
	}
	if change != nil {
		change(a)
	}
	return Source{ACME: a}
}

// edge is the host that a CA connects to: plain HTTP and TLS listeners in front
// of stores.
type edge struct {
	httpPort, tlsPort int
	tlsAddr           string

	mu     sync.Mutex
	stores []*Store
	gate   sync.RWMutex // held for writing: requests wait
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := new(edge)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.httpPort = plain.Addr().(*net.TCPAddr).Port
	e.tlsPort = secure.Addr().(*net.TCPAddr).Port
	e.tlsAddr = secure.Addr().String()
	config := &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c := &tls.Config{GetCertificate: e.getCertificate, NextProtos: []string{"h2", "http/1.1"}}
			if isChallenge(hello) {
				c.NextProtos = hello.SupportedProtos
			}
			return c, nil
		},
	}
	discard := slog.NewLogLogger(slog.DiscardHandler, 0)
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	servers := []*http.Server{
		{Handler: http.HandlerFunc(e.plain), ErrorLog: discard},
		{Handler: ok, ErrorLog: discard},
	}
	var wg sync.WaitGroup
	wg.Go(func() { servers[0].Serve(plain) })
	wg.Go(func() { servers[1].Serve(tls.NewListener(secure, config)) })
	t.Cleanup(func() {
		servers[0].Close()
		servers[1].Close()
		wg.Wait()
	})
	return e
}

// add puts a store behind the listeners.
func (e *edge) add(s *Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stores = append(e.stores, s)
}

// only puts one store there instead of all.
func (e *edge) only(s *Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stores = []*Store{s}
}

func (e *edge) list() []*Store {
	e.gate.RLock()
	defer e.gate.RUnlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.stores)
}

func (e *edge) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	err := error(ErrUnknownName)
	for _, s := range e.list() {
		var cert *tls.Certificate
		if cert, err = s.GetCertificate(hello); err == nil {
			return cert, nil
		}
	}
	return nil, err
}

func (e *edge) plain(w http.ResponseWriter, r *http.Request) {
	h := http.Handler(http.NotFoundHandler())
	for _, s := range e.list() {
		h = s.HTTPChallenge(h)
	}
	h.ServeHTTP(w, r)
}

// dial makes a handshake as a client and returns the leaf.
func (e *edge) dial(name string, roots *x509.CertPool, protos ...string) (*x509.Certificate, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 10 * time.Second},
		Config:    &tls.Config{ServerName: name, RootCAs: roots, NextProtos: protos, InsecureSkipVerify: roots == nil},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", e.tlsAddr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// newACMEStore makes a store that waits little after failures.
func newACMEStore(t testing.TB, o Options) *Store {
	t.Helper()
	if o.StateDir == "" && o.Storage == nil {
		o.StateDir = t.TempDir()
	}
	s := newStore(t, o)
	s.seams.backoff = func(failures int) time.Duration { return min(200*time.Millisecond<<failures, 2*time.Second) }
	return s
}

// obtained waits until a name has a certificate of its own.
func obtained(t testing.TB, s *Store, limit time.Duration, names ...string) {
	t.Helper()
	eventually(t, limit, fmt.Sprintf("obtained: %v", names), func() bool {
		for _, name := range names {
			leaf := served(s, name)
			if leaf == nil || leaf.VerifyHostname(name) != nil {
				return false
			}
		}
		return true
	})
}

func statusOf(s *Store, name string) Status {
	for _, st := range s.Status() {
		if slices.Contains(st.Names, name) {
			return st
		}
	}
	return Status{}
}
