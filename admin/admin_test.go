package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/session"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fake is what the program would give the handler.
type fake struct {
	status    Status
	notReady  []string
	reloadErr error
	revokeErr error

	reloads, quits int
	revoked        []session.Subject
}

func (f *fake) options(t *testing.T) Options {
	return Options{
		Status:   func() Status { return f.status },
		NotReady: func() []string { return f.notReady },
		Metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics here") }),
		Reload:   func(context.Context) error { f.reloads++; return f.reloadErr },
		Quit:     func() { f.quits++ },
		Revoke: func(_ context.Context, s session.Subject) error {
			f.revoked = append(f.revoked, s)
			return f.revokeErr
		},
		Sites:  func() []string { return []string{"shop", "app"} },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now:    func() time.Time { return now },
	}
}

func (f *fake) handler(t *testing.T) http.Handler {
	t.Helper()
	return newHandler(t, f.options(t))
}

func newHandler(t *testing.T, o Options) http.Handler {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// request makes a request as curl on the same machine would.
func request(method, path, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:9090"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPaths(t *testing.T) {
	f := &fake{}
	h := f.handler(t)
	tests := []struct {
		method, path string
		code         int
		contentType  string
		body         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "<title>tlsproxy</title>"},
		{"HEAD", "/", 200, "text/html; charset=utf-8", ""},
		{"GET", "/assets/dashboard.js", 200, "text/javascript; charset=utf-8", "api/status"},
		{"GET", "/assets/dashboard.css", 200, "text/css; charset=utf-8", "prefers-color-scheme"},
		{"GET", "/healthz", 200, "text/plain; charset=utf-8", "ok"},
		{"GET", "/readyz", 200, "text/plain; charset=utf-8", "ready"},
		{"GET", "/metrics", 200, "", "metrics here"},
		{"GET", "/api/status", 200, "application/json; charset=utf-8", `"uptime_seconds"`},
		{"POST", "/api/reload", 200, "application/json; charset=utf-8", `"reloaded":true`},
		{"POST", "/api/quit", 202, "application/json; charset=utf-8", `"quitting":true`},
		{"GET", "/api/reload", 405, "", ""},
		{"GET", "/api/quit", 405, "", ""},
		{"GET", "/api/sessions/revoke", 405, "", ""},
		{"POST", "/", 405, "", ""},
		{"POST", "/metrics", 405, "", ""},
		{"POST", "/api/status", 405, "", ""},
		{"DELETE", "/readyz", 405, "", ""},
		{"GET", "/nothing", 404, "", ""},
		{"GET", "/assets/", 404, "", ""},
		{"GET", "/assets/../admin.go", 307, "", ""}, // cleaned, then not found
		{"GET", "/index.html", 404, "", ""},
	}
	for _, test := range tests {
		w := do(h, request(test.method, test.path, ""))
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.body) {
			t.Errorf("%s %s = %d %.80q; want %d, %q", test.method, test.path, w.Code, w.Body, test.code, test.body)
		}
		if test.contentType != "" && w.Header().Get("Content-Type") != test.contentType {
			t.Errorf("%s %s: content type %q", test.method, test.path, w.Header().Get("Content-Type"))
		}
		if test.code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", test.method, test.path)
		}
	}
	if f.reloads != 1 || f.quits != 1 {
		t.Errorf("reloads %d, quits %d; want one each", f.reloads, f.quits)
	}
}

func TestSecurityHeaders(t *testing.T) {
	h := (&fake{}).handler(t)
	for _, path := range []string{"/", "/api/status", "/nothing", "/metrics"} {
		w := do(h, request("GET", path, "", "Origin", "http://evil.example"))
		for name, want := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			if got := w.Header().Get(name); !strings.Contains(got, want) {
				t.Errorf("%s: %s = %q; want %q", path, name, got, want)
			}
		}
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s lets other origins read", path, name)
			}
		}
	}
}

