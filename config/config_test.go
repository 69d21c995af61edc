package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// minimal is the least that is a configuration.
const minimal = `
listeners:
  - address: ":8443"
certificates:
  - {cert: /etc/tls/tls.crt, key: /etc/tls/tls.key}
sites:
  - hosts: [app.example.com]
    routes:
      - upstream: web
upstreams:
  web: {backends: ["http://127.0.0.1:8081"]}
`

// parse parses minimal with more after it.
func parse(t *testing.T, more string) *Config {
	t.Helper()
	c, err := Parse("config.yaml", []byte(minimal+more))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMinimalGetsDefaults(t *testing.T) {
	c := parse(t, "")
	checks := []struct {
		what      string
		got, want any
	}{
		{"proxy_protocol", c.Listeners[0].ProxyProtocol, ProxyOff},
		{"redirect_port", c.HTTP.RedirectPort, 0},
		{"sessions.capacity", c.Sessions.Capacity, 20480},
		{"sessions.max_bytes", c.Sessions.MaxBytes, Size(64 << 20)},
		{"sessions.lifetime", c.Sessions.Lifetime, 24 * time.Hour},
		{"sessions.client_auth_lifetime", c.Sessions.ClientAuthLifetime, time.Hour},
		{"sessions.reuse_window", c.Sessions.ReuseWindow, ReuseWindow(10 * time.Second)},
		{"ocsp.capacity", c.OCSP.Capacity, 256},
		{"ocsp.timeout", c.OCSP.Timeout, 5 * time.Second},
		{"store.timeout", c.Store.Timeout, 50 * time.Millisecond},
		{"site name", c.Sites[0].Name, "app.example.com"},
		{"site min_version", c.Sites[0].TLS.MinVersion, TLSVersion("1.2")},
		{"site resumption", c.Sites[0].TLS.Resumption.On(), true},
		{"client_auth.mode", c.Sites[0].TLS.ClientAuth.Mode, ClientAuthNone},
		{"route path", c.Sites[0].Routes[0].Path, "/"},
		{"route name", c.Sites[0].Routes[0].Name, "app.example.com/"},
		{"health status", c.Upstreams["web"].Health.Status, StatusRange{200, 399}},
		{"max_requests", c.Upstreams["web"].MaxRequests, Off},
		{"handshake_rate", c.Limits.HandshakeRate, Rate{}},
		{"admin.address", c.Admin.Address, DefaultAdminAddress},
		{"access_log.output", c.AccessLog.Output, "stdout"},
	}
	for _, check := range checks {
		if !reflect.DeepEqual(check.got, check.want) {
			t.Errorf("%s = %v; want %v", check.what, check.got, check.want)
		}
	}
}

func TestValues(t *testing.T) {
	c := parse(t, `
sessions: {max_bytes: 1.5GiB, reuse_window: single, client_share: off}
timeouts: {idle: off, read: 1h30m, write: 0s}
limits: {body: 10MB, connections_per_client: 0, handshake_rate: {per_second: 2.5}}
ocsp: {stapling: false, proxy: off, overrides: {"http://a.example.com": off}}
admin: {ready: {must_staple: yes, certificate_expiry: 72h}}
http: {address: ":8080", proxy_protocol: required, trusted_proxies: [10.0.0.0/8, "::ffff:192.0.2.1", 2001:db8::1]}
`)
	checks := []struct {
		what      string
		got, want any
	}{
		{"fraction of a size", c.Sessions.MaxBytes, Size(3 << 29)},
		{"decimal size", c.Limits.Body, Size(10_000_000)},
		{"single", c.Sessions.ReuseWindow, ReuseSingle},
		{"share off", c.Sessions.ClientShare, float64(Off)},
		{"idle off", c.Timeouts.Idle, time.Duration(Off)},
		{"duration", c.Timeouts.Read, 90 * time.Minute},
		{"zero is the default", c.Timeouts.Write, time.Minute},
		{"zero is the default off", c.Limits.ConnectionsPerClient, Off},
		{"rate", c.Limits.HandshakeRate, Rate{PerSecond: 2.5, Burst: 3}},
		{"switch by a boolean", c.OCSP.Stapling.On(), false},
		{"boolean by a word", c.Admin.Ready.MustStaple, true},
		{"overrides", c.OCSP.Overrides, map[string]string{"http://a.example.com": "off"}},
		{"networks", c.HTTP.TrustedProxies, []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128"),
		}},
	}
	for _, check := range checks {
		if !reflect.DeepEqual(check.got, check.want) {
			t.Errorf("%s: %v; want %v", check.what, check.got, check.want)
		}
	}
	if c := parse(t, "sessions: {reuse_window: unlimited}"); c.Sessions.ReuseWindow != ReuseUnlimited {
		t.Errorf("reuse_window = %d", c.Sessions.ReuseWindow)
	}
}

