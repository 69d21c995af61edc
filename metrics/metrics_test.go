package metrics_test

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/metrics"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/upstream"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a Metrics with every source there is.
func everything(t *testing.T) *metrics.Metrics {
	t.Helper()
	s := newStack(t, options{redis: true})
	return metrics.New(metrics.Options{
		Store:   s.store.Status,
		Version: "v0.0.0-test", Front: s.front.Stats, Upgraded: s.upgrades.Len, Sessions: s.sessions.Stats,
		OCSP: s.stapler.Stats, Staples: s.stapler.Status, ClientOCSP: func() ocsp.CheckerStats { return ocsp.CheckerStats{} },
		Certificates: s.certs.Status, CertStats: s.certs.Stats, Memory: func() memwatch.Status { return memwatch.Status{} },
		ClientAuth: func() []metrics.ClientAuth { return []metrics.ClientAuth{{Site: "a", CRLExpiry: time.Now()}} },
		Upstreams:  func() []upstream.Status { return []upstream.Status{s.pool.Status()} },
		AccessLog:  s.access.Stats,
		Config:     s.configStats,
	})
}

// The surface that dashboards and alerts hold on to: names, types, labels and
// the label values that are there from the start.
func TestSurface(t *testing.T) {
	m := everything(t)
	m.Request(&proxy.Record{Route: "a/", Method: "GET", Status: 200})
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
	got := surface(t, m.Gatherer())
	golden := filepath.Join("testdata", "surface.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readFile(t, golden); got != want {
		t.Errorf("the surface changed; if that is meant, run go test -update and say so in CHANGELOG.md and docs/metrics.md\ngot:\n%s\nwant:\n%s", got, want)
	}
}

// surface lists the product's own metrics.
func surface(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "tlsproxy_") {
			continue
		}
		values := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(values[l.GetName()], l.GetValue()) {
					values[l.GetName()] = append(values[l.GetName()], l.GetValue())
				}
			}
		}
		fmt.Fprintf(&b, "%s %s\n  %s\n", f.GetName(), strings.ToLower(f.GetType().String()), f.GetHelp())
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if closed := strings.Join(values[name], " "); !slices.Contains([]string{"goversion", "backend", "certificate"}, name) {
				fmt.Fprintf(&b, "  %s: %s\n", name, closed)
			} else {
				fmt.Fprintf(&b, "  %s: …\n", name)
			}
		}
	}
	return b.String()
}

// What is documented is what there is.
func TestDocumented(t *testing.T) {
	doc := readFile(t, "../docs/metrics.md")
	names := regexp.MustCompile(`(?m)^tlsproxy_\w+`).FindAllString(readFile(t, "testdata/surface.golden"), -1)
	for _, name := range names {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
	}
	for _, name := range regexp.MustCompile("`(tlsproxy_\\w+)`").FindAllStringSubmatch(doc, -1) {
		if !slices.Contains(names, name[1]) {
			t.Errorf("docs/metrics.md tells of %s, which there is not", name[1])
		}
	}
}

func TestHandshakes(t *testing.T) {
	s := newStack(t, options{})
	for version, name := range map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"} {
		c := s.client(t, version)
		for i := range 3 {
			if code := get(t, c, "GET", "https://a.test/"); code != 200 {
				t.Fatalf("request %d: status %d", i, code)
			}
		}
		got := s.scrape(t)
		want(t, got, `tlsproxy_handshakes_total{resumed="false",version="`+name+`"}`, 1)
		want(t, got, `tlsproxy_handshakes_total{resumed="true",version="`+name+`"}`, 2)
		want(t, got, `tlsproxy_handshake_duration_seconds_count{resumed="false",version="`+name+`"}`, 1)
		want(t, got, `tlsproxy_handshake_duration_seconds_count{resumed="true",version="`+name+`"}`, 2)
		if sum := got[`tlsproxy_handshake_duration_seconds_sum{resumed="false",version="`+name+`"}`]; sum <= 0 || sum > 10 {
			t.Errorf("TLS %s: the handshake took %v s", name, sum)
		}
	}
	got := s.scrape(t)
	want(t, got, `tlsproxy_session_lookups_total{result="hit"}`, 4)
	// In TLS 1.3 each resumption replaces the session before the last one.
	want(t, got, `tlsproxy_session_stored_total`, 4)
	want(t, got, `tlsproxy_cache_entries{cache="session"}`, 3)
	if got[`tlsproxy_cache_bytes{cache="session"}`] <= 0 {
		t.Error("sessions take no memory")
	}
	exchanges := got[`tlsproxy_handshake_key_exchanges_total{group="X25519MLKEM768"}`] + got[`tlsproxy_handshake_key_exchanges_total{group="X25519"}`] +
		got[`tlsproxy_handshake_key_exchanges_total{group="none"}`]
	if exchanges != 6 {
		t.Errorf("key exchanges of 6 handshakes = %v", exchanges)
	}
	want(t, got, `tlsproxy_session_clients`, 1)
	want(t, got, `tlsproxy_connections_accepted_total`, 6)
}

