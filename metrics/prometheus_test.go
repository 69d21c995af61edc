package metrics_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// sample is one element of an instant vector.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (s sample) number() float64 {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

func (s sample) isNumber() bool { return !math.IsNaN(s.number()) && !math.IsInf(s.number(), 0) }

// prometheusServer is a real one that scrapes a target every second.
type prometheusServer struct{ url string }

func startPrometheus(t *testing.T, target string, rules ...string) *prometheusServer {
	t.Helper()
	bin := testtool.Require(t, "prometheus", "prometheus")
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	content := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
- job_name: tlsproxy
  static_configs: [{targets: ["%s"]}]
`, strings.Join(rules, ","), target)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := testtool.FreeAddr(t)
	start(t, bin, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--log.level=warn")
	p := &prometheusServer{url: "http://" + addr}
	testtool.Eventually(t, "prometheus is ready", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// query evaluates an expression now.
func (p *prometheusServer) query(t *testing.T, expr string) []sample {
	t.Helper()
	resp, err := http.PostForm(p.url+"/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s\n%s", expr, body)
	}
	return answer.Data.Result
}

// run serves the stack's metrics, makes traffic of every kind, and has a real
// Prometheus scrape it.
func run(t *testing.T, rules ...string) (*stack, *prometheusServer) {
	t.Helper()
	s := newStack(t, options{redis: true})
	srv := httptest.NewServer(s.admin)
	t.Cleanup(srv.Close)
	p := startPrometheus(t, strings.TrimPrefix(srv.URL, "http://"), rules...)
	// Counters are seen to grow only between scrapes, so the traffic goes on
	// until the last kind of it is in a rate.
	clients := map[string]*http.Client{"1.2": s.client(t, tls.VersionTLS12), "1.3": s.client(t, tls.VersionTLS13)}
	testtool.Eventually(t, "the traffic is seen by Prometheus", func() bool {
		for _, c := range clients {
			get(t, c, "GET", "https://a.test/")
			get(t, c, "GET", "https://b.test/api/x")
			get(t, c, "GET", "https://b.test/none")
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} { // full ones
			get(t, s.client(t, version), "GET", "https://a.test/")
		}
		seen := p.query(t, `count(rate(tlsproxy_handshakes_total[15s]) > 0)`)
		return len(seen) == 1 && seen[0].number() == 4
	})
	return s, p
}

// dashboard is what is read of a Grafana dashboard.
type dashboard struct {
	Title, UID string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Name, Expr string } }
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ RefID, Expr string }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Datasource  struct{ Type, UID string }
}

func loadDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(readFile(t, "../deploy/grafana/tlsproxy.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// resolve puts values in place of Grafana's variables.
func resolve(expr string) string {
	return strings.NewReplacer("$__rate_interval", "15s", "$instance", ".*").Replace(expr)
}

// Every query of the dashboard is answered by a real Prometheus that scraped
// real parts at work, with at least one number.
func TestDashboard(t *testing.T) {
	d := loadDashboard(t)
	_, p := run(t)
	queries := 0
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			continue
		}
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q asks nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			queries++
			expr := resolve(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q: a variable is left in %s", panel.Title, expr)
				continue
			}
			// A scrape that comes too late on a busy machine makes a gap.
			testtool.Eventually(t, fmt.Sprintf("panel %q: a number for %s", panel.Title, expr), func() bool {
				return slices.ContainsFunc(p.query(t, expr), sample.isNumber)
			})
		}
	}
	if queries < 50 {
		t.Errorf("only %d queries were found", queries)
	}
	for _, v := range d.Templating.List {
		if v.Name == "instance" {
			if got := p.query(t, `count by (instance) (tlsproxy_build_info)`); len(got) != 1 || v.Definition != "label_values(tlsproxy_build_info, instance)" {
				t.Errorf("instances: %v by %q", got, v.Definition)
			}
		}
	}
	for _, a := range d.Annotations.List {
		p.query(t, resolve(a.Expr)) // it parses; there was no reload
	}
	checkNumbers(t, p)
}

// checkNumbers looks at some answers: that there is a number is not all.
func checkNumbers(t *testing.T, p *prometheusServer) {
	t.Helper()
	first := func(expr string) float64 {
		r := p.query(t, expr)
		if len(r) != 1 {
			t.Errorf("%s: %d answers", expr, len(r))
			return math.NaN()
		}
		return r[0].number()
	}
	if ratio := first(`sum(rate(tlsproxy_handshakes_total{resumed="true"}[15s])) / sum(rate(tlsproxy_handshakes_total[15s]))`); ratio < .3 || ratio > .99 {
		t.Errorf("resumption ratio = %v", ratio)
	}
	if q := first(`histogram_quantile(0.5, sum by (le) (rate(tlsproxy_handshake_duration_seconds_bucket[15s])))`); q <= 0 || q > 1 {
		t.Errorf("median handshake = %v s", q)
	}
	if left := first(`min(tlsproxy_ocsp_staple_expiry_timestamp_seconds) - time()`); left < 1800 || left > 3600 {
		t.Errorf("the staple is served for %v s", left)
	}
	if up := first(`min(max_over_time(up[15s]))`); up != 1 {
		t.Errorf("up = %v", up)
	}
}

// Panels lie on the grid without covering each other, say what they show, and
// every metric of the surface is on one of them.
func TestDashboardIsInOrder(t *testing.T) {
	d := loadDashboard(t)
	if d.Title != "tlsproxy" || d.UID != "tlsproxy" {
		t.Errorf("title %q, uid %q", d.Title, d.UID)
	}
	ids, shown := map[int]bool{}, ""
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: ID %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && (p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}") {
			t.Errorf("panel %q: no unit, or a data source of its own", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, covered := taken[at]; covered || at[0] >= 24 {
					t.Fatalf("panel %q at %v: covers %q or leaves the grid", p.Title, at, other)
				}
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			shown += target.Expr + "\n"
		}
	}
	notShown := []string{ // facts for alerts and for people who look closer
		"tlsproxy_acme_challenge_connections_total", "tlsproxy_certificate_files_polled", "tlsproxy_certificate_lifetime_seconds", "tlsproxy_certificates_on_demand_refused_total",
		"tlsproxy_config_loaded_timestamp_seconds", "tlsproxy_ocsp_persist_errors_total", "tlsproxy_ocsp_store_operations_total",
		"tlsproxy_store_key_file_failing", "tlsproxy_store_revocations_synced_timestamp_seconds",
		"tlsproxy_client_auth_available", "tlsproxy_client_auth_crl_expiry_timestamp_seconds", "tlsproxy_client_auth_ocsp_soft_failures_total",
	}
	for _, name := range regexp.MustCompile(`(?m)^tlsproxy_\w+`).FindAllString(readFile(t, "testdata/surface.golden"), -1) {
		if !strings.Contains(shown, name) && !slices.Contains(notShown, name) {
			t.Errorf("%s is on no panel", name)
		}
	}
}

// The alerts are well-formed, each fires when it should and none on a proxy
// that is well, by Prometheus' own tool.
func TestAlerts(t *testing.T) {
	tool := testtool.Require(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = "../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("SUCCESS")) {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	rules := readFile(t, "../deploy/prometheus/alerts.yml")
	cases := readFile(t, "../deploy/prometheus/alerts_test.yml")
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(names) < 20 {
		t.Errorf("%d alerts", len(names))
	}
	for _, name := range names {
		if !strings.Contains(cases, "- name: "+name[1]+"\n") {
			t.Errorf("alert %s has no test", name[1])
		}
	}
	surface := readFile(t, "testdata/surface.golden")
	for _, name := range regexp.MustCompile(`\btlsproxy_\w+`).FindAllString(rules, -1) {
		if !regexp.MustCompile(`(?m)^` + strings.TrimSuffix(name, "_bucket") + ` `).MatchString(surface) {
			t.Errorf("the alerts use %s, which there is not", name)
		}
	}
}

// A real Prometheus evaluates the alerts on real parts at work: none fails to
// evaluate, and none fires.
func TestAlertsOnRealParts(t *testing.T) {
	path := must(filepath.Abs("../deploy/prometheus/alerts.yml"))
	_, p := run(t, path)
	type rule struct{ Name, Health, State, LastError, LastEvaluation string }
	var answer struct {
		Data struct{ Groups []struct{ Rules []rule } }
	}
	evaluated := func() bool {
		resp, err := http.Get(p.url + "/api/v1/rules")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Data.Groups) != 1 {
			return false
		}
		return !slices.ContainsFunc(answer.Data.Groups[0].Rules, func(r rule) bool { return r.Health == "unknown" })
	}
	testtool.Eventually(t, "the alerts were evaluated", evaluated)
	// On a busy machine a scrape, or a call of or a look at the store, may come too late.
	timing := []string{"TlsproxyDown", "TlsproxyStoreDown", "TlsproxyRevocationsUnknown", "TlsproxyStoreLosesSessions"}
	for _, r := range answer.Data.Groups[0].Rules {
		late := r.State == "pending" && slices.Contains(timing, r.Name)
		if r.Health != "ok" || r.State != "inactive" && !late {
			t.Errorf("%s: health %s, state %s, %s", r.Name, r.Health, r.State, r.LastError)
		}
	}
}