func TestForeignHosts(t *testing.T) {
	tests := []struct {
		host, path string
		remote     bool
		code       int
	}{
		{"127.0.0.1:9090", "/", false, 200},
		{"127.0.0.1", "/", false, 200},
		{"[::1]:9090", "/", false, 200},
		{"[::1]", "/", false, 200},
		{"10.1.2.3:9090", "/", false, 200},
		{"localhost:9090", "/", false, 200},
		{"LocalHost.", "/", false, 200},
		{"app.localhost", "/", false, 200},
		{"proxy-1.internal:9090", "/", false, 200}, // in Hosts
		{"evil.example", "/", false, 421},
		{"evil.example:9090", "/api/status", false, 421},
		{"localhost.evil.example", "/", false, 421},
		{"127.0.0.1.evil.example", "/", false, 421},
		{"", "/", false, 421},
		{"evil.example", "/metrics", false, 421},
		{"tlsproxy.monitoring.svc:9090", "/metrics", true, 200},
		{"tlsproxy.monitoring.svc:9090", "/api/status", true, 421},
		{"anything.example", "/healthz", false, 200},
		{"anything.example", "/readyz", false, 200},
	}
	for _, test := range tests {
		f := &fake{}
		o := f.options(t)
		o.Hosts, o.AllowRemote = []string{"proxy-1.internal"}, test.remote
		w := do(newHandler(t, o), request("GET", test.path, "", "Host", test.host))
		if w.Code != test.code {
			t.Errorf("Host %q, %s = %d; want %d", test.host, test.path, w.Code, test.code)
		}
	}
	f := &fake{}
	for _, path := range []string{"/api/reload", "/api/quit", "/api/sessions/revoke"} {
		if w := do(f.handler(t), request("POST", path, `{"kind":"all"}`, "Host", "evil.example", "Content-Type", "application/json")); w.Code != 421 {
			t.Errorf("%s = %d", path, w.Code)
		}
	}
	if f.reloads+f.quits+len(f.revoked) != 0 {
		t.Error("a page of a foreign name used a control")
	}
}

