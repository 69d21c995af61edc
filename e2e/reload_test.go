package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// newCA makes a CA for one test.
func newCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewRoot(pki.CAOptions{Name: "e2e CA"})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// issue makes a certificate and writes it as NAME.crt and NAME.key, each by
// rename, as a careful deployment does.
func (p *proxy) issue(ca *pki.CA, name string, r pki.Request) *tls.Certificate {
	p.t.Helper()
	cert, err := ca.Issue(r)
	if err != nil {
		p.t.Fatal(err)
	}
	next := filepath.Join(p.dir, name+".next")
	if err := pki.WritePair(cert, next+".crt", next+".key"); err != nil {
		p.t.Fatal(err)
	}
	for _, ext := range []string{".key", ".crt"} {
		if err := os.Rename(next+ext, filepath.Join(p.dir, name+ext)); err != nil {
			p.t.Fatal(err)
		}
	}
	return cert
}

// servedSerial is the serial number of the certificate that a new client sees.
func (p *proxy) servedSerial(pool *x509.CertPool, name string) (*big.Int, error) {
	conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: name, RootCAs: pool})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber, nil
}

const filesConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - hosts: [localhost]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// TestReloadUnderLoad reloads a hundred times and swaps the certificate twenty
// times while h2load runs: no request fails, each new certificate is served
// within a second, and neither goroutines nor memory grow.
func TestReloadUnderLoad(t *testing.T) {
	h2load := testtool.Require(t, "h2load", "nghttp2-client")
	ca := newCA(t)
	p := newProxy(t, filesConfig)
	p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
	p.start()
	p.waitReady()

	_, port, _ := net.SplitHostPort(p.addr)
	var loads [2]bytes.Buffer
	var running sync.WaitGroup
	var stop atomic.Bool
	for i, flags := range [][]string{{"--h1"}, {"-m", "4"}} {
		running.Go(func() {
			for first := true; first || !stop.Load(); first = false {
				args := append([]string{"-n", "4000", "-c", "8"}, flags...)
				out, err := exec.Command(h2load, append(args, "https://localhost:"+port+"/")...).CombinedOutput()
				m := h2loadResult.FindStringSubmatch(string(out))
				if err != nil || m == nil || m[2] != "4000" || m[3] != "0" || m[4] != "0" {
					fmt.Fprintf(&loads[i], "h2load %v: %v\n%s", flags, err, out)
					return
				}
			}
		})
	}

	var warm, end usage
	for i := range 100 {
		p.mustReload()
		if i%5 == 4 {
			cert := p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
			swapped := time.Now()
			eventually(t, "the new certificate is served", func() bool {
				serial, err := p.servedSerial(ca.Pool(), "localhost")
				return err == nil && serial.Cmp(cert.Leaf.SerialNumber) == 0
			})
			if took := time.Since(swapped); took > time.Second {
				t.Errorf("swap %d: the new certificate was served after %v, want within a second", i/5, took)
			}
		}
		if i == 9 {
			warm = p.usage()
		}
	}
	end = p.usage()
	stop.Store(true)
	running.Wait()
	for i := range loads {
		if loads[i].Len() > 0 {
			t.Error(loads[i].String())
		}
	}
	if n := p.metric("tlsproxy_config_reloads_total", `result="success"`); n != 100 {
		t.Errorf("tlsproxy_config_reloads_total{result=success} = %v, want 100", n)
	}
	t.Logf("goroutines %v -> %v, heap %v -> %v MiB", warm.goroutines, end.goroutines, warm.heap>>20, end.heap>>20)
	if end.goroutines > warm.goroutines+20 {
		t.Errorf("goroutines grew from %d to %d over 90 reloads", warm.goroutines, end.goroutines)
	}
	if end.heap > 2*warm.heap+16<<20 {
		t.Errorf("heap grew from %d to %d bytes over 90 reloads", warm.heap, end.heap)
	}
}

// usage is what a process holds.
type usage struct{ goroutines, heap int }

