package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// chromium loads a page in a real browser and returns what it prints and what
// the page logs: errors of scripts, of the content policy and of the network.
func chromium(t *testing.T, url string, args ...string) (stdout string, console []string) {
	t.Helper()
	bin := testtool.Require(t, "chromium", "chromium")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, bin, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + filepath.Join(home, "profile"),
		"--enable-logging=stderr", "--v=0",
	}, append(args, url)...)...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.WaitDelay = 10 * time.Second
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, line)
		}
	}
	return out.String(), console
}

// dumpDOM returns the document as it is after nine seconds of the page's time.
func dumpDOM(t *testing.T, url string) (dom string, console []string) {
	t.Helper()
	return chromium(t, url, "--virtual-time-budget=9000", "--dump-dom")
}

// quietDOM is dumpDOM of a page that must have nothing to complain of.
func quietDOM(t *testing.T, url string) string {
	t.Helper()
	dom, console := dumpDOM(t, url)
	for _, line := range console {
		t.Errorf("the page complains: %s", line)
	}
	return dom
}

// evil is what a page must never take for markup.
const evil = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"'&`

// busy is a state in which everything has something to show, half of it evil.
func busy() Status {
	now := time.Now()
	return Status{
		Version: "v1.2.3" + evil, Started: now.Add(-3 * time.Hour),
		Config:    Config{Path: "/etc/" + evil, Generation: 7, Loaded: now.Add(-time.Hour), LastReload: now.Add(-time.Minute), LastError: "config.yaml:3: " + evil},
		Listeners: []front.Status{{Address: evil, Bound: []string{"127.0.0.1:8443"}, ProxyProtocol: "required", Sites: map[string]string{evil: "x"}}},
		HTTP:      []string{"127.0.0.1:8080"},
		Front: front.Stats{
			Handshakes: map[string]uint64{"1.2": 1000, "1.3": 3000}, Resumed: map[string]uint64{"1.2": 500, "1.3": 2500},
			Failures: map[front.Reason]uint64{front.ReasonTimeout: 17, front.Reason(evil): 1}, Open: 42,
		},
		Certificates: []certs.Status{
			{Name: "/etc/tls/" + evil, Source: "file", Names: []string{"app.example.com", evil}, NotAfter: now.Add(50 * 24 * time.Hour), KeyType: "ECDSA P-256", Fingerprint: "aa", Default: true},
			{Name: "old", Source: "file", NotAfter: now.Add(-time.Hour), LastError: evil, Fingerprint: "bb", MustStaple: true},
		},
		Staples: []ocsp.CertificateStatus{
			{Certificate: "aa", State: ocsp.StateGood, Expires: now.Add(5 * time.Hour), NextFetch: now.Add(time.Hour)},
			{Certificate: "bb", State: ocsp.StatePending, MustStaple: true, Names: []string{evil}, LastError: evil},
		},
		Sessions: session.Status{Stats: session.Stats{Lookups: map[session.Result]uint64{session.Hit: 90, session.Absent: 9, session.Result(evil): 1}}},
		Caches: []Cache{
			{Name: "session", Entries: 1234, Capacity: 20480, Bytes: 3 << 20, MaxBytes: 64 << 20, Hits: 3, Misses: 1, Evictions: map[string]uint64{"expired": 5}},
			{Name: evil, Entries: 1},
		},
		Upstreams: []upstream.Status{{Name: evil, Backends: []upstream.BackendStatus{
			{Backend: "http://127.0.0.1:8081", State: upstream.StateUp, Requests: 77},
			{Backend: evil, State: upstream.StateDown, LastError: evil, Since: now.Add(-time.Minute)},
		}}},
		ClientAuth: []ClientAuth{{Site: evil, Error: evil}},
		Store:      &Store{State: "open", LastError: evil},
	}
}

func TestPageShowsTheState(t *testing.T) {
	f := &fake{status: busy(), notReady: []string{"because " + evil}}
	o := f.options(t)
	o.Now = time.Now
	var asked atomic.Int32
	o.Status = func() Status { asked.Add(1); return f.status }
	srv := httptest.NewServer(newHandler(t, o))
	defer srv.Close()
	dom := quietDOM(t, srv.URL)
	for _, want := range []string{
		"v1.2.3", "not ready", "up 3 h", "configuration 7", "Needs attention",
		"<b>1,000</b><span>full</span>", "<b>3,000</b><span>resumed</span>", "75.0 %", "<b>42</b>",
		"app.example.com", "ECDSA P-256", "in 50 days", "EXPIRED", "served until 5 h from now", "pending, must-staple",
		"1,234 of 20,480", "3.0 MiB of 64.0 MiB", "expired 5", "90.0 %",
		"refused, the old one serves on", "config.yaml:3:", "127.0.0.1:8443, PROXY header required", "127.0.0.1:8080",
		"http://127.0.0.1:8081", ">down<", "timeout 17", "shared store: open", "refuses every client", "1 of 2 backends down",
		"unknown: expired, evicted, used up",
	} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	// The evil text is there, as text. The bodies of elements escape < and >.
	if n := strings.Count(dom, `&lt;img src=x onerror=`); n < 15 {
		t.Errorf("the evil text is shown %d times; it is in more places", n)
	}
	if strings.Contains(dom, "<img") || strings.Contains(dom, "<script>document") || !strings.Contains(dom, "tlsproxy</title>") || strings.Contains(dom, "owned</title>") {
		t.Error("text became markup")
	}
	if regexp.MustCompile(`<div id="offline"[^>]*hidden`).FindString(dom) == "" {
		t.Error("the page claims that the proxy does not answer")
	}
	if n := asked.Load(); n < 3 {
		t.Errorf("the page asked %d times in 9 s; it should refresh itself", n)
	}
	if t.Failed() {
		t.Log(dom)
	}
}

func TestPageOfAnEmptyState(t *testing.T) {
	f := &fake{}
	o := f.options(t)
	o.Now = time.Now
	srv := httptest.NewServer(newHandler(t, o))
	defer srv.Close()
	dom := quietDOM(t, srv.URL)
	for _, want := range []string{">ready<", ">none<", "none since the start", "resumption ratio"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page does not show %q:\n%s", want, dom)
		}
	}
}

// When the proxy stops answering, the page says so and keeps what it had.
func TestPageWithoutAnswer(t *testing.T) {
	f := &fake{status: busy()}
	o := f.options(t)
	o.Now = time.Now
	h := newHandler(t, o)
	for name, silence := range map[string]func(http.ResponseWriter){
		"error": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"closed": func(w http.ResponseWriter) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/api/status" && asked.Add(1) > 1 {
					silence(w)
					return
				}
				h.ServeHTTP(w, r)
			}))
			defer srv.Close()
			dom, _ := dumpDOM(t, srv.URL)
			for _, want := range []string{"tlsproxy does not answer", "What is below is from", `class="stale"`, "OFFLINE", "app.example.com"} {
				if !strings.Contains(dom, want) {
					t.Errorf("the page does not show %q", want)
				}
			}
		})
	}
}
