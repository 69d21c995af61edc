package front

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/clientauth"
)

func TestCanonicalName(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a" // 253
	for name, want := range map[string]string{
		"":                      "",
		"app.example":           "app.example",
		"APP.Example":           "app.example",
		"app.example.":          "app.example",
		"bücher.example":        "xn--bcher-kva.example",
		"BÜCHER.example":        "xn--bcher-kva.example",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"my_service.local":      "my_service.local",
		"192.0.2.1":             "192.0.2.1",
		"2001:db8::1":           "2001:db8::1",
		"localhost":             "localhost",
		long:                    long,
	} {
		if got, ok := CanonicalName(name); !ok || got != want {
			t.Errorf("CanonicalName(%q) = %q, %v; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"a..b", ".a", "a b", "a/b", "a\x00b", "\xff", "a\n", "..", long + "a", "a%2eb", "é..x"} {
		if got, ok := CanonicalName(name); ok || got != "" && ok {
			t.Errorf("CanonicalName(%q) = %q, %v; want none", name, got, ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = CanonicalName("app.example") }); n != 0 {
		t.Errorf("%v allocations for a name in its form", n)
	}
}

func FuzzCanonicalName(f *testing.F) {
	for _, s := range []string{"", "app.example", "APP.example.", "bücher.example", "a..b", "\xff", "xn--", "ß.example", "٣.example", "a."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := CanonicalName(name)
		if !ok {
			return
		}
		if again, ok := CanonicalName(got); !ok || again != got {
			t.Fatalf("CanonicalName(%q) = %q, but that gives %q, %v", name, got, again, ok)
		}
	})
}

func TestTableLookup(t *testing.T) {
	r := newRig(t, rigOptions{noStart: true})
	site := func(name string) *Policy { return r.policy(PolicyOptions{Site: name}) }
	sites := []Site{
		{Hosts: []string{"app.example", "APP2.Example."}, Policy: site("exact")},
		{Hosts: []string{"*.example"}, Policy: site("wild")},
		{Hosts: []string{"*.x.example"}, Policy: site("deep")},
		{Hosts: []string{"bücher.example"}, Policy: site("idn")},
	}
	open, closed := r.table(site("default"), sites...), r.table(nil, sites...)
	for name, want := range map[string]string{
		"app.example":           "exact",
		"app2.example":          "exact",
		"www.example":           "wild",
		"a.b.example":           "default", // a star is one label
		"a.x.example":           "deep",
		"x.example":             "wild",
		"example":               "default",
		".example":              "default",
		"xn--bcher-kva.example": "idn",
		"":                      "default",
		"test":                  "default",
	} {
		if p := open.Lookup(name); p.site != want {
			t.Errorf("Lookup(%q) = %s; want %s", name, p.site, want)
		}
		p := closed.Lookup(name)
		if want == "default" {
			if p != nil {
				t.Errorf("Lookup(%q) = %s where unknown names are refused", name, p.site)
			}
		} else if p.site != want {
			t.Errorf("Lookup(%q) = %s; want %s", name, p.site, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { open.Lookup("a.x.example"); open.Lookup("app.example"); open.Lookup("nobody.test") }); n != 0 {
		t.Errorf("%v allocations for a lookup", n)
	}
}

// TestTableWithoutName: where unknown names are refused, connections without
// one still get the default.
func TestTableWithoutName(t *testing.T) {
	r := newRig(t, rigOptions{noStart: true})
	table, err := NewTable(TableOptions{Default: r.policy(PolicyOptions{Site: "default"}), RejectUnknownSNI: true})
	if err != nil {
		t.Fatal(err)
	}
	if p := table.Lookup(""); p == nil || p.site != "default" {
		t.Errorf("without a name: %v", p)
	}
	if p := table.Lookup("nobody.test"); p != nil {
		t.Errorf("an unknown name: %s", p.site)
	}
}

// TestSiteByAddress: a client that sends no name gets the site of the address that it
// connected to, be that the connection's own or the one that a proxy in front tells.
func TestSiteByAddress(t *testing.T) {
	r := newRig(t, rigOptions{listeners: func(r *rig) []ListenerOptions {
		table := r.table(r.policy(PolicyOptions{Site: "default"}),
			Site{Hosts: []string{"192.0.2.1"}, Policy: r.policy(PolicyOptions{Site: "four", MinVersion: tls.VersionTLS13})},
			Site{Hosts: []string{"2001:db8::1"}, Policy: r.policy(PolicyOptions{Site: "six"})})
		return []ListenerOptions{{
			Address: listenAddr, Table: table, ProxyProtocol: ProxyOptional, TrustedProxies: mustPrefixes("10.0.0.0/8"),
		}}
	}})
	nameless := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	for _, test := range []struct {
		proxied []byte
		want    string
	}{
		{nil, "four"},
		{header(t, 1, "203.0.113.9:1", "192.0.2.1:443"), "four"},
		{header(t, 2, "203.0.113.9:1", "192.0.2.2:443"), "default"},
		{header(t, 2, "[2001:db8::9]:1", "[2001:db8::1]:443"), "six"},
	} {
		raw := r.dialFrom(trustedProxy, listenAddr)
		if _, err := raw.Write(test.proxied); err != nil {
			t.Fatal(err)
		}
		_, body, err := visitOver(raw, nameless)
		if err != nil || !strings.HasPrefix(body, "site="+test.want+" sni= ") {
			t.Errorf("%q: %q, %v; want the site %s", test.proxied, body, err, test.want)
		}
	}
	// The site's own policy holds, and its name decides before the address does.
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if _, _, err := r.visit(old); alertOf(err) != "protocol version not supported" {
		t.Errorf("TLS 1.2 to a site of TLS 1.3: %v", err)
	}
	if _, body := r.mustVisit(r.client("app.example", tls.VersionTLS12, nil)); !strings.HasPrefix(body, "site=default ") {
		t.Errorf("with a name: %q", body)
	}
}

func TestTableErrors(t *testing.T) {
	r := newRig(t, rigOptions{noStart: true})
	p := r.policy(PolicyOptions{Site: "a"})
	_, err := NewTable(TableOptions{Sites: []Site{
		{Hosts: []string{"a.example", "A.example", "*.b.example", "*.B.example", "*", "a.*.example", "*.*.example", "bad host", ""}, Policy: p},
		{Hosts: []string{"none.example"}},
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`host "A.example": is also a host of site "a"`, `host "*.B.example": is also`, `host "*": must be`, `host "a.*.example"`, `host "*.*.example"`,
		`host "bad host"`, `host "":`, `["none.example"]: no policy`, "no default policy",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestPolicyErrors(t *testing.T) {
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	keys := func(string) [][32]byte { return nil }
	for name, test := range map[string]struct {
		o    PolicyOptions
		want string
	}{
		"no certificates":       {PolicyOptions{Keys: keys}, "no GetCertificate"},
		"no keys":               {PolicyOptions{GetCertificate: get}, "no Keys"},
		"TLS 1.1":               {PolicyOptions{MinVersion: tls.VersionTLS11}, "TLS 1.1: only TLS 1.2 and TLS 1.3"},
		"min above max":         {PolicyOptions{MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS12}, "above max_version"},
		"unknown suite":         {PolicyOptions{CipherSuites: []uint16{0x1234}}, "0x1234 is unknown"},
		"insecure suite":        {PolicyOptions{CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}}, "insecure"},
		"suite of TLS 1.3":      {PolicyOptions{CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256}}, "suites are fixed"},
		"CBC with HTTP/2":       {PolicyOptions{CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}, "forbidden with HTTP/2"},
		"unknown curve":         {PolicyOptions{Curves: []tls.CurveID{9999}}, "unknown"},
		"hybrid curves for 1.2": {PolicyOptions{Curves: []tls.CurveID{tls.X25519MLKEM768}}, "no hybrid"},
	} {
		if name != "no certificates" {
			test.o.GetCertificate = get
		}
		if name != "no keys" {
			test.o.Keys = keys
		}
		test.o.Site = "app"
		_, err := NewPolicy(test.o)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `site "app"`) {
			t.Errorf("%s: NewPolicy = %v; want an error with %q", name, err, test.want)
		}
	}
	for name, o := range map[string]PolicyOptions{
		"CBC without HTTP/2":  {CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}, DisableHTTP2: true},
		"hybrid for 1.3":      {Curves: []tls.CurveID{tls.X25519MLKEM768}, MinVersion: tls.VersionTLS13},
		"keys without resume": {DisableResumption: true},
	} {
		o.GetCertificate = get
		if name != "keys without resume" {
			o.Keys = keys
		}
		if _, err := NewPolicy(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Scope and ID depend on content alone, so that replicas agree, and on all of
// it.
func TestPolicyIdentity(t *testing.T) {
	r := newRig(t, rigOptions{noStart: true})
	base := r.policy(PolicyOptions{Site: "a"})
	again := r.policy(PolicyOptions{Site: "b", MinVersion: tls.VersionTLS12, CipherSuites: []uint16{
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	}})
	if base.ID() != again.ID() || base.scope(ProxyOff, nil) != again.scope(ProxyOff, nil) {
		t.Error("the same content in another order, under another name, has another identity")
	}
	seen := map[string]string{base.ID(): "base"}
	for name, o := range map[string]PolicyOptions{
		"min version": {MinVersion: tls.VersionTLS13},
		"max version": {MaxVersion: tls.VersionTLS12},
		"suites":      {CipherSuites: defaultCipherSuites()[:2]},
		"curves":      {Curves: []tls.CurveID{tls.X25519}},
		"no h2":       {DisableHTTP2: true},
		"no resume":   {DisableResumption: true},
		"client auth": {ClientAuth: verifier(t, clientauth.Options{Mode: clientauth.Request})},
	} {
		p := r.policy(o)
		if other, dup := seen[p.ID()]; dup {
			t.Errorf("%s has the ID of %s", name, other)
		}
		seen[p.ID()] = name
		if same := p.scope(ProxyOff, nil) == base.scope(ProxyOff, nil); same != (name == "no resume" || name == "client auth") {
			t.Errorf("%s: scope is the same = %v", name, same)
		}
	}
	var none, some [32]byte
	some[0] = 1
	scopes := map[[32]byte]string{}
	for name, s := range map[string][32]byte{
		"off": base.scope(ProxyOff, nil), "optional": base.scope(ProxyOptional, nil), "required": base.scope(ProxyRequired, nil),
		"zero digest": base.scope(ProxyOff, &none), "some digest": base.scope(ProxyOff, &some),
	} {
		if other, dup := scopes[s]; dup {
			t.Errorf("%s has the scope of %s", name, other)
		}
		scopes[s] = name
	}
}
