package proxybench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
)

// values are what the configurations of the servers are made with.
type values struct {
	Port    int    // to listen on
	Backend string // host:port
	Cert    string // certificate, PEM
	Key     string
	Pair    string // both in one file
	Dir     string
	Log     string // of access; "": off
	Admin   int    // port, for what only tlsproxy tells

	BackendPort string
	Processors  int
	Root        bool // hitch refuses to be root
}

// servers lists all that can be measured, in the order of the table. The programs
// are Debian's; Caddy and tlsproxy are built.
func servers(extra []Binary) []*server {
	list := []*server{tlsproxy("tlsproxy", "", false)}
	for _, x := range extra {
		list = append(list, tlsproxy(x.Name, x.Path, false))
	}
	return append(list,
		tlsproxy("tlsproxy+log", "", true),
		&server{name: "nginx", debian: "nginx-light", h2: true, compare: true, command: configured(nginxConf, "/usr/sbin/nginx", "-c")},
		&server{name: "haproxy", debian: "haproxy", h2: true, compare: true, command: configured(haproxyConf, "/usr/sbin/haproxy", "-db", "-f")},
		&server{name: "hitch", debian: "hitch", compare: true, command: configured(hitchConf, "/usr/sbin/hitch", "--config")},
		&server{name: "caddy", h2: true, compare: true, command: caddy},
		&server{name: "plain-go", h2: true, compare: true, command: self("plain")},
		&server{name: "floor", command: self("floor")},
	)
}

func (b *Bench) values(dir string, port int) values {
	return values{
		Port: port, Backend: b.backendAddr, Dir: dir,
		BackendPort: strings.TrimPrefix(b.backendAddr, "127.0.0.1:"), Processors: runtime.NumCPU(), Root: os.Getuid() == 0,
		Cert: filepath.Join(b.dir, "tls", "cert.pem"), Key: filepath.Join(b.dir, "tls", "key.pem"), Pair: filepath.Join(b.dir, "tls", "pair.pem"),
	}
}

// write fills in a configuration and returns its path.
func (v values) write(text string) (string, error) {
	t, err := template.New("").Parse(text)
	if err != nil {
		return "", err
	}
	path := filepath.Join(v.Dir, "config")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := t.Execute(f, v); err != nil {
		return "", err
	}
	return path, f.Close()
}

// configured starts a program whose last argument is its configuration.
func configured(text, program string, args ...string) func(*Bench, string, int) (*exec.Cmd, error) {
	return func(b *Bench, dir string, port int) (*exec.Cmd, error) {
		path, err := b.values(dir, port).write(text)
		if err != nil {
			return nil, err
		}
		return exec.Command(program, append(args, path)...), nil
	}
}

func tlsproxy(name, binary string, log bool) *server {
	return &server{name: name, h2: true, compare: true, command: func(b *Bench, dir string, port int) (*exec.Cmd, error) {
		v := b.values(dir, port)
		if log {
			v.Log = filepath.Join(dir, "access.log")
		}
		var err error
		if v.Admin, err = freePort(); err != nil {
			return nil, err
		}
		path, err := v.write(tlsproxyConf)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "admin"), fmt.Appendf(nil, "127.0.0.1:%d", v.Admin), 0o600); err != nil {
			return nil, err
		}
		program := binary
		if program == "" {
			if program, err = b.buildTLSProxy(); err != nil {
				return nil, err
			}
		}
		return exec.Command(program, "-config", path), nil
	}}
}

func caddy(b *Bench, dir string, port int) (*exec.Cmd, error) {
	program, err := b.buildCaddy()
	if err != nil {
		return nil, err
	}
	path, err := b.values(dir, port).write(caddyConf)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "run", "--adapter", "caddyfile", "--config", path)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	return cmd, nil
}

// self starts this program in another role.
func self(role string) func(*Bench, string, int) (*exec.Cmd, error) {
	return func(b *Bench, dir string, port int) (*exec.Cmd, error) {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		v := b.values(dir, port)
		return exec.Command(program, role, fmt.Sprintf("127.0.0.1:%d", port), v.Backend, v.Cert, v.Key), nil
	}
}

// buildTLSProxy builds the parent module's command as a release is built.
func (b *Bench) buildTLSProxy() (string, error) {
	path := filepath.Join(b.dir, "tlsproxy")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	b.logf("building tlsproxy")
	cmd := exec.CommandContext(b.ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/tlsproxy")
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

const caddyVersion = "v2.11.9"

// buildCaddy builds Caddy once, into a directory that outlives the run.
func (b *Bench) buildCaddy() (string, error) {
	dir := filepath.Join(b.root, ".cache", "caddy-"+caddyVersion)
	path := filepath.Join(dir, "caddy")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	b.logf("building Caddy %s, once: that takes a few minutes", caddyVersion)
	cmd := exec.CommandContext(b.ctx, "go", "install", "github.com/caddyserver/caddy/v2/cmd/caddy@"+caddyVersion)
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install: %w\n%s", err, out)
	}
	return path, nil
}

// missing names the Debian packages of the servers and tools that are not there.
func missing(list []*server) []string {
	need := map[string]string{"/usr/sbin/nginx": "nginx-light", "/usr/bin/h2load": "nghttp2-client"}
	for _, s := range list {
		if s.debian != "" {
			need["/usr/sbin/"+strings.TrimSuffix(s.debian, "-light")] = s.debian
		}
	}
	var packages []string
	for path, name := range need {
		if _, err := os.Stat(path); err != nil {
			packages = append(packages, name)
		}
	}
	return packages
}
