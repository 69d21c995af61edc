package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// chromium loads a page in a fresh profile and returns what the browser
// prints, with --dump-dom the document as it is after the page's own time.
func chromium(t *testing.T, url string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, testtool.Require(t, "chromium", "chromium"), append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + filepath.Join(home, "profile"),
	}, append(args, url)...)...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.WaitDelay = 10 * time.Second
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, lastLines(problems.String(), 20))
	}
	return out.String()
}

const browserConfig = `
listeners:
  - address: "{{tls}}"
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
sites:
  - hosts: [new.test]
    routes: [{upstream: app}]
  - hosts: [old.test]
    tls: {max_version: "1.2", http2: off}
    routes: [{upstream: app}]
timeouts: {idle: 200ms}
upstreams:
  app: {backends: ["BACKEND"]}
`

// steps is how often the page comes back to each host on a new connection.
const steps = 4

// browserPage asks both hosts again and again, and in between waits until the
// proxy has closed the connections, which WAIT tells. No time passes in the
// page while a request is under way.
const browserPage = `<!doctype html><link rel="icon" href="data:,"><p id="result">loading</p><script>
(async () => {
  let seen = 0;
  try {
    for (let i = 0; i <= STEPS; i++) {
      for (const host of ["new.test", "old.test"]) {
        seen += (await (await fetch("https://" + host + "/step", {cache: "no-store"})).text()) === "step";
      }
      await fetch("WAIT");
    }
    document.getElementById("result").textContent = "steps: " + seen;
  } catch (e) { document.getElementById("result").textContent = "failed: " + e; }
})();
</script>`

// TestChromiumResumes lets a real browser come back on new connections, over
// TLS 1.3 with HTTP/2 and over TLS 1.2 with HTTP/1.1. The metrics tell that it
// resumed.
func TestChromiumResumes(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	var p *proxy
	// Tells when the browser has no connection any more.
	wait := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		for p.metric("tlsproxy_connections") > 0 && r.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
	})
	page := strings.NewReplacer("STEPS", fmt.Sprint(steps), "WAIT", wait).Replace(browserPage)
	backend := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.URL.Path == "/step" {
			io.WriteString(w, "step")
			return
		}
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, page)
	})
	p = newProxy(t, strings.Replace(browserConfig, "BACKEND", backend, 1))
	cert := p.issue(ca, "tls", pki.Request{Names: []string{"new.test", "old.test"}})
	p.start()
	p.waitReady()
	key := sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo)
	dom := chromium(t, "https://new.test/", "--dump-dom", "--virtual-time-budget=60000",
		"--host-resolver-rules=MAP *.test "+p.addr,
		"--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
	if want := fmt.Sprintf("steps: %d", 2*(steps+1)); !strings.Contains(dom, want) {
		t.Fatalf("the page did not end with %q:\n%s", want, dom)
	}
	for _, version := range []string{"1.2", "1.3"} {
		label := fmt.Sprintf("version=%q", version)
		resumed := p.metric("tlsproxy_handshakes_total", label, `resumed="true"`)
		full := p.metric("tlsproxy_handshakes_total", label, `resumed="false"`)
		if resumed < steps {
			t.Errorf("TLS %s: Chromium resumed %v times and did %v full handshakes, want %d resumed at least", version, resumed, full, steps)
		}
	}
	if n := p.metric("tlsproxy_session_lookups_total", `result="hit"`); n < 2*steps {
		t.Errorf("tlsproxy_session_lookups_total{result=hit} = %v, want at least %d", n, 2*steps)
	}
}

var tag = regexp.MustCompile(`<[^>]*>`)

// TestDashboardInABrowser loads the page at the admin address: it shows the
// numbers of this moment, and draws something.
func TestDashboardInABrowser(t *testing.T) {
	t.Parallel()
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	for range 7 {
		client := p.client(pool, false)
		for range 4 {
			get(t, client)
		}
	}
	shot := filepath.Join(t.ArtifactDir(), "dashboard.png")
	dom := chromium(t, "http://"+p.admin+"/", "--dump-dom", "--virtual-time-budget=8000", "--window-size=1200,1600", "--screenshot="+shot)
	text := strings.Join(strings.Fields(tag.ReplaceAllString(dom, " ")), " ")
	// 7 clients, each with a full handshake and three that resumed.
	for _, want := range []string{"ready", "hit 21", "echo builtin:echo up", "localhost", filepath.Join(p.dir, "config.yaml")} {
		if !strings.Contains(text, want) {
			t.Errorf("the dashboard does not say %q:\n%s", want, text)
		}
	}
	file, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	image, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[any]bool{}
	for x := range image.Bounds().Dx() {
		for y := range image.Bounds().Dy() {
			colours[image.At(x, y)] = true
		}
	}
	if len(colours) < 20 {
		t.Errorf("the screenshot has %d colours: the page is empty", len(colours))
	}
}
