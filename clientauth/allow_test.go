package clientauth

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"net"
	"net/url"
	"strings"
	"testing"
)

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAllowEntryMatches(t *testing.T) {
	ca := newCA(t, nil, "ca")
	cert := issue(t, ca, &x509.Certificate{
		Subject:        pkix.Name{CommonName: "ann", OrganizationalUnit: []string{"payments", "ops"}},
		DNSNames:       []string{"Client.Example.com"},
		EmailAddresses: []string{"ann@Example.com"},
		URIs:           []*url.URL{mustURL(t, "spiffe://td/ns/web")},
		IPAddresses:    []net.IP{net.ParseIP("192.0.2.7"), net.ParseIP("2001:db8::1")},
	}).cert
	sum := sha256.Sum256(cert.Raw)
	fingerprint := hex.EncodeToString(sum[:])
	colons := strings.ToUpper(fingerprint[:2])
	for i := 2; i < len(fingerprint); i += 2 {
		colons += ":" + strings.ToUpper(fingerprint[i:i+2])
	}
	other := strings.Repeat("00", 32)

	tests := []struct {
		entry string
		want  bool
	}{
		{"dns:client.example.com", true},
		{" DNS : client.example.com. ", true},
		{"dns:*.example.com", true},
		{"dns:*.com", false},
		{"dns:*.client.example.com", false},
		{"dns:example.com", false},
		{"dns:ann", false}, // a common name is no DNS name
		{"email:ann@example.com", true},
		{"email:*@example.com", true},
		{"email:Ann@example.com", false},
		{"email:ann@other.example", false},
		{"uri:spiffe://td/ns/web", true},
		{"uri:spiffe://td/ns/*", true},
		{"uri:spiffe://td/*", true},
		{"uri:spiffe://td/ns/web/*", false},
		{"uri:spiffe://td/ns", false},
		{"uri:spiffe://TD/ns/web", false},
		{"ip:192.0.2.7", true},
		{"ip:192.0.2.0/24", true},
		{"ip:::ffff:192.0.2.7", true},
		{"ip:192.0.3.0/24", false},
		{"ip:2001:db8::/32", true},
		{"ip:2001:db8::2", false},
		{"cn:ann", true},
		{"cn:Ann", false},
		{"cn:client.example.com", false},
		{"ou:payments", true},
		{"ou:ops", true},
		{"ou:pay", false},
		{"sha256:" + fingerprint, true},
		{"sha256:" + colons, true},
		{"sha256:" + other, false},
	}
	for _, test := range tests {
		e, err := ParseAllow(test.entry)
		if err != nil {
			t.Errorf("ParseAllow(%q): %v", test.entry, err)
			continue
		}
		if got := e.matches(cert); got != test.want {
			t.Errorf("%q matches = %v; want %v", test.entry, got, test.want)
		}
		again, err := ParseAllow(e.String())
		if err != nil || again != e {
			t.Errorf("ParseAllow(%q) = %v, %v; want the entry of %q back", e.String(), again, err, test.entry)
		}
	}
}

func TestAllowURIRefusesDotSegments(t *testing.T) {
	e, err := ParseAllow("uri:spiffe://td/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"spiffe://td/ns/../admin", "spiffe://td/ns/%2e%2E/admin", "spiffe://td/ns/./x", "spiffe://td/ns/"} {
		if e.matchesURI(uri) {
			t.Errorf("%s matches %s", e, uri)
		}
	}
}

func TestParseAllowErrors(t *testing.T) {
	for entry, want := range map[string]string{
		"":                            "kind:value",
		"client.example.com":          "kind:value",
		"dns:":                        "kind:value",
		"name:x":                      "the kind must be",
		"dns:a.*.example":             "star",
		"dns:*":                       "star",
		"dns:*.":                      "star",
		"dns:..":                      "empty label",
		"dns:a..example":              "empty label",
		"dns:*..example":              "empty label",
		"dns:.example":                "empty label",
		"dns:a .":                     "no label",
		"dns:bücher.example":          "xn--",
		"email:ann":                   "@",
		"email:@example.com":          "@",
		"uri:spiffe://*/x":            "star",
		"uri:a*b":                     "star",
		"ip:192.0.2":                  "IP address",
		"ip:192.0.2.7/24":             "did you mean 192.0.2.0/24",
		"ip:fe80::1%eth0":             "zone",
		"sha256:abcd":                 "64 hexadecimal digits",
		"cn:a\x00b":                   "characters",
		"ou:\xff":                     "characters",
		"sha1:" + hexZeros(20):        "the kind must be",
		"dns:" + longString("a", 500): "",
	} {
		_, err := ParseAllow(entry)
		if want == "" {
			if err != nil {
				t.Errorf("ParseAllow(%d bytes): %v", len(entry), err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseAllow(%q) = %v; want an error with %q", entry, err, want)
		}
	}
}

func hexZeros(n int) string             { return strings.Repeat("00", n) }
func longString(s string, n int) string { return strings.Repeat(s, n) }

func TestAllowFile(t *testing.T) {
	entries, err := parseAllowFile([]byte("# who may come in\n\ndns:a.example # the first\r\n  ou:ops\nuri:https://x.example/a#b\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.String())
	}
	if want := "dns:a.example ou:ops uri:https://x.example/a#b"; strings.Join(got, " ") != want {
		t.Errorf("entries = %q; want %q", got, want)
	}

	_, err = parseAllowFile([]byte("dns:a.example\nnonsense\nip:1.2.3.4/8\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("error = %v; want lines 2 and 3 named", err)
	}
}

func FuzzAllowFile(f *testing.F) {
	for _, seed := range []string{
		"dns:client.example.com\n", "dns:*.example.com # x\n", "email:*@example.com", "uri:spiffe://td/*", "ip:192.0.2.0/24",
		"ip:::1", "cn:a:b", "ou: x ", "sha256:" + hexZeros(32), "#", "\xff:\x00", "dns:*.",
	} {
		f.Add([]byte(seed))
	}
	cert := newClient(f, newCA(f, nil, "ca"), "client.example.com").cert
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseAllowFile(data)
		if err != nil {
			return
		}
		for _, e := range entries {
			_ = e.matches(cert)
			again, err := ParseAllow(e.String())
			if err != nil || again != e {
				t.Fatalf("ParseAllow(%q) = %v, %v; want itself", e.String(), again, err)
			}
		}
	})
}