func TestCrossOriginWrites(t *testing.T) {
	tests := []struct {
		name    string
		header  []string
		allowed bool
	}{
		{"program", nil, true},
		{"own page", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:9090"}, true},
		{"typed by the user", []string{"Sec-Fetch-Site", "none"}, true},
		{"other site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, false},
		{"other port of this machine", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:3000"}, false},
		{"old browser, other origin", []string{"Origin", "https://evil.example"}, false},
		{"sandboxed page", []string{"Origin", "null"}, false},
		{"old browser, own page", []string{"Origin", "http://127.0.0.1:9090"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			h := f.handler(t)
			want := map[bool][]int{true: {200, 202, 200}, false: {403, 403, 403}}[test.allowed]
			form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, test.header...)
			for i, path := range []string{"/api/reload", "/api/quit", "/api/sessions/revoke"} {
				if w := do(h, request("POST", path, "kind=all", form...)); w.Code != want[i] {
					t.Errorf("%s = %d; want %d", path, w.Code, want[i])
				}
			}
			if done := f.reloads + f.quits + len(f.revoked); (done == 3) != test.allowed {
				t.Errorf("controls used: %d", done)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	good := certs.Status{Name: "good", NotAfter: now.Add(90 * 24 * time.Hour), Fingerprint: "aa"}
	soon := certs.Status{Name: "soon", NotAfter: now.Add(time.Hour)}
	over := certs.Status{Name: "over", NotAfter: now}
	pending := certs.Status{Name: "pending"}
	staple := certs.Status{Name: "stapled", NotAfter: good.NotAfter, MustStaple: true, Fingerprint: "bb"}
	tests := []struct {
		name     string
		certs    []certs.Status
		staples  []ocsp.CertificateStatus
		notReady []string
		expiry   time.Duration
		must     bool
		want     string // "" is ready
	}{
		{"ready", []certs.Status{good, over, pending, staple}, nil, nil, 0, false, ""},
		{"draining", nil, nil, []string{"draining"}, 0, false, "draining"},
		{"two reasons", nil, nil, []string{"starting", "no listener"}, 0, false, "starting\nno listener"},
		{"all valid", []certs.Status{good}, nil, nil, 24 * time.Hour, true, ""},
		{"expires soon", []certs.Status{good, soon}, nil, nil, 24 * time.Hour, false, "certificate soon: expires at 2026-03-01T13:00:00Z, in less than 24h0m0s"},
		{"shown to a backend, expired", []certs.Status{{Name: "shown", Source: certs.SourceClient, NotAfter: over.NotAfter}}, nil, nil, time.Second, true, ""},
		{"expired", []certs.Status{over}, nil, nil, time.Second, false, "certificate over: expired at 2026-03-01T12:00:00Z"},
		{"not obtained", []certs.Status{pending}, nil, nil, time.Second, false, "certificate pending: not obtained yet"},
		{"must-staple without", []certs.Status{staple}, nil, nil, 0, true, "certificate stapled: must-staple, and no valid staple"},
		{"must-staple pending", []certs.Status{staple}, []ocsp.CertificateStatus{{Certificate: "bb", State: ocsp.StatePending}}, nil, 0, true, "must-staple"},
		{"must-staple good", []certs.Status{staple}, []ocsp.CertificateStatus{{Certificate: "bb", State: ocsp.StateGood}}, nil, 0, true, ""},
		{"staple of another", []certs.Status{staple}, []ocsp.CertificateStatus{{Certificate: "cc", State: ocsp.StateGood}}, nil, 0, true, "must-staple"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{status: Status{Certificates: test.certs, Staples: test.staples}, notReady: test.notReady}
			o := f.options(t)
			o.RequireExpiry, o.RequireMustStaple = test.expiry, test.must
			h := newHandler(t, o)
			w := do(h, request("GET", "/readyz", ""))
			var s Status
			if err := json.Unmarshal(do(h, request("GET", "/api/status", "")).Body.Bytes(), &s); err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if w.Code != 200 || w.Body.String() != "ready\n" || !s.Ready || len(s.NotReady) != 0 {
					t.Errorf("%d %q, status %v %q", w.Code, w.Body, s.Ready, s.NotReady)
				}
				return
			}
			if w.Code != 503 || !strings.Contains(w.Body.String(), test.want) || s.Ready || !strings.Contains(strings.Join(s.NotReady, "\n"), test.want) {
				t.Errorf("%d %q, status %v %q; want %q", w.Code, w.Body, s.Ready, s.NotReady, test.want)
			}
			if w := do(h, request("GET", "/healthz", "")); w.Code != 200 {
				t.Errorf("healthz = %d: being alive is another question", w.Code)
			}
		})
	}
}

func TestReloadRefused(t *testing.T) {
	f := &fake{reloadErr: errors.New("config.yaml:7: unknown field \"lisenters\"")}
	w := do(f.handler(t), request("POST", "/api/reload", ""))
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), `config.yaml:7: unknown field \"lisenters\"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The client that asked for a reload may go away while it runs.
func TestReloadOutlivesItsClient(t *testing.T) {
	f := &fake{}
	o := f.options(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Reload = func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}
	if w := do(newHandler(t, o), request("POST", "/api/reload", "").WithContext(ctx)); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestRevoke(t *testing.T) {
	form, js := "application/x-www-form-urlencoded", "application/json; charset=utf-8"
	certificate := session.Subject{Kind: session.KindCertificate, Issuer: "CN=Test CA,O=Example", Serial: "0A:ff"}
	tests := []struct {
		name, contentType, body string
		want                    session.Subject
	}{
		{"all", js, `{"kind": "all"}`, session.Subject{Kind: session.KindAll}},
		{"all by form", form, "kind=all", session.Subject{Kind: session.KindAll}},
		{"site", js, `{"kind":"site","value":"shop"}`, session.Subject{Kind: session.KindSite, Value: "shop"}},
		{"site by form", form, "value=shop&kind=site", session.Subject{Kind: session.KindSite, Value: "shop"}},
		{"name", js, `{"kind":"sni","value":"App.Example.com."}`, session.Subject{Kind: session.KindServerName, Value: "App.Example.com."}},
		{"certificate", js, `{"kind":"certificate","issuer":"CN=Test CA,O=Example","serial":"0A:ff"}`, certificate},
		{"certificate by form", form, "kind=certificate&serial=0A%3aff&issuer=CN%3DTest+CA%2CO%3DExample", certificate},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			w := do(f.handler(t), request("POST", "/api/sessions/revoke", test.body, "Content-Type", test.contentType))
			if w.Code != 200 || !slices.Equal(f.revoked, []session.Subject{test.want}) {
				t.Fatalf("%d %s, revoked %+v", w.Code, w.Body, f.revoked)
			}
			var answer struct{ Revoked session.Subject }
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Revoked != test.want {
				t.Errorf("%s: %v", w.Body, err)
			}
		})
	}
}

func TestRevokeRefusesWhatIsNotClear(t *testing.T) {
	form, js := "application/x-www-form-urlencoded", "application/json"
	tests := []struct {
		name, contentType, body string
		code                    int
		want                    string
	}{
		{"nothing", js, "", 400, "say what to revoke"},
		{"nothing in it", js, "{}", 400, "say what to revoke"},
		{"empty form", form, "", 400, "say what to revoke"},
		{"no kind", js, `{"value":"shop"}`, 400, "say what to revoke"},
		{"unknown kind", js, `{"kind":"everything"}`, 400, `unknown kind \"everything\"`},
		{"kind in another case", js, `{"kind":"ALL"}`, 400, `unknown kind \"ALL\"`},
		{"unknown word", js, `{"kind":"site","name":"shop"}`, 400, `unknown field \"name\"`},
		{"unknown word beside a full request", js, `{"kind":"all","dry_run":true}`, 400, `unknown field \"dry_run\"`},
		{"unknown word in a form", form, "kind=all&confirm=yes", 400, `unknown field \"confirm\"`},
		{"another case", js, `{"Kind":"all"}`, 400, `unknown field \"Kind\"`},
		{"twice", js, `{"kind":"site","value":"shop","value":"app"}`, 400, "given twice"},
		{"twice in a form", form, "kind=site&value=shop&value=app", 400, "given twice"},
		{"all of one site", js, `{"kind":"all","value":"shop"}`, 400, `kind \"all\" goes without \"value\"`},
		{"site of a certificate", js, `{"kind":"site","value":"shop","serial":"01"}`, 400, `kind \"site\" goes without \"serial\"`},
		{"no value", js, `{"kind":"site"}`, 400, `kind \"site\" needs \"value\"`},
		{"number", js, `{"kind":"site","value":7}`, 400, `\"value\": must be a string`},
		{"true", js, `{"kind":true}`, 400, `\"kind\": must be a string`},
		{"null", js, `{"kind":"site","value":null}`, 400, "must be a string"},
		{"list", js, `{"kind":"site","value":["shop"]}`, 400, "must be a string"},
		{"empty value", js, `{"kind":"sni","value":" "}`, 400, `\"value\" is empty`},
		{"serial alone", js, `{"kind":"certificate","serial":"01"}`, 400, `kind \"certificate\" needs \"issuer\"`},
		{"issuer alone", js, `{"kind":"certificate","issuer":"CN=x"}`, 400, `kind \"certificate\" needs \"serial\"`},
		{"serial no number", js, `{"kind":"certificate","issuer":"CN=x","serial":"12 34"}`, 400, "not hexadecimal"},
		{"serial of colons", js, `{"kind":"certificate","issuer":"CN=x","serial":"::"}`, 400, "not hexadecimal"},
		{"no JSON", js, `kind=all`, 400, "not a JSON object"},
		{"JSON list", js, `[{"kind":"all"}]`, 400, "not a JSON object"},
		{"cut off", js, `{"kind":"all"`, 400, "not JSON"},
		{"more after it", js, `{"kind":"all"}{"kind":"all"}`, 400, "goes on after"},
		{"bad escape in a form", form, "value=%zz", 400, "not a form"},
		{"no type", "", `{"kind":"all"}`, 415, "application/json"},
		{"other type", "text/plain", `{"kind":"all"}`, 415, "application/json"},
		{"multipart", "multipart/form-data; boundary=x", "--x--", 415, "application/json"},
		{"large", js, `{"value":"` + strings.Repeat("x", maxBody) + `"}`, 413, "larger than 65536 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			w := do(f.handler(t), request("POST", "/api/sessions/revoke", test.body, "Content-Type", test.contentType))
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) || len(f.revoked) != 0 {
				t.Errorf("%d %s, revoked %+v; want %d, %q", w.Code, w.Body, f.revoked, test.code, test.want)
			}
		})
	}
	f := &fake{}
	if w := do(f.handler(t), request("POST", "/api/sessions/revoke?kind=all", `{"kind":"site","value":"shop"}`, "Content-Type", js)); w.Code != 400 || len(f.revoked) != 0 {
		t.Errorf("a query beside the body: %d %s", w.Code, w.Body)
	}
}