func TestSitesInheritThePolicyFieldByField(t *testing.T) {
	text := strings.Replace(minimal, "    routes:", `    tls:
      max_version: "1.2"
      resumption: on
      client_auth: {mode: require, ca_file: /ca.pem, crl_file: [/a.crl, /b.crl]}
    routes:`, 1) + `
tls: {min_version: "1.2", cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], curves: [X25519], resumption: off}
`
	c, err := Parse("config.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := TLS{
		MinVersion: "1.2", MaxVersion: "1.2", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		Curves: []string{"X25519"}, HTTP2: "on", Resumption: "on",
	}
	if got := c.Sites[0].TLS.TLS; !reflect.DeepEqual(got, want) {
		t.Errorf("site's policy = %+v; want %+v", got, want)
	}
	if c.TLS.MaxVersion != "1.3" || c.TLS.Resumption.On() {
		t.Errorf("the policy at the top changed: %+v", c.TLS)
	}
	auth := c.Sites[0].TLS.ClientAuth
	if !slices.Equal(auth.CAFile, []string{"/ca.pem"}) || !slices.Equal(auth.CRLFile, []string{"/a.crl", "/b.crl"}) {
		t.Errorf("files: %q, %q", auth.CAFile, auth.CRLFile)
	}
	if !auth.Forward.Cert.On() || !auth.Forward.Chain.On() {
		t.Errorf("forward = %+v", auth.Forward)
	}
}