func TestHandshakeFailures(t *testing.T) {
	s := newStack(t, options{reject: true, limits: front.Limits{HandshakeTimeout: 200 * time.Millisecond}})
	dial := func() net.Conn {
		c := must(net.Dial("tcp", s.addr))
		t.Cleanup(func() { c.Close() })
		return c
	}
	_, _ = io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
	_ = tls.Client(dial(), &tls.Config{ServerName: "nobody.test"}).Handshake()
	_ = tls.Client(dial(), &tls.Config{ServerName: "a.test", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}).Handshake()
	dial().Close()
	_ = dial() // says nothing
	_, _ = dial().Write([]byte{0x16, 3, 1, 0, 2, 1, 0xff})
	testtool.Eventually(t, "every failure was counted", func() bool {
		got := s.scrape(t)
		for _, reason := range []string{"plain_http", "unknown_sni", "no_shared_version", "eof", "timeout"} {
			if got[`tlsproxy_handshake_failures_total{reason="`+reason+`"}`] < 1 {
				return false
			}
		}
		return true
	})
	got := s.scrape(t)
	for _, r := range front.Reasons() {
		if _, there := got[`tlsproxy_handshake_failures_total{reason="`+string(r)+`"}`]; !there {
			t.Errorf("reason %s is not there from the start", r)
		}
	}
	for series, n := range got {
		if strings.HasPrefix(series, "tlsproxy_handshakes_total") && n != 0 {
			t.Errorf("%s = %v", series, n)
		}
	}
}

func TestSessionLookups(t *testing.T) {
	s := newStack(t, options{})
	c := s.client(t, tls.VersionTLS13)
	get(t, c, "GET", "https://a.test/")
	s.sessions.Clear()
	get(t, c, "GET", "https://a.test/") // absent
	if err := s.sessions.Revoke(t.Context(), session.Subject{Kind: session.KindAll}); err != nil {
		t.Fatal(err)
	}
	get(t, c, "GET", "https://a.test/") // revoked
	get(t, c, "GET", "https://a.test/") // hit
	got := s.scrape(t)
	want(t, got, `tlsproxy_session_lookups_total{result="absent"}`, 1)
	want(t, got, `tlsproxy_session_lookups_total{result="revoked"}`, 1)
	want(t, got, `tlsproxy_session_lookups_total{result="hit"}`, 1)
	want(t, got, `tlsproxy_session_revocations`, 1)
	if got[`tlsproxy_cache_evictions_total{cache="session",reason="deleted"}`] < 1 {
		t.Error("clearing the cache evicted nothing")
	}
	for _, r := range session.Results() {
		if _, there := got[`tlsproxy_session_lookups_total{result="`+string(r)+`"}`]; !there {
			t.Errorf("result %s is not there from the start", r)
		}
	}
}

func TestCacheTooSmall(t *testing.T) {
	s := newStack(t, options{session: session.Options{Limits: session.Limits{Capacity: 2, ClientShare: -1}}})
	for range 5 {
		get(t, s.client(t, tls.VersionTLS13), "GET", "https://a.test/")
	}
	got := s.scrape(t)
	want(t, got, `tlsproxy_cache_capacity_entries{cache="session"}`, 2)
	want(t, got, `tlsproxy_cache_entries{cache="session"}`, 2)
	want(t, got, `tlsproxy_cache_evictions_total{cache="session",reason="capacity"}`, 3)
}