func TestRevokeOutcomes(t *testing.T) {
	tests := []struct {
		err  error
		code int
		want string
	}{
		{fmt.Errorf("store: timeout: %w", session.ErrNotShared), 202, `"warning":"store: timeout: session: revocation not yet shared`},
		{session.ErrNotKept, 202, `"warning":"session: revocation not kept on disk"`},
		{errors.New("issuer is no distinguished name"), 400, "not revoked: issuer is no distinguished name"},
	}
	for _, test := range tests {
		f := &fake{revokeErr: test.err}
		w := do(f.handler(t), request("POST", "/api/sessions/revoke", "kind=all", "Content-Type", "application/x-www-form-urlencoded"))
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%v: %d %s; want %d, %s", test.err, w.Code, w.Body, test.code, test.want)
		}
	}
}

// Sessions may have been made under a site that was renamed; a name that was
// misspelled must not go unnoticed.
func TestRevokeUnknownSite(t *testing.T) {
	f := &fake{}
	w := do(f.handler(t), request("POST", "/api/sessions/revoke", `{"kind":"site","value":"shpo"}`, "Content-Type", "application/json"))
	if w.Code != 202 || !strings.Contains(w.Body.String(), `"warning":"site \"shpo\" is unknown, known are app, shop`) || len(f.revoked) != 1 {
		t.Errorf("%d %s, revoked %+v", w.Code, w.Body, f.revoked)
	}
}

