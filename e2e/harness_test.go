package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// binary is the program under test, built once by TestMain.
var binary string

func TestMain(m *testing.M) {
	// The tests that run beside one another wait for other programs more than
	// they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(buildAndRun(m))
}

// builtBinary hands the program under test to the processes of isolated tests.
const builtBinary = "TLSPROXY_E2E_BINARY"

func buildAndRun(m *testing.M) int {
	if binary = os.Getenv(builtBinary); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tlsproxy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "tlsproxy")
	build := exec.Command("go", "build", "-o", binary, "../cmd/tlsproxy")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the program under test:", err)
		return 1
	}
	if err := os.Setenv(builtBinary, binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait for a condition. It is long because the machine
// may be busy; a test that passes never comes near it.
const patience = 30 * time.Second

// eventually polls cond until it holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %v: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// proxy is one running tlsproxy.
type proxy struct {
	t      *testing.T
	dir    string // working directory, with config.yaml and state/
	admin  string // host:port
	addr   string // host:port of the first TLS listener
	http   string // host:port of the plain HTTP listener, where configured
	cmd    *exec.Cmd
	stdout *logBuffer
	stderr *logBuffer
	exited chan struct{}
}

// logBuffer collects a process's output; safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newProxy writes a configuration and returns a proxy that is not running.
// In the text, {{tls}}, {{http}} and {{admin}} stand for free addresses of
// loopback and {{dir}} for the test's directory. The admin listener and the
// state directory are added when the text has none.
func newProxy(t *testing.T, text string) *proxy {
	t.Helper()
	p := &proxy{
		t: t, dir: t.TempDir(),
		addr:  net.JoinHostPort("127.0.0.1", strconv.Itoa(testtool.FreePort(t))),
		http:  net.JoinHostPort("127.0.0.1", strconv.Itoa(testtool.FreePort(t))),
		admin: net.JoinHostPort("127.0.0.1", strconv.Itoa(testtool.FreePort(t))),
	}
	p.writeConfig(text)
	return p
}

// writeConfig replaces the configuration file; a running proxy sees it at its
// next reload.
func (p *proxy) writeConfig(text string) {
	p.t.Helper()
	if !strings.Contains(text, "\nadmin:") {
		text += "\nadmin: {address: \"{{admin}}\"}\n"
	}
	if !strings.Contains(text, "\nstate_dir:") {
		text += "\nstate_dir: \"{{dir}}/state\"\n"
	}
	text = strings.NewReplacer("{{tls}}", p.addr, "{{http}}", p.http, "{{admin}}", p.admin, "{{dir}}", p.dir).Replace(text)
	p.write("config.yaml", text)
}

// write puts a file into the proxy's directory and returns its path.
func (p *proxy) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// startProxy writes a configuration, starts tlsproxy and waits until it is ready.
func startProxy(t *testing.T, text string) *proxy {
	t.Helper()
	p := newProxy(t, text)
	p.start()
	p.waitReady()
	return p
}

// start runs the binary. The test's end stops it and shows its log if the
// test failed.
func (p *proxy) start(env ...string) {
	p.t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), env...)
	p.run(cmd)
}

// run is start for a command that is, or ends by becoming, tlsproxy.
func (p *proxy) run(cmd *exec.Cmd) {
	p.t.Helper()
	p.stdout, p.stderr, p.exited = new(logBuffer), new(logBuffer), make(chan struct{})
	p.cmd = cmd
	p.cmd.Args = append(p.cmd.Args, "-config", filepath.Join(p.dir, "config.yaml"))
	p.cmd.Dir = p.dir
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	exited := p.exited
	go func() {
		cmd.Wait()
		close(exited)
	}()
	p.t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
		if p.t.Failed() {
			p.t.Logf("log of tlsproxy:\n%s", lastLines(p.stderr.String(), 60))
		}
	})
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (p *proxy) waitReady() {
	p.t.Helper()
	eventually(p.t, "/readyz answers 200", func() bool {
		select {
		case <-p.exited:
			p.t.Fatalf("tlsproxy ended while it should have become ready:\n%s", p.stderr)
		default:
		}
		code, _ := p.adminGet("/readyz")
		return code == http.StatusOK
	})
}