func TestCertificatesAndStaples(t *testing.T) {
	s := newStack(t, options{})
	name := s.certs.Status()[0].Name
	got := s.scrape(t)
	want(t, got, `tlsproxy_certificate_expiry_timestamp_seconds{certificate="`+name+`"}`, float64(s.cert.Leaf.NotAfter.Unix()))
	want(t, got, `tlsproxy_certificate_lifetime_seconds{certificate="`+name+`"}`, s.cert.Leaf.NotAfter.Sub(s.cert.Leaf.NotBefore).Seconds())
	want(t, got, `tlsproxy_certificate_failing{certificate="`+name+`"}`, 0)
	want(t, got, `tlsproxy_ocsp_staple_expiry_timestamp_seconds{certificate="`+name+`"}`, float64(s.stapler.Status()[0].Expires.UnixMilli())/1000)
	want(t, got, `tlsproxy_ocsp_staple_fetch_failures{certificate="`+name+`"}`, 0)
	want(t, got, `tlsproxy_ocsp_fetches_total{result="good"}`, 1)
	want(t, got, `tlsproxy_ocsp_certificates{state="stapled"}`, 1)
	want(t, got, `tlsproxy_ocsp_certificates{state="missing"}`, 0)
	want(t, got, `tlsproxy_cache_entries{cache="ocsp"}`, 1)
	get(t, s.client(t, tls.VersionTLS13), "GET", "https://a.test/")
	if hits := s.scrape(t)[`tlsproxy_cache_hits_total{cache="ocsp"}`]; hits < 1 {
		t.Errorf("a full handshake did not look the staple up: hits = %v", hits)
	}

	// A file that cannot be loaded: the old one serves on, and says so.
	if err := os.WriteFile(s.certFile, []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "the broken file was noticed", func() bool {
		got := s.scrape(t)
		return got[`tlsproxy_certificate_failing{certificate="`+name+`"}`] == 1 && got[`tlsproxy_certificate_reloads_total{result="failure"}`] >= 1
	})

	// A new, revoked one: no staple.
	next := must(s.ca.Issue(pki.Request{Names: []string{"a.test", "b.test"}, OCSPServers: s.cert.Leaf.OCSPServer}))
	s.responder.Revoke(next.Leaf.SerialNumber, time.Now(), 1)
	if err := pki.WritePair(next, s.certFile, s.keyFile); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "the new certificate is revoked", func() bool {
		return s.scrape(t)[`tlsproxy_ocsp_certificates{state="revoked"}`] == 1
	})
	got = s.scrape(t)
	want(t, got, `tlsproxy_certificate_failing{certificate="`+name+`"}`, 0)
	want(t, got, `tlsproxy_ocsp_certificates{state="missing"}`, 0)
	if got[`tlsproxy_ocsp_fetches_total{result="revoked"}`] < 1 {
		t.Error("the fetch is not counted")
	}
	want(t, got, `tlsproxy_certificate_reloads_total{result="success"}`, 1)
	want(t, got, `tlsproxy_certificate_expiry_timestamp_seconds{certificate="`+name+`"}`, float64(next.Leaf.NotAfter.Unix()))
	want(t, got, `tlsproxy_ocsp_staple_expiry_timestamp_seconds{certificate="`+name+`"}`, 0)
}

// A responder that is not there.
func TestStapleFetchFails(t *testing.T) {
	s := newStack(t, options{noResponder: true})
	name := s.certs.Status()[0].Name
	testtool.Eventually(t, "a fetch failed", func() bool {
		return s.scrape(t)[`tlsproxy_ocsp_staple_fetch_failures{certificate="`+name+`"}`] >= 1
	})
	got := s.scrape(t)
	want(t, got, `tlsproxy_ocsp_staple_expiry_timestamp_seconds{certificate="`+name+`"}`, 0)
	want(t, got, `tlsproxy_ocsp_certificates{state="missing"}`, 1)
	want(t, got, `tlsproxy_ocsp_certificates{state="stapled"}`, 0)
	if got[`tlsproxy_ocsp_fetches_total{result="network"}`] < 1 {
		t.Error("the failure is not counted")
	}
}

func TestRequests(t *testing.T) {
	s := newStack(t, options{backend: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprintf(w, "%d bytes", len(body))
	})})
	c := s.client(t, tls.VersionTLS13)
	get(t, c, "GET", "https://a.test/")
	get(t, c, "BREW", "https://a.test/teapot")
	get(t, c, "GET", "https://b.test/") // no route
	resp := must(c.Post("https://b.test/api/x", "text/plain", strings.NewReader("12345")))
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	testtool.Eventually(t, "the requests were counted", func() bool {
		return s.scrape(t)[`tlsproxy_requests_total{code="200",method="POST",route="b/api"}`] == 1
	})
	got := s.scrape(t)
	want(t, got, `tlsproxy_requests_total{code="200",method="GET",route="a/"}`, 1)
	want(t, got, `tlsproxy_requests_total{code="418",method="OTHER",route="a/"}`, 1)
	want(t, got, `tlsproxy_requests_total{code="404",method="GET",route="none"}`, 1)
	want(t, got, `tlsproxy_request_duration_seconds_count{route="a/"}`, 2)
	want(t, got, `tlsproxy_request_body_bytes_total{route="b/api"}`, 5)
	want(t, got, `tlsproxy_response_body_bytes_total{route="b/api"}`, float64(len("5 bytes")))
	testtool.Eventually(t, "the access log was written", func() bool {
		return s.scrape(t)[`tlsproxy_access_log_records_total{result="written"}`] == 4
	})
	want(t, got, `tlsproxy_access_log_records_total{result="dropped"}`, 0)
	backend := s.pool.Status().Backends[0].Backend
	want(t, got, `tlsproxy_upstream_up{backend="`+backend+`",upstream="web"}`, 1)
	want(t, got, `tlsproxy_upstream_tries_total{backend="`+backend+`",upstream="web"}`, 3)
}