// What has no function behind it is not there.
func TestAbsentControls(t *testing.T) {
	h := newHandler(t, Options{Status: func() Status { return Status{} }})
	for _, path := range []string{"/api/reload", "/api/quit", "/api/sessions/revoke"} {
		if w := do(h, request("POST", path, "")); w.Code != 404 {
			t.Errorf("%s = %d", path, w.Code)
		}
	}
	if w := do(h, request("GET", "/metrics", "")); w.Code != 404 {
		t.Errorf("/metrics = %d", w.Code)
	}
	if w := do(h, request("GET", "/readyz", "")); w.Code != 200 {
		t.Errorf("/readyz = %d", w.Code)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{}, {Status: func() Status { return Status{} }, RequireExpiry: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// The names in the JSON are an API.
func TestStatusFields(t *testing.T) {
	f := &fake{status: Status{Version: "v1", Started: now.Add(-time.Minute), Store: &Store{}, Config: Config{LastError: "x", LastReload: now}}}
	var got map[string]any
	if err := json.Unmarshal(do(f.handler(t), request("GET", "/api/status", "")).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"admin", "caches", "certificate_stats", "certificates", "client_auth", "config", "draining", "front", "http", "listeners",
		"memory", "not_ready", "now", "ocsp", "ready", "runtime", "sessions", "staples", "started", "store", "upgraded", "upstreams",
		"uptime_seconds", "version",
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("fields %v\nwant   %v", names, want)
	}
	if got["uptime_seconds"] != 60.0 {
		t.Errorf("uptime = %v", got["uptime_seconds"])
	}
	process := got["runtime"].(map[string]any)
	if process["goroutines"].(float64) < 1 || process["heap_bytes"].(float64) < 1 || process["cpus"].(float64) < 1 {
		t.Errorf("runtime = %v", process)
	}
}

func FuzzRevoke(f *testing.F) {
	for _, body := range []string{`{"kind":"all"}`, `{"kind":"site","value":"shop"}`, `{"kind":"certificate","issuer":"CN=x","serial":"0a"}`, "kind=all", "kind=sni&value=a.test", `{"a":{"b":[`, "value=%"} {
		f.Add(body, true)
		f.Add(body, false)
	}
	f.Fuzz(func(t *testing.T, body string, isJSON bool) {
		contentType := "application/x-www-form-urlencoded"
		if isJSON {
			contentType = "application/json"
		}
		s, err := parseSubject(request("POST", "/", body, "Content-Type", contentType))
		if err != nil {
			return
		}
		switch s.Kind {
		case session.KindAll:
			if s.Value+s.Issuer+s.Serial != "" || !strings.Contains(body, "all") {
				t.Fatalf("%q revokes all, %+v", body, s)
			}
		case session.KindSite, session.KindServerName:
			if strings.TrimSpace(s.Value) == "" || s.Issuer+s.Serial != "" {
				t.Fatalf("%q: %+v", body, s)
			}
		case session.KindCertificate:
			if s.Issuer == "" || !isHex(s.Serial) || s.Value != "" {
				t.Fatalf("%q: %+v", body, s)
			}
		default:
			t.Fatalf("%q: kind %q", body, s.Kind)
		}
	})
}
