package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// documents reads every document of a YAML file.
func documents(t *testing.T, file string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var docs []map[string]any
	for {
		var doc map[string]any
		err := loader.Load(&doc)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		docs = append(docs, doc)
	}
}

// at walks into a document; list elements are numbers.
func at(t *testing.T, doc any, path ...any) any {
	t.Helper()
	for i, step := range path {
		switch s := step.(type) {
		case string:
			m, ok := doc.(map[string]any)
			if !ok || m[s] == nil {
				t.Fatalf("nothing at %v", path[:i+1])
			}
			doc = m[s]
		case int:
			l, ok := doc.([]any)
			if !ok || len(l) <= s {
				t.Fatalf("nothing at %v", path[:i+1])
			}
			doc = l[s]
		}
	}
	return doc
}

// TestKubernetes checks the manifest's own configuration, and that its container
// runs as the image does.
func TestKubernetes(t *testing.T) {
	docs := documents(t, "kubernetes/tlsproxy.yaml")
	kinds := make(map[string]map[string]any)
	for _, doc := range docs {
		kinds[at(t, doc, "kind").(string)] = doc
	}
	text := at(t, kinds["ConfigMap"], "data", "config.yaml").(string)
	cfg, err := config.Parse("config.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pod := at(t, kinds["Deployment"], "spec", "template", "spec")
	sidecar := at(t, pod, "initContainers", 0)
	if got := at(t, sidecar, "restartPolicy"); got != "Always" {
		t.Errorf("restartPolicy = %v: it would have to end before the application starts", got)
	}
	im := readDockerfile(t)
	if got := at(t, pod, "securityContext", "runAsUser"); got != im.user {
		t.Errorf("runAsUser = %v; the image's user is %d", got, im.user)
	}
	if got := at(t, sidecar, "securityContext", "readOnlyRootFilesystem"); got != true {
		t.Errorf("readOnlyRootFilesystem = %v", got)
	}
	grace := at(t, pod, "terminationGracePeriodSeconds").(int)
	if need := cfg.Shutdown.Delay + cfg.Shutdown.Grace; need.Seconds() >= float64(grace) {
		t.Errorf("terminationGracePeriodSeconds = %d; a drain may take %v", grace, need)
	}
}

// TestCompose checks the configuration that the compose file mounts.
func TestCompose(t *testing.T) {
	if _, err := config.Load("compose/config.yaml"); err != nil {
		t.Error(err)
	}
	doc := documents(t, "compose/compose.yaml")[0]
	if got := at(t, doc, "services", "tlsproxy", "read_only"); got != true {
		t.Errorf("read_only = %v", got)
	}
	for _, mount := range at(t, doc, "services", "tlsproxy", "volumes").([]any) {
		file, _, _ := strings.Cut(mount.(string), ":")
		if !strings.HasPrefix(file, "./") || file == "./store.key" {
			continue // a volume, or made by the user
		}
		if _, err := os.Stat(filepath.Join("compose", file)); err != nil {
			t.Error(err)
		}
	}
}

// TestSystemd has systemd itself read the units.
func TestSystemd(t *testing.T) {
	analyze := testtool.Require(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	for _, unit := range []string{"tlsproxy.service", "tlsproxy.socket"} {
		data, err := os.ReadFile(filepath.Join("systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		// The program is not installed here; any that is stands in for it.
		text := strings.ReplaceAll(string(data), "/usr/local/bin/tlsproxy", "/bin/true")
		if err := os.WriteFile(filepath.Join(dir, unit), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	service, socket := filepath.Join(dir, "tlsproxy.service"), filepath.Join(dir, "tlsproxy.socket")
	if out, err := exec.Command(analyze, "verify", "--man=no", service, socket).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// 10 is no protection at all. What is open is what a TLS terminator needs:
	// the network, and ports below 1024.
	if out, err := exec.Command(analyze, "security", "--offline=yes", "--threshold=20", service).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: exposure above 2.0: %v\n%s", err, out)
	}
}