func TestConnections(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	s := newStack(t, options{backend: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, conn)
			return
		}
		inside <- struct{}{}
		<-leave
	})})
	c := s.client(t, tls.VersionTLS13)
	answered := make(chan struct{})
	go func() { defer close(answered); get(t, c, "GET", "https://a.test/") }()
	<-inside
	silent := must(net.Dial("tcp", s.addr))
	defer silent.Close()
	upgraded := must(tls.Dial("tcp", s.addr, &tls.Config{ServerName: "a.test", RootCAs: s.ca.Pool()}))
	defer upgraded.Close()
	_, _ = io.WriteString(upgraded, "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	testtool.Eventually(t, "the connections were seen", func() bool {
		got := s.scrape(t)
		return got[`tlsproxy_connections{state="active"}`] == 1 && got[`tlsproxy_connections{state="handshaking"}`] == 1 &&
			got[`tlsproxy_connections{state="upgraded"}`] == 1
	})
	want(t, s.scrape(t), `tlsproxy_upstream_requests_in_flight{backend="`+s.pool.Status().Backends[0].Backend+`",upstream="web"}`, 2)
	close(leave)
	<-answered
	silent.Close()
	upgraded.Close()
	testtool.Eventually(t, "the connections are gone", func() bool {
		got := s.scrape(t)
		for _, state := range []string{"active", "handshaking", "upgraded", "waiting"} {
			if got[`tlsproxy_connections{state="`+state+`"}`] != 0 {
				return false
			}
		}
		return true
	})
}

func TestUpstreamDown(t *testing.T) {
	s := newStack(t, options{health: upstream.Health{Path: "/", Interval: 20 * time.Millisecond}})
	series := `{backend="` + s.pool.Status().Backends[0].Backend + `",upstream="web"}`
	testtool.Eventually(t, "the backend is up", func() bool { return s.scrape(t)["tlsproxy_upstream_up"+series] == 1 })
	s.backend.Close()
	testtool.Eventually(t, "the backend is down", func() bool { return s.scrape(t)["tlsproxy_upstream_up"+series] == 0 })
	if code := get(t, s.client(t, tls.VersionTLS13), "GET", "https://a.test/"); code < 502 || code > 504 {
		t.Errorf("status = %d", code)
	}
}

func TestStore(t *testing.T) {
	s := newStack(t, options{redis: true})
	c := s.client(t, tls.VersionTLS13)
	get(t, c, "GET", "https://a.test/")
	testtool.Eventually(t, "the session was written", func() bool { return s.scrape(t)[`tlsproxy_session_store_queue_length`] == 0 })
	// The write may still be under way, and the store's revocations not yet
	// known, so the first tries may miss.
	testtool.Eventually(t, "a session comes from the store", func() bool {
		s.sessions.Clear() // as another replica would be: it knows nothing
		get(t, c, "GET", "https://a.test/")
		return s.scrape(t)[`tlsproxy_session_lookups_total{result="hit_shared"}`] == 1
	})
	got := s.scrape(t)
	want(t, got, `tlsproxy_store_servers{state="up"}`, 1)
	want(t, got, `tlsproxy_store_servers{state="down"}`, 0)
	want(t, got, `tlsproxy_store_servers_refusing_writes`, 0)
	want(t, got, `tlsproxy_store_key_file_failing`, 0)
	if got[`tlsproxy_store_calls_total{result="ok"}`] < 2 {
		t.Errorf("calls = %v", got[`tlsproxy_store_calls_total{result="ok"}`])
	}
	testtool.Eventually(t, "the staple was written", func() bool { return s.scrape(t)[`tlsproxy_ocsp_store_operations_total{result="write"}`] >= 1 })

	s.redis.stop()
	testtool.Eventually(t, "the breaker opened", func() bool {
		s.sessions.Clear()
		get(t, c, "GET", "https://a.test/")
		return s.scrape(t)[`tlsproxy_store_servers{state="down"}`] == 1
	})
	testtool.Eventually(t, "writes were lost, lookups failed, and calls were spared", func() bool {
		s.sessions.Clear()
		get(t, c, "GET", "https://a.test/")
		got := s.scrape(t)
		return got[`tlsproxy_session_lookups_total{result="store_error"}`] > 0 &&
			got[`tlsproxy_session_store_lost_total{reason="store"}`] > 0 && got[`tlsproxy_store_calls_total{result="unavailable"}`] > 0
	})
}