func TestHostsAreCanonical(t *testing.T) {
	tests := []struct{ host, want string }{
		{"App.Example.COM", "app.example.com"},
		{"app.example.com.", "app.example.com"},
		{"*.Example.com", "*.example.com"},
		{"münchen.example", "xn--mnchen-3ya.example"},
		{"*.MÜNCHEN.example", "*.xn--mnchen-3ya.example"},
		{"_service.example.com", "_service.example.com"},
		{"*", "*"},
		{"[::1]", "::1"},
		{"2001:DB8:0::1", "2001:db8::1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"", ""},
	}
	for _, test := range tests {
		if got := canonicalHost(test.host); got != test.want {
			t.Errorf("canonicalHost(%q) = %q; want %q", test.host, got, test.want)
		}
	}
	c, err := Parse("", []byte(strings.Replace(minimal, "app.example.com", `"App.Example.COM."`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Sites[0].Hosts[0]; got != "app.example.com" {
		t.Errorf("host = %q", got)
	}
}

func TestACMEDefaults(t *testing.T) {
	acme := func(body, more string) *ACME {
		text := strings.Replace(minimal, "{cert: /etc/tls/tls.crt, key: /etc/tls/tls.key}", "acme: {"+body+"}", 1)
		c, err := Parse("", []byte(text+more))
		if err != nil {
			t.Fatal(err)
		}
		return c.Certificates[0].ACME
	}
	a := acme("hosts: [a.example.com]", "")
	if want := []Issuer{{Directory: letsEncrypt}}; !slices.Equal(a.Issuers, want) {
		t.Errorf("issuers = %+v; want %+v", a.Issuers, want)
	}
	if want := []string{"tls-alpn-01"}; !slices.Equal(a.Challenges, want) {
		t.Errorf("without http: challenges = %q; want %q", a.Challenges, want)
	}
	a = acme("hosts: [a.example.com]", "http: {address: ':8080'}")
	if want := []string{"tls-alpn-01", "http-01"}; !slices.Equal(a.Challenges, want) {
		t.Errorf("with http: challenges = %q; want %q", a.Challenges, want)
	}
	a = acme("hosts: ['*.example.com'], directory: 'https://ca.example/dir', ca_file: /ca, profile: shortlived, eab: {key_id: k, key_file: /k}, dns: {rfc2136: {server: 192.0.2.1, key_name: k, key_file: /t}}", "")
	if want := []string{"dns-01"}; !slices.Equal(a.Challenges, want) {
		t.Errorf("with dns: challenges = %q; want %q", a.Challenges, want)
	}
	if want := (Issuer{Directory: "https://ca.example/dir", CAFile: "/ca", Profile: "shortlived", EAB: EAB{"k", "/k"}}); a.Issuers[0] != want {
		t.Errorf("issuer = %+v; want %+v", a.Issuers[0], want)
	}
}

func TestDefaultStateDir(t *testing.T) {
	tests := []struct {
		env  map[string]string
		euid int
		want string
	}{
		{map[string]string{"STATE_DIRECTORY": "/var/lib/a:/var/lib/b", "HOME": "/root"}, 0, "/var/lib/a"},
		{map[string]string{"HOME": "/root"}, 0, "/var/lib/tlsproxy"},
		{map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/s"}, 1000, "/s/tlsproxy"},
		{map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "relative"}, 1000, "/home/u/.local/state/tlsproxy"},
		{nil, 1000, ""},
	}
	for _, test := range tests {
		got := defaultStateDir(func(name string) string { return test.env[name] }, test.euid)
		if got != test.want {
			t.Errorf("%v as %d: %q; want %q", test.env, test.euid, got, test.want)
		}
	}
}

// TestNoStateDirectoryNeeded: file certificates alone need no place for state.
func TestNoStateDirectoryNeeded(t *testing.T) {
	c := &Config{lines: map[string]int{}, Certificates: []Certificate{{Cert: "/c", Key: "/k"}}}
	v := &validator{problems: &problems{config: c}, c: c}
	if v.stateDir(); len(v.found) > 0 {
		t.Errorf("with files alone: %v", v.found)
	}
	c.Certificates = append(c.Certificates, Certificate{Local: &Local{}})
	if v.stateDir(); len(v.found) != 1 {
		t.Errorf("with a development CA: %v; want that state_dir is missing", v.found)
	}
}

func TestAt(t *testing.T) {
	c := parse(t, "ocsp:\n  timeout: 1s\nhttp:\n  address: ':8080'\n")
	broken := errors.New("no such file")
	tests := []struct{ path, want string }{
		{"certificates[0].key", "config.yaml:5: certificates[0].key: no such file"},
		{"certificates[0].passphrase_file", "config.yaml:5: certificates[0].passphrase_file: no such file"},
		{"upstreams.web.backends[0]", "config.yaml:11: upstreams.web.backends[0]: no such file"},
		{"ocsp.capacity", "config.yaml:12: ocsp.capacity: no such file"},
		{"admin.address", "config.yaml: admin.address: no such file"},
		{"", "config.yaml: no such file"},
	}
	for _, test := range tests {
		err := c.At(test.path, broken)
		if err.Error() != test.want {
			t.Errorf("At(%q) = %q; want %q", test.path, err, test.want)
		}
		if !errors.Is(err, broken) {
			t.Errorf("At(%q) does not wrap", test.path)
		}
	}
	if err := c.At("x", nil); err != nil {
		t.Errorf("At of nil = %v", err)
	}
}

// TestAtSingleIssuer: a single issuer's fields stand in acme itself, but are
// used as issuers[0].
func TestAtSingleIssuer(t *testing.T) {
	text := strings.Replace(minimal, "  - {cert: /etc/tls/tls.crt, key: /etc/tls/tls.key}", "  - acme:\n      hosts: [a.example.com]\n      ca_file: /ca.pem", 1)
	c, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := c.At("certificates[0].acme.issuers[0].ca_file", errors.New("x")).Error()
	if want := "f:7: certificates[0].acme.issuers[0].ca_file: x"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: %v", err)
	}
	huge := filepath.Join(dir, "huge.yaml")
	if err := os.WriteFile(huge, bytes.Repeat([]byte("# comment\n"), maxFile/10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(huge); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("huge file: %v", err)
	}
}

// TestHostileFilesEndSoon parses what is meant to take long.
func TestHostileFilesEndSoon(t *testing.T) {
	const size = 1 << 18
	tests := map[string]string{
		"deep lists":        strings.Repeat("[", size/2),
		"deep maps":         strings.Repeat("{a: ", size/8),
		"many keys":         strings.Repeat("a: b\n", size/5),
		"many values":       "listeners: [" + strings.Repeat("a,", size/2-20) + "]",
		"one long word":     strings.Repeat("a", size),
		"one long key":      strings.Repeat("a", size-10) + ": b",
		"many anchors":      "x: [" + strings.Repeat("&a b, *a, ", size/10-10) + "]",
		"question marks":    strings.Repeat("? ", size/2),
		"multiplied errors": "sites: [" + "&a {hosts: [a b, c d]}, " + strings.Repeat("*a,", 60_000) + "]",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if _, err := Parse("f", []byte(text)); err == nil {
				t.Error("no error")
			}
			if d := time.Since(start); d > time.Minute {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"listeners", "listeners", 0},
		{"lisenters", "listeners", 2}, {"adress", "address", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3},
	}
	for _, test := range tests {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d; want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestTLSNumbers(t *testing.T) {
	for name, id := range curves() {
		if got, ok := CurveID(name); !ok || got != id {
			t.Errorf("curve %s = %v, %v", name, got, ok)
		}
	}
	if TLSVersion("1.2").Number() != 0x303 || TLSVersion("1.3").Number() != 0x304 || TLSVersion("1.1").Number() != 0 {
		t.Error("versions are not those of crypto/tls")
	}
}

func ExampleParse() {
	_, err := Parse("config.yaml", []byte("lisenters:\n  - address: 8443\ncertificates:\n  - {cert: a.crt}\nsites: []\n"))
	fmt.Println(err)
	// Output:
	// config.yaml:1: unknown field "lisenters": did you mean "listeners"?
	// config.yaml:2: listeners[0].address: "8443" lacks a colon: write it like ":8443" for every address
	// config.yaml:4: certificates[0].cert: needs key: the file with its private key, which may be the same file
	// config.yaml:5: sites: none: give at least one, such as {hosts: [localhost], routes: [{upstream: web}]}
}
