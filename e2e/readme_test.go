package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// TestExampleFile is the README's first minute: the example configuration runs
// as it is, in a directory that it does not write to, and the commands of the
// second terminal show what the README shows. Only the ports are others.
func TestExampleFile(t *testing.T) {
	testtool.Require(t, "curl", "curl")
	testtool.Require(t, "openssl", "openssl")
	text, err := os.ReadFile("../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, "")
	state := t.TempDir()
	p.write("config.yaml", strings.NewReplacer(
		"127.0.0.1:8443", p.addr, "127.0.0.1:8080", p.http, "127.0.0.1:9090", p.admin).Replace(string(text)))
	p.start("STATE_DIRECTORY=" + state)
	p.waitReady()

	blocks := transcripts(string(readme))
	if len(blocks) < 2 || len(blocks[0]) != 1 || blocks[0][0].command != "go run ./cmd/tlsproxy -config config.example.yaml" {
		t.Fatalf("the README begins with %q, which is not what this test starts", blocks)
	}
	if len(blocks[1]) == 0 {
		t.Fatal("the README has no second terminal")
	}
	for _, s := range blocks[1] {
		p.shows(s)
	}

	entries, err := os.ReadDir(p.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the working directory holds %v (%v), want config.yaml alone", entries, err)
	}
	if _, err := os.Stat(filepath.Join(state, "local", "ca.crt")); err != nil {
		t.Error(err)
	}
}

// step is a command of a console transcript and the lines that it shows.
type step struct {
	command string
	output  []string
}

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// transcripts returns the console blocks of a text in Markdown.
func transcripts(text string) [][]step {
	var blocks [][]step
	for _, m := range consoleBlock.FindAllStringSubmatch(text, -1) {
		var steps []step
		for line := range strings.Lines(m[1]) {
			line = strings.TrimSuffix(line, "\n")
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: command})
			} else if len(steps) > 0 {
				last := &steps[len(steps)-1]
				last.output = append(last.output, line)
			}
		}
		blocks = append(blocks, steps)
	}
	return blocks
}

// shows runs a command of the README and checks that it shows the lines there,
// "..." standing for any. A person types it a while after the start, when the
// first staple has been fetched, so it may be asked again.
func (p *proxy) shows(s step) {
	p.t.Helper()
	ports := strings.NewReplacer("localhost:8443", strings.Replace(p.addr, "127.0.0.1", "localhost", 1), "go run ./cmd/tlsproxy", binary)
	command := ports.Replace(s.command)
	pattern := regexp.QuoteMeta(ports.Replace(strings.Join(s.output, "\n")))
	pattern = "(?s)^" + strings.ReplaceAll(pattern, "\n\\.\\.\\.\n", "\n.*\n")
	if len(s.output) > 0 {
		pattern += "\n$"
	}
	shown := regexp.MustCompile(pattern)
	var out []byte
	var err error
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("%s: %v\n%s", command, err, out)
		}
	})
	eventually(p.t, "the README's "+s.command+" shows what is there", func() bool {
		out, err = exec.CommandContext(p.t.Context(), "sh", "-c", command).Output() // curl shows its progress beside it
		return err == nil && shown.Match(out)
	})
}
