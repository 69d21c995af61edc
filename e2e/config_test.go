package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// check runs tlsproxy -check on the proxy's configuration.
func (p *proxy) check() (status int, output string) {
	p.t.Helper()
	cmd := exec.Command(binary, "-config", filepath.Join(p.dir, "config.yaml"), "-check")
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestBrokenConfigurations: exit status 1, every error with its place, no
// panic, and a start says the same as -check.
func TestBrokenConfigurations(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ",") + "]\n"
	}
	tests := []struct {
		name, text string
		want       []string // every one must be in the output
	}{
		{"unknown", strings.Replace(filesConfig, "routes:", "rutes:", 1), []string{`config.yaml:8`, `did you mean "routes"`}},
		{"misspelled", strings.Replace(filesConfig, "listeners:", "lisenters:", 1), []string{`config.yaml:2`, `did you mean "listeners"`}},
		{"duplicate", filesConfig + "\nsites: []\n", []string{"config.yaml:12", "sites"}},
		{"wrong type", filesConfig + "\nlimits: {connections: many}\n", []string{"config.yaml:12", "limits.connections"}},
		{"missing file", strings.Replace(filesConfig, "tls.key", "absent.key", 1), []string{"config.yaml:5", "certificates[0].key", "absent.key", "no such file"}},
		{"mismatched pair", strings.Replace(filesConfig, "tls.key", "other.key", 1), []string{"config.yaml:5", "certificates[0]", "other.key"}},
		{"overlapping hosts", strings.Replace(filesConfig, "upstreams:", "  - hosts: [LocalHost]\n    routes: [{upstream: echo}]\nupstreams:", 1), []string{"config.yaml:9", "sites[1].hosts[0]", "line 7"}},
		{"dangling upstream", strings.Replace(filesConfig, "upstream: echo", "upstream: ehco", 1), []string{"config.yaml:8", `did you mean "echo"`}},
		{"missing CA", strings.Replace(filesConfig, "    routes:", "    tls: {client_auth: {mode: require, ca_file: /absent/ca.pem}}\n    routes:", 1), []string{"config.yaml:8", "/absent/ca.pem"}},
		{"two at once", strings.NewReplacer("upstream: echo", "upstream: ehco", "builtin:echo", "ftp://x").Replace(filesConfig), []string{"config.yaml:8", "config.yaml:10"}},
		{"empty", "", []string{"config.yaml"}},
		{"not YAML", "listeners: [\n", []string{"config.yaml"}},
		{"binary", "\x00\x01\xff\xfe", []string{"config.yaml"}},
		{"YAML bomb", bomb + filesConfig, []string{"config.yaml"}},
	}
	ca := newCA(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, filesConfig)
			p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
			p.issue(ca, "other", pki.Request{Names: []string{"localhost"}})
			text := strings.NewReplacer("{{tls}}", p.addr, "{{dir}}", p.dir).Replace(tt.text)
			p.write("config.yaml", text)

			p.refused(tt.want...)
		})
	}
}

// TestCheckTouchesNothing: a good configuration is ok, whether its ports are in
// use or not, and nothing is written, neither certificates of the development
// CA nor the state directory.
func TestCheckTouchesNothing(t *testing.T) {
	p := newProxy(t, echoConfig)
	taken, err := net.Listen("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if status, output := p.check(); status != 0 || !strings.Contains(output, "ok") {
		t.Errorf("-check: exit status %d\n%s", status, output)
	}
	if entries, _ := os.ReadDir(p.dir); len(entries) != 1 {
		t.Errorf("-check left %v", entries)
	}
}

// TestPortInUse: a start names the listener, its place and the cause.
func TestPortInUse(t *testing.T) {
	p := newProxy(t, echoConfig)
	taken, err := net.Listen("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p.start()
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	for _, want := range []string{"config.yaml:3", "listeners[0].address", p.addr, "address already in use: by another process"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the error does not say %q:\n%s", want, p.stderr)
		}
	}
}

// TestRelativeFiles: an error names the absolute path of a file that was given
// as a relative one.
func TestRelativeFiles(t *testing.T) {
	p := newProxy(t, strings.NewReplacer("{{dir}}/tls.crt", "tls.crt", "{{dir}}/tls.key", "sub/tls.key").Replace(filesConfig))
	p.refused("certificates[0].cert: open "+p.dir+"/tls.crt: no such file", "certificates[0].key: open "+p.dir+"/sub/tls.key: no such file")
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "-config is missing"},
		{[]string{"-nonsense"}, 2, "not defined"},
		{[]string{"nonsense"}, 2, "unknown command"},
		{[]string{"-version"}, 0, "tlsproxy"},
		{[]string{"-h"}, 0, "usage"},
		{[]string{"-config", "/absent/config.yaml"}, 1, "/absent/config.yaml"},
		{[]string{"healthcheck", "-admin", "127.0.0.1:1"}, 1, "refused"},
		{[]string{"sessions"}, 2, "usage"},
		{[]string{"sessions", "revoke", "site"}, 2, "takes one name"},
		{[]string{"probe"}, 2, ""},
		{[]string{"ocsp"}, 2, ""},
	} {
		cmd := exec.Command(binary, tt.args...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(string(out), tt.want) {
			t.Errorf("tlsproxy %v: exit status %d, want %d with %q:\n%s", tt.args, got, tt.status, tt.want, out)
		}
	}
}

// TestFileCertificatesNeedNoState: a configuration of file certificates alone
// runs where no state directory can be made.
func TestFileCertificatesNeedNoState(t *testing.T) {
	p := newProxy(t, filesConfig+"\nstate_dir: /proc/nowhere\n")
	ca := newCA(t)
	p.issue(ca, "tls", pki.Request{Names: []string{"localhost"}})
	p.start()
	p.waitReady()
	if _, err := p.servedSerial(ca.Pool(), "localhost"); err != nil {
		t.Error(err)
	}
}

// TestHealthcheckCommand is what HEALTHCHECK runs.
func TestHealthcheckCommand(t *testing.T) {
	p := startProxy(t, echoConfig)
	mustRun(t, "", binary, "healthcheck", "-config", filepath.Join(p.dir, "config.yaml"))
	mustRun(t, "", binary, "healthcheck", "-live", "-admin", p.admin)
}