// usage takes the least of several looks, which leaves garbage that is not yet
// collected and requests of the moment out of it.
func (p *proxy) usage() usage {
	p.t.Helper()
	least := usage{1 << 30, 1 << 60}
	for range 20 {
		runtime, ok := p.status()["runtime"].(map[string]any)
		if !ok {
			p.t.Fatal("/api/status has no runtime")
		}
		least.goroutines = min(least.goroutines, int(runtime["goroutines"].(float64)))
		least.heap = min(least.heap, int(runtime["heap_bytes"].(float64)))
		time.Sleep(50 * time.Millisecond)
	}
	return least
}

// TestRefusedReload keeps the old configuration serving, and says why in the
// log, in the answer, in /api/status and in metrics.
func TestRefusedReload(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	p.writeConfig(strings.Replace(echoConfig, "upstream: echo", "upstream: ehco", 1))
	code, body := p.reload()
	if code == http.StatusOK || !strings.Contains(body, "config.yaml:9: sites[0].routes[0].upstream") || !strings.Contains(body, "ehco") {
		t.Errorf("reload of a broken file answered %d %q, want an error with file and line", code, body)
	}
	if text := p.status()["config"].(map[string]any)["last_error"]; !strings.Contains(fmt.Sprint(text), "ehco") {
		t.Errorf("/api/status says %q of the reload", text)
	}
	if !strings.Contains(p.stderr.String(), "ehco") {
		t.Error("the log does not say why the reload was refused")
	}
	if n := p.metric("tlsproxy_config_reloads_total", `result="failure"`); n != 1 {
		t.Errorf("tlsproxy_config_reloads_total{result=failure} = %v, want 1", n)
	}
	if n := p.metric("tlsproxy_config_last_reload_successful"); n != 0 {
		t.Errorf("tlsproxy_config_last_reload_successful = %v, want 0", n)
	}
	resp, err := p.client(pool, true).Get("https://localhost/")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("after a refused reload: %v %v", resp, err)
	}
	resp.Body.Close()

	p.writeConfig(echoConfig)
	p.signal(syscall.SIGHUP)
	eventually(t, "SIGHUP has reloaded", func() bool { return p.metric("tlsproxy_config_last_reload_successful") == 1 })
}