// wait returns the exit status of a proxy that is expected to end.
func (p *proxy) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("tlsproxy still runs after %v", patience)
		return -1
	}
}

func (p *proxy) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// reload asks for a reload over the admin API and returns its answer.
func (p *proxy) reload() (int, string) {
	p.t.Helper()
	return p.post("/api/reload", "")
}

// post sends JSON to the admin listener.
func (p *proxy) post(path, body string) (int, string) {
	p.t.Helper()
	// Each on a connection of its own: one that was kept may be closed at the
	// moment of its next use by a server whose address has moved.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+p.admin+path, "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer)
}

// refused checks that neither -check nor a start accepts the configuration, and
// that both say why.
func (p *proxy) refused(words ...string) {
	p.t.Helper()
	status, output := p.check()
	p.start()
	for run, got := range map[string]struct {
		status int
		output string
	}{"-check": {status, output}, "start": {p.wait(), p.stderr.String()}} {
		if got.status != 1 {
			p.t.Errorf("%s: exit status %d, want 1", run, got.status)
		}
		for _, want := range words {
			if !strings.Contains(got.output, want) {
				p.t.Errorf("%s does not say %q:\n%s", run, want, got.output)
			}
		}
		if strings.Contains(got.output, "panic") || strings.Contains(got.output, "goroutine ") {
			p.t.Errorf("%s panicked:\n%s", run, got.output)
		}
	}
}

// mustReload reloads and fails the test if the reload was refused.
func (p *proxy) mustReload() {
	p.t.Helper()
	if code, body := p.reload(); code != http.StatusOK {
		p.t.Fatalf("reload answered %d: %s", code, body)
	}
}

// adminGet fetches a path of the admin listener; 0 stands for no answer.
func (p *proxy) adminGet(path string) (int, string) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// status decodes /api/status into v, or into a map if v is nil.
func (p *proxy) status() map[string]any {
	p.t.Helper()
	code, body := p.adminGet("/api/status")
	if code != http.StatusOK {
		p.t.Fatalf("/api/status answered %d: %s", code, body)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		p.t.Fatalf("/api/status: %v in %s", err, body)
	}
	return v
}

// metric returns the sum of all samples of a metric whose labels contain every
// one of the given `name="value"` pairs; a metric without samples is 0.
func (p *proxy) metric(name string, labels ...string) float64 {
	p.t.Helper()
	code, body := p.adminGet("/metrics")
	if code != http.StatusOK {
		p.t.Fatalf("/metrics answered %d: %s", code, body)
	}
	return sumMetric(p.t, body, name, labels...)
}

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^\n]*\})? ([^ \n]+)$`)

func sumMetric(t *testing.T, text, name string, labels ...string) float64 {
	t.Helper()
	var sum float64
samples:
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if m[1] != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(m[2], label) {
				continue samples
			}
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatalf("sample %q: %v", m[0], err)
		}
		sum += v
	}
	return sum
}

// run executes a program with a bounded time and returns its combined output.
func run(t *testing.T, stdin string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun is run for a program that has to succeed.
func mustRun(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	out, err := run(t, stdin, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// devCA returns the path of the development CA's certificate, which the proxy
// writes on first use, and a pool with it.
func (p *proxy) devCA() (string, *x509.CertPool) {
	p.t.Helper()
	path := filepath.Join(p.dir, "state", "local", "ca.crt")
	pem, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		p.t.Fatalf("%s holds no certificate", path)
	}
	return path, pool
}

// client returns an HTTP client that trusts pool, dials the proxy whatever the
// URL's host, and resumes from a cache of its own.
func (p *proxy) client(pool *x509.CertPool, h2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	transport := &http.Transport{
		Protocols: protocols,
		TLSClientConfig: &tls.Config{
			RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(0),
		},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		},
	}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// testCommand is a command that is told to end, and killed if it does not.
func testCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
