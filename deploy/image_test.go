// Package deploy tests what the files beside it promise: the container image,
// the systemd unit, the Kubernetes manifest and the compose file.
package deploy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

const repository = ".."

// image is what the Dockerfile says of the last stage, and how its binary is
// built.
type image struct {
	build       []string // go build … as in the first stage, without -o
	user, group int
	env         []string
	entrypoint  []string
	command     []string
	health      []string
}

// readDockerfile reads as much of the Dockerfile as the test acts on. What it
// does not find fails the test.
func readDockerfile(t *testing.T) image {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	find := func(expression string) string {
		m := regexp.MustCompile(`(?m)` + expression).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("Dockerfile has no line like %s", expression)
		}
		return m[1]
	}
	list := func(text string) []string {
		var words []string
		if err := json.Unmarshal([]byte(text), &words); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return words
	}
	var im image
	flags := find(`^RUN CGO_ENABLED=0 go build (.*) -o /out/tlsproxy \./cmd/tlsproxy$`)
	before, ldflags, ok := strings.Cut(flags, `-ldflags "`)
	if !ok {
		t.Fatalf("no -ldflags in %q", flags)
	}
	ldflags, after, _ := strings.Cut(ldflags, `"`)
	ldflags = strings.ReplaceAll(ldflags, "${VERSION}", "v1.2.3-test")
	im.build = slices.Concat(strings.Fields(before), []string{"-ldflags", ldflags}, strings.Fields(after))
	if from := find(`^FROM ([a-z:]+)$`); from != "scratch" {
		t.Errorf("the image is made from %s: this test runs it in an empty directory", from)
	}
	if im.user, err = strconv.Atoi(find(`^USER (\d+):\d+$`)); err != nil || im.user == 0 {
		t.Fatalf("user %d, %v", im.user, err)
	}
	if im.group, err = strconv.Atoi(find(`^USER \d+:(\d+)$`)); err != nil {
		t.Fatal(err)
	}
	im.env = []string{find(`^ENV (\S+)$`)}
	im.entrypoint = list(find(`^ENTRYPOINT (\[.*\])$`))
	im.command = list(find(`^CMD (\[.*\])$`))
	im.health = list(find(`^HEALTHCHECK .*CMD (\[.*\])$`))
	return im
}

// buildBinary builds the binary as the image does.
func buildBinary(t *testing.T, im image, to string) {
	t.Helper()
	args := slices.Concat([]string{"build"}, im.build, []string{"-o", to, "./cmd/tlsproxy"})
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
}

// container is the image's root directory, and who runs in it.
type container struct {
	image
	root string
}

// newContainer makes the image's file system in a directory.
func newContainer(t *testing.T, config string) *container {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test needs root, which alone may change the root directory of a process")
	}
	root, err := os.MkdirTemp("", "tlsproxy-image-") //nolint:usetesting // The directories above t.TempDir are closed to other users.
	if err != nil {
		t.Fatal(err)
	}
	c := &container{image: readDockerfile(t), root: root}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	buildBinary(t, c.image, c.path("tlsproxy"))
	c.mkdir(t, "etc/ssl/certs", "etc/tlsproxy", "var/lib/tlsproxy")
	bundle, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		t.Fatalf("%v: apt-get install ca-certificates", err)
	}
	c.write(t, "etc/ssl/certs/ca-certificates.crt", bundle)
	c.write(t, "etc/tlsproxy/config.yaml", []byte(config))
	if err := os.Chown(c.path("var/lib/tlsproxy"), c.user, c.group); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"etc/ssl/certs", "etc/ssl", "etc/tlsproxy", "etc", "var/lib", "var", ""} {
		if err := os.Chmod(c.path(dir), 0o555); err != nil { // as with --read-only
			t.Fatal(err)
		}
	}
	return c
}

func (c *container) path(name string) string { return filepath.Join(c.root, name) }

func (c *container) mkdir(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(c.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *container) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(c.path(name), data, 0o444); err != nil {
		t.Fatal(err)
	}
}

// run is a process in the container, with the image's environment and nothing
// of ours.
func (c *container) run(ctx context.Context, words []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     c.root,
		Credential: &syscall.Credential{Uid: uint32(c.user), Gid: uint32(c.group)},
	}
	cmd.Dir = "/"
	cmd.Env = c.env
	return cmd
}

// files lists what is in the container, but for the state directory.
func (c *container) files(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == c.path("var/lib/tlsproxy") {
			return fs.SkipDir
		}
		names = append(names, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestImage runs the image's binary as the image's user in a root directory that
// holds what the image holds: no shell, no /proc, no /tmp, no /etc/passwd, and
// nothing writable but the state directory.
func TestImage(t *testing.T) {
	port, admin := testtool.FreePort(t), testtool.FreePort(t)
	c := newContainer(t, fmt.Sprintf(`
listeners: [{address: "127.0.0.1:%d"}]
certificates: [{local: {hosts: [localhost]}}]
sites: [{hosts: [localhost], routes: [{upstream: echo}]}]
upstreams: {echo: {backends: ["builtin:echo"]}}
admin: {address: "127.0.0.1:%d"}
`, port, admin))
	checkStatic(t, c.path("tlsproxy"))
	before := c.files(t)

	version, err := c.run(t.Context(), append(slices.Clone(c.entrypoint), "-version")).CombinedOutput()
	if err != nil || !strings.Contains(string(version), "v1.2.3-test") {
		t.Fatalf("-version: %q, %v; want the version given to the build", version, err)
	}
	if out, err := c.run(t.Context(), c.health).CombinedOutput(); err == nil {
		t.Errorf("healthy before it runs: %s", out)
	}

	var log bytes.Buffer
	server := c.run(t.Context(), slices.Concat(c.entrypoint, c.command))
	server.Stdout, server.Stderr = io.Discard, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Wait() }()
	t.Cleanup(func() { server.Process.Kill() })

	c.waitHealthy(t, done, &log)
	get(t, fmt.Sprintf("https://localhost:%d/hello", port), c.roots(t))

	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, log.Bytes())
		}
	case <-time.After(time.Minute):
		t.Fatal("still there a minute after SIGTERM")
	}
	if after := c.files(t); !slices.Equal(before, after) {
		t.Errorf("files before:\n%q\nafter:\n%q", before, after)
	}
}

// waitHealthy runs the image's health check until it succeeds.
func (c *container) waitHealthy(t *testing.T, done <-chan error, log *bytes.Buffer) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		out, err := c.run(t.Context(), c.health).CombinedOutput()
		if err == nil {
			return
		}
		select {
		case err := <-done:
			t.Fatalf("the server ended: %v\n%s", err, log.Bytes())
		case <-deadline:
			t.Fatalf("health check: %v: %s", err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// roots is the development CA, as the server made it in its state directory.
func (c *container) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	found := false
	filepath.WalkDir(c.path("var/lib/tlsproxy"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, err := os.ReadFile(path); err == nil && pool.AppendCertsFromPEM(data) {
				found = true
			}
		}
		return nil
	})
	if !found {
		t.Fatal("no certificate below the state directory")
	}
	return pool
}

func get(t *testing.T, url string, roots *x509.CertPool) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !strings.Contains(string(body), "GET /hello") {
		t.Errorf("%s: %s: %q, %v", url, res.Status, body, err)
	}
}

// checkStatic: an image from scratch has no loader and no libraries.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a %v segment", p.Type)
		}
	}
}