// TestReloadMovesListeners binds a new address before it gives up the old one,
// and a port that is taken refuses the whole reload.
func TestReloadMovesListeners(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	old := p.addr

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p.writeConfig(strings.Replace(echoConfig, "{{tls}}", taken.Addr().String(), 1))
	if code, body := p.reload(); code == http.StatusOK || !strings.Contains(body, "address already in use") {
		t.Errorf("reload onto a port in use answered %d %q", code, body)
	}
	if _, err := p.servedSerial(pool, "localhost"); err != nil {
		t.Errorf("the old listener does not serve after the refused reload: %v", err)
	}

	p.addr = net.JoinHostPort("127.0.0.1", fmt.Sprint(testtool.FreePort(t)))
	p.writeConfig(echoConfig)
	p.mustReload()
	if _, err := p.servedSerial(pool, "localhost"); err != nil {
		t.Errorf("the new listener does not serve: %v", err)
	}
	eventually(t, "the old listener is gone", func() bool {
		conn, err := net.Dial("tcp", old)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// TestReloadOntoOwnAddress: a reload that would have to give up a listener
// before it has the next is refused, says which one is in the way, and works by
// way of another port.
func TestReloadOntoOwnAddress(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	_, port, _ := net.SplitHostPort(p.addr)
	everywhere := strings.Replace(echoConfig, "{{tls}}", ":"+port, 1)
	exchanged := strings.Replace(echoConfig, "{{http}}", p.admin, 1) + "\nadmin: {address: \"{{http}}\"}\n"
	for text, wants := range map[string][]string{
		everywhere: {fmt.Sprintf("config.yaml:3: listeners[0].address: listener \":%s\"", port), fmt.Sprintf("by %q, listeners[0].address of the configuration in force", p.addr)},
		exchanged: {
			"http.address: ", fmt.Sprintf("by %q, admin.address of the configuration in force", p.admin),
			"admin.address: ", fmt.Sprintf("by %q, http.address of the configuration in force", p.http),
		},
	} {
		p.writeConfig(text)
		code, body := p.reload()
		if code == http.StatusOK {
			t.Fatalf("a reload onto an own address was not refused: %s", body)
		}
		var said struct{ Error string }
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		for _, want := range wants {
			if !strings.Contains(said.Error, want) {
				t.Errorf("the refusal does not say %q:\n%s", want, said.Error)
			}
		}
	}
	if _, err := p.servedSerial(pool, "localhost"); err != nil {
		t.Errorf("the listener does not serve after refused reloads: %v", err)
	}
	for _, address := range []string{fmt.Sprintf("127.0.0.1:%d", testtool.FreePort(t)), ":" + port} {
		p.writeConfig(strings.Replace(echoConfig, "{{tls}}", address, 1))
		p.mustReload()
	}
	if _, err := p.servedSerial(pool, "localhost"); err != nil {
		t.Errorf("the listener does not serve on every address: %v", err)
	}
}

// TestSessionsSurviveReload: a site whose policy did not change keeps its
// sessions, one whose policy changed loses them.
func TestSessionsSurviveReload(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	client := p.client(pool, false)
	if get(t, client).TLS.DidResume {
		t.Fatal("the first connection resumed")
	}
	p.mustReload()
	if !get(t, client).TLS.DidResume {
		t.Error("a reload without a change of policy ended the session")
	}
	p.writeConfig(strings.Replace(echoConfig, "hosts: [localhost]\n", "hosts: [localhost]\n    tls: {min_version: \"1.3\"}\n", 1))
	p.mustReload()
	if get(t, client).TLS.DidResume {
		t.Error("a session resumed although the site's policy had changed")
	}
	if n := p.metric("tlsproxy_session_lookups_total", `result="scope"`); n < 1 {
		t.Errorf("tlsproxy_session_lookups_total{result=scope} = %v, want at least 1", n)
	}
}

// get makes one request on a connection of its own.
func get(t *testing.T, client *http.Client) *http.Response {
	t.Helper()
	resp, err := client.Get("https://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	client.CloseIdleConnections()
	return resp
}

// TestSIGTERMUnderLoad: every request that is in flight when SIGTERM comes is
// answered in full, and the process ends cleanly.
func TestSIGTERMUnderLoad(t *testing.T) {
	const slow = 40 // requests in flight
	arrived, release := make(chan struct{}, slow), make(chan struct{})
	backend := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		io.WriteString(w, strings.Repeat("x", 100_000))
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go backend.Serve(ln)
	defer backend.Close()

	p := startProxy(t, strings.Replace(echoConfig, "builtin:echo", "http://"+ln.Addr().String(), 1)+
		"\nshutdown: {delay: 500ms, grace: 20s}\n")
	_, pool := p.devCA()
	results := make(chan error, slow)
	for i := range slow {
		client := p.client(pool, i%2 == 0)
		go func() {
			resp, err := client.Get("https://localhost/")
			if err != nil {
				results <- err
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 100_000 {
				results <- fmt.Errorf("%s with %d bytes, %v", resp.Status, n, err)
				return
			}
			results <- nil
		}()
	}
	for range slow {
		<-arrived
	}
	p.signal(syscall.SIGTERM)
	eventually(t, "/readyz says no while it drains", func() bool {
		code, _ := p.adminGet("/readyz")
		return code == http.StatusServiceUnavailable
	})
	eventually(t, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if code, _ := p.adminGet("/metrics"); code != http.StatusOK {
		t.Errorf("/metrics answered %d during the drain", code)
	}
	close(release)
	for range slow {
		if err := <-results; err != nil {
			t.Errorf("a request in flight at SIGTERM: %v", err)
		}
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestSecondSignal stops at once, with status 1, whatever is in flight.
func TestSecondSignal(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	p := startProxy(t, strings.Replace(echoConfig, "builtin:echo", "http://"+backend.Addr().String(), 1))
	_, pool := p.devCA()
	client := p.client(pool, true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := client.Get("https://localhost/"); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "the request is in flight", func() bool { return p.metric("tlsproxy_connections", `state="active"`) > 0 })
	p.signal(syscall.SIGTERM)
	eventually(t, "the drain has begun", func() bool {
		code, _ := p.adminGet("/readyz")
		return code == http.StatusServiceUnavailable
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 1 {
		t.Errorf("exit status %d, want 1", code)
	}
	<-done
}

// TestQuit is the control that ends a sidecar when its job is done.
func TestQuit(t *testing.T) {
	p := startProxy(t, echoConfig)
	resp, err := http.Post("http://"+p.admin+"/api/quit", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}
