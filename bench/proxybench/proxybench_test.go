package proxybench

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const text = "4242 (a) b (c) S 17 4242 4242 0 -1 4194560 100 0 0 0 150 50 7 3 20 0 1 0 100 1000 10"
	got, err := parseStat([]byte(text))
	if want := (procStat{parent: 17, cpu: 2100 * time.Millisecond}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 (a", "1 (a) S 1", "1 (a) S x" + strings.Repeat(" 1", 20)} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestTreeCPU is about a child's time, which must count.
func TestTreeCPU(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		below, err := tree(cmd.Process.Pid)
		if err != nil {
			t.Error(err)
		}
		for pid := range below {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		_ = cmd.Wait()
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for cpu := time.Duration(0); cpu < 3*clockTick; <-tick.C {
		var err error
		if cpu, err = treeCPU(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if memory, err := treeMemory(cmd.Process.Pid); err != nil || memory < 64<<10 {
		t.Errorf("memory %d, %v", memory, err)
	}
}

func TestSplice(t *testing.T) {
	page, err := splice("", "first\n")
	if err != nil {
		t.Fatal(err)
	}
	page = strings.Replace(page, "# Performance\n", "# Performance\n\nBefore.\n", 1) + "\nAfter.\n"
	if page, err = splice(page, "second\n"); err != nil {
		t.Fatal(err)
	}
	if want := "# Performance\n\nBefore.\n\n<!-- proxies -->\n\nsecond\n\n<!-- /proxies -->\n\nAfter.\n"; page != want {
		t.Errorf("got %q, want %q", page, want)
	}
	if _, err := splice("<!-- proxies -->\n", ""); err == nil {
		t.Error("a page without the end mark is taken")
	}
}

func TestCheckH2load(t *testing.T) {
	const out = "Application protocol: h2\ntraffic: 1KB (1000) total, 1KB (500) headers (space savings 1%), 26B (26) data\n"
	if err := checkH2load(out, true, 2); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"a body that is missing": checkH2load(out, true, 3),
		"another protocol":       checkH2load(out, false, 2),
		"no output":              checkH2load("", false, 2),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("1\t200\t5\n2\t502\t7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readH2loadLog(log, 2); err == nil {
		t.Error("a status 502 is taken")
	}
}

// startRole runs a role of this program within the test and returns a client of it.
func startRole(t *testing.T, answer string, change func(*tls.Config)) *client {
	t.Helper()
	b := &Bench{ctx: t.Context(), dir: t.TempDir(), duration: 50 * time.Millisecond}
	if err := b.makeCertificate(); err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(backend.Close)
	cert, err := tls.LoadX509KeyPair(filepath.Join(b.dir, "tls", "cert.pem"), filepath.Join(b.dir, "tls", "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	change(config)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serveFloor(ln, config, strings.TrimPrefix(backend.URL, "http://")) }()
	t.Cleanup(func() {
		ln.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return &client{bench: b, addr: ln.Addr().String(), version: tls.VersionTLS13}
}

// TestLoad is about what the generator takes for good, and what it does not.
func TestLoad(t *testing.T) {
	for _, test := range []struct {
		name    string
		answer  string
		change  func(*tls.Config)
		resumed bool
		want    string // in the error; "": none
	}{
		{name: "full", answer: greeting},
		{name: "resumed", answer: greeting, resumed: true},
		{name: "wrong response", answer: "Hello, nobody", want: "wrong response"},
		{name: "missing resumption", answer: greeting, resumed: true, want: "resumed: false",
			change: func(c *tls.Config) { c.SessionTicketsDisabled = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change == nil {
				test.change = func(*tls.Config) {}
			}
			c := startRole(t, test.answer, test.change)
			c.bench.clients = 2
			workers := c.bench.visitors(c.addr, tls.VersionTLS13, test.resumed)
			for _, w := range workers {
				if w.prepare != nil {
					if err := w.prepare(); err != nil {
						t.Fatal(err)
					}
				}
			}
			l, err := c.bench.drive(workers, c.bench.duration)
			switch {
			case test.want == "" && (err != nil || l.ops == 0 || l.p99 == 0):
				t.Errorf("%d operations, p99 %v, %v", l.ops, l.p99, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	got := median([]result{{value: 3, p99: 1}, {value: 1, p99: 3}, {value: 2, p99: 2}})
	if got.value != 2 || got.p99 != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestCheck is about options that cannot be meant.
func TestCheck(t *testing.T) {
	for _, o := range []Options{{Servers: []string{"apache"}}, {Rows: []string{"0rtt"}}} {
		if _, err := New(context.Background(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