func TestReloads(t *testing.T) {
	s := newStack(t, options{})
	want(t, s.scrape(t), `tlsproxy_config_last_reload_successful`, 1)
	if err := s.doReload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.reload = errors.New("config.yaml:3: no")
	_ = s.doReload(t.Context())
	got := s.scrape(t)
	want(t, got, `tlsproxy_config_reloads_total{result="success"}`, 1)
	want(t, got, `tlsproxy_config_reloads_total{result="failure"}`, 1)
	want(t, got, `tlsproxy_config_last_reload_successful`, 0)
	want(t, got, `tlsproxy_config_generation`, 2)
	if at := got[`tlsproxy_config_loaded_timestamp_seconds`]; time.Since(time.Unix(int64(at), 0)) > time.Minute {
		t.Errorf("loaded at %v", at)
	}
}

func TestProcess(t *testing.T) {
	got := newStack(t, options{}).scrape(t)
	for _, series := range []string{"go_goroutines", "process_cpu_seconds_total", "process_open_fds", "go_memstats_heap_alloc_bytes"} {
		if got[series] <= 0 {
			t.Errorf("%s = %v", series, got[series])
		}
	}
	found := false
	for series := range got {
		found = found || strings.HasPrefix(series, "tlsproxy_build_info{") && strings.Contains(series, `version="v0.0.0-test"`) && strings.Contains(series, `revision="abcdef"`)
	}
	if !found {
		t.Error("tlsproxy_build_info is missing")
	}
}

// Nothing that a client sends makes a series.
func TestClientsMakeNoSeries(t *testing.T) {
	s := newStack(t, options{})
	c := s.client(t, tls.VersionTLS13)
	get(t, c, "GET", "https://a.test/")
	get(t, c, "BREW0", "https://a.test/")
	testtool.Eventually(t, "both were counted", func() bool {
		return s.scrape(t)[`tlsproxy_requests_total{code="200",method="OTHER",route="a/"}`] == 1
	})
	before := len(s.scrape(t))
	for i := range 20 {
		get(t, c, fmt.Sprintf("M%d", i), fmt.Sprintf("https://a.test/%d?%[1]d", i))
	}
	testtool.Eventually(t, "all were counted", func() bool {
		return s.scrape(t)[`tlsproxy_requests_total{code="200",method="OTHER",route="a/"}`] == 21
	})
	if after := len(s.scrape(t)); after != before {
		t.Errorf("series: %d before, %d after", before, after)
	}
}

func TestEventsDoNotAllocate(t *testing.T) {
	m := metrics.New(metrics.Options{})
	record := &proxy.Record{Route: "a/", Method: "GET", Status: 200, Duration: time.Millisecond, BytesOut: 10}
	handshake := front.Handshake{Version: "1.3", Resumed: true, Curve: "X25519", Duration: time.Millisecond}
	m.Request(record)
	if n := testing.AllocsPerRun(100, func() { m.Request(record) }); n != 0 {
		t.Errorf("Request allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Handshake(handshake) }); n != 0 {
		t.Errorf("Handshake allocates %v times", n)
	}
}

func TestOddEvents(t *testing.T) {
	m := metrics.New(metrics.Options{})
	m.Request(&proxy.Record{Method: "GET", Status: 999, BytesIn: -1})
	m.Request(&proxy.Record{Method: "GET", Status: 101, Upgraded: true, Route: "bad\xff", Duration: time.Hour})
	m.Handshake(front.Handshake{Version: "1.3", Curve: "Kyber"})
	m.Handshake(front.Handshake{Version: "0.9"})
	m.Handshake(front.Handshake{Version: "1.3", Reason: front.ReasonEOF})
	for series, want := range map[string]string{
		"tlsproxy_requests_total": `
			# HELP tlsproxy_requests_total Requests that ended, by route, method and status code.
			# TYPE tlsproxy_requests_total counter
			tlsproxy_requests_total{code="101",method="GET",route="bad` + "\uFFFD" + `"} 1
			tlsproxy_requests_total{code="other",method="GET",route="none"} 1
		`,
	} {
		if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want), series); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(m.Gatherer(), "tlsproxy_request_duration_seconds"); err != nil || n != 2 {
		t.Errorf("%d histograms of requests, %v", n, err)
	}
}
