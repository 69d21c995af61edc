package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestSelectByName(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	cert := func(name string, sans ...string) Source {
		return Source{Files: writePair(t, dir, name, issue(t, ca, pki.Request{CommonName: name, Names: sans}))}
	}
	first := cert("first", "first.test", "192.0.2.1")
	sources := []Source{
		first,
		cert("exact", "www.a.test", "WWW.Upper.Test"),
		cert("wild", "*.a.test", "xn--bcher-kva.test"),
		cert("deep", "*.b.a.test"),
	}
	tests := []struct{ sni, want, rejecting string }{
		{"first.test", "first", "first"},
		{"FIRST.test", "first", "first"},
		{"first.test.", "first", "first"},
		{"www.a.test", "exact", "exact"},
		{"www.upper.test", "exact", "exact"},
		{"other.a.test", "wild", "wild"},
		{"a.test", "first", ""},        // a wildcard needs a label
		{"x.y.a.test", "first", ""},    // and stands for one only
		{"x.b.a.test", "deep", "deep"}, // the nearer wildcard
		{".a.test", "first", ""},
		{"*.a.test", "first", ""}, // not a name
		{"bücher.test", "wild", "wild"},
		{"BÜCHER.test", "wild", "wild"},
		{"xn--bcher-kva.test", "wild", "wild"},
		{"unknown.test", "first", ""},
		{"a b", "first", ""},
		{"192.0.2.1", "first", ""}, // addresses are no server names (RFC 6066, section 3)
		{"", "first", "first"},
	}
	for _, reject := range []bool{false, true} {
		s := newStore(t, Options{})
		set, err := s.Load(t.Context(), sources)
		if err != nil {
			t.Fatal(err)
		}
		set.RejectUnknownSNI = reject
		s.Install(set)
		for _, tt := range tests {
			want := tt.want
			if reject {
				want = tt.rejecting
			}
			cert, err := s.GetCertificate(modern(tt.sni))
			switch {
			case want == "" && !errors.Is(err, ErrUnknownName):
				t.Errorf("reject %v, %q: error %v; want ErrUnknownName", reject, tt.sni, err)
			case want != "" && (err != nil || cert.Leaf.Subject.CommonName != want):
				t.Errorf("reject %v, %q: %v, %v; want %s", reject, tt.sni, cert, err, want)
			}
			keys := s.Keys(tt.sni)
			if want == "" && len(keys) != 0 {
				t.Errorf("reject %v, %q: keys for a refused name", reject, tt.sni)
			}
			if err == nil && !slices.Contains(keys, keyID(cert)) {
				t.Errorf("reject %v, %q: the key served is not among Keys", reject, tt.sni)
			}
		}
	}
}

func TestDefault(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	a, b := issue(t, ca, pki.Request{Names: []string{"a.test"}}), issue(t, ca, pki.Request{Names: []string{"b.test"}})
	fa, fb := writePair(t, dir, "a", a), writePair(t, dir, "b", b)
	s := newStore(t, Options{})
	if _, err := s.GetCertificate(modern("x.test")); !errors.Is(err, ErrUnknownName) {
		t.Errorf("without sources: %v", err)
	}
	if s.Keys("x.test") != nil || s.Status() != nil {
		t.Error("something out of nothing")
	}
	load(t, s, Source{Files: fa}, Source{Files: fb})
	if !serves(s, "x.test", a) {
		t.Error("the first is not the default")
	}
	load(t, s, Source{Files: fa}, Source{Files: fb, Default: true})
	if !serves(s, "x.test", b) {
		t.Error("the marked one is not the default")
	}
	if st := s.Status(); st[0].Default || !st[1].Default {
		t.Errorf("Status: %+v", st)
	}
}

// conn is a connection to a local address.
type conn struct {
	net.Conn
	local string
}

func (c conn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.local))
}

// TestWithoutName: a client that connects to an address sends no server name,
// and gets the certificate for that address.
func TestWithoutName(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	a := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	ip := issue(t, ca, pki.Request{Names: []string{"192.0.2.1", "2001:db8::1"}})
	s := newStore(t, Options{})
	load(t, s, Source{Files: writePair(t, dir, "a", a)}, Source{Files: writePair(t, dir, "ip", ip)})
	for local, want := range map[string]*tls.Certificate{
		"192.0.2.1:443": ip, "[2001:db8::1]:443": ip, "[::ffff:192.0.2.1]:443": ip, "192.0.2.9:443": a,
	} {
		hello := modern("")
		hello.Conn = conn{local: local}
		got, err := s.GetCertificate(hello)
		if err != nil || !got.Leaf.Equal(want.Leaf) {
			t.Errorf("%s: %v, %v", local, got, err)
		}
	}
	if keys := s.Keys(""); !slices.Contains(keys, keyID(a)) || !slices.Contains(keys, keyID(ip)) {
		t.Error("Keys of no name lack one of the two")
	}
}

func TestSelectByKeyType(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	made := map[string]*tls.Certificate{}
	var sources []Source
	for name, kt := range map[string]pki.KeyType{"rsa": pki.RSA2048, "p256": pki.ECDSAP256, "p384": pki.ECDSAP384, "ed25519": pki.Ed25519} {
		made[name] = issue(t, ca, pki.Request{Names: []string{"a.test"}, KeyType: kt})
		sources = append(sources, Source{Files: writePair(t, dir, name, made[name])})
	}
	s := newStore(t, Options{})
	load(t, s, sources...)
	hello := func(change func(*tls.ClientHelloInfo)) *tls.ClientHelloInfo {
		h := modern("a.test")
		change(h)
		return h
	}
	tls12 := func(h *tls.ClientHelloInfo) { h.SupportedVersions = []uint16{tls.VersionTLS12} }
	tests := []struct {
		name  string
		hello *tls.ClientHelloInfo
		want  string
	}{
		{"everything", modern("a.test"), "p256"},
		{"1.3, P-384 alone", hello(func(h *tls.ClientHelloInfo) {
			h.SignatureSchemes = []tls.SignatureScheme{tls.ECDSAWithP384AndSHA384, tls.PSSWithSHA256}
			h.CipherSuites = []uint16{tls.TLS_AES_128_GCM_SHA256}
		}), "p384"},
		{"1.3, Ed25519", hello(func(h *tls.ClientHelloInfo) {
			h.SignatureSchemes = []tls.SignatureScheme{tls.Ed25519, tls.PSSWithSHA256}
		}), "ed25519"},
		{"1.3, RSA", hello(func(h *tls.ClientHelloInfo) { h.SignatureSchemes = []tls.SignatureScheme{tls.PSSWithSHA256} }), "rsa"},
		{"1.2, everything", hello(tls12), "p256"},
		{"1.2, RSA suites", hello(func(h *tls.ClientHelloInfo) {
			tls12(h)
			h.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
		}), "rsa"},
		{"1.2, other curve", hello(func(h *tls.ClientHelloInfo) {
			tls12(h)
			h.SupportedCurves = []tls.CurveID{tls.X25519, tls.CurveP384}
			h.SignatureSchemes = []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.PKCS1WithSHA256}
		}), "p384"},
		{"1.2, no ECDSA schemes", hello(func(h *tls.ClientHelloInfo) {
			tls12(h)
			h.SignatureSchemes = []tls.SignatureScheme{tls.PKCS1WithSHA256}
		}), "rsa"},
		{"1.2, no schemes at all", hello(func(h *tls.ClientHelloInfo) { tls12(h); h.SignatureSchemes = nil }), "rsa"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := s.GetCertificate(tt.hello)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Leaf.Equal(made[tt.want].Leaf) {
				t.Errorf("got %s; want %s", keyTypeName(got.Leaf.PublicKey), tt.want)
			}
		})
	}
	keys := s.Keys("a.test")
	for name, cert := range made {
		if !slices.Contains(keys, keyID(cert)) {
			t.Errorf("Keys lack %s", name)
		}
	}
}

// TestRealHandshakes: what is picked suits the client, which crypto/tls judges.
func TestRealHandshakes(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	s := newStore(t, Options{})
	load(t, s,
		Source{Files: writePair(t, dir, "rsa", issue(t, ca, pki.Request{Names: []string{"a.test"}, KeyType: pki.RSA2048}))},
		Source{Files: writePair(t, dir, "ec", issue(t, ca, pki.Request{Names: []string{"a.test"}}))})
	for _, tt := range []struct {
		config *tls.Config
		want   string
	}{
		{&tls.Config{}, "ECDSA P-256"},
		{&tls.Config{MaxVersion: tls.VersionTLS12}, "ECDSA P-256"},
		{&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}, "RSA 2048"},
		{&tls.Config{MaxVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}}, "RSA 2048"},
	} {
		tt.config.ServerName, tt.config.RootCAs = "a.test", ca.Pool()
		leaf := handshake(t, &tls.Config{GetCertificate: s.GetCertificate}, tt.config)
		if got := keyTypeName(leaf.PublicKey); got != tt.want {
			t.Errorf("max version %x: %s; want %s", tt.config.MaxVersion, got, tt.want)
		}
	}
}

// handshake returns the leaf that a client sees, after having verified it.
func handshake(t *testing.T, server, client *tls.Config) *x509.Certificate {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() { done <- tls.Server(a, server).Handshake() }()
	c := tls.Client(b, client)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0]
}

// TestExpiredGivesWay: of two certificates for one name the one that is valid
// is served, and when none is, an expired one is better than none.
func TestExpiredGivesWay(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	expired := issue(t, ca, pki.Request{Names: []string{"a.test"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour)})
	valid := issue(t, ca, pki.Request{Names: []string{"a.test"}})
	validRSA := issue(t, ca, pki.Request{Names: []string{"a.test"}, KeyType: pki.RSA2048})
	fe, fv, fr := writePair(t, dir, "e", expired), writePair(t, dir, "v", valid), writePair(t, dir, "r", validRSA)
	var log logBuffer
	s := newStore(t, Options{Logger: log.logger()})
	load(t, s, Source{Files: fe})
	if !serves(s, "a.test", expired) {
		t.Error("an expired certificate is not served although it is the only one")
	}
	if st := s.Status()[0]; len(st.Warnings) != 1 {
		t.Errorf("Status.Warnings = %q", st.Warnings)
	}
	load(t, s, Source{Files: fe}, Source{Files: fv})
	if !serves(s, "a.test", valid) {
		t.Error("the expired certificate is served instead of the valid one")
	}
	load(t, s, Source{Files: fe}, Source{Files: fr})
	if !serves(s, "a.test", validRSA) {
		t.Error("the expired ECDSA certificate is served instead of the valid RSA one")
	}
}

// TestExpiryWhileRunning: no reload is needed when a certificate expires and
// another one carries its name.
func TestExpiryWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t)
		dir := t.TempDir()
		old := issue(t, ca, pki.Request{Names: []string{"a.test"}, NotAfter: time.Now().Add(20 * 24 * time.Hour)})
		next := issue(t, ca, pki.Request{Names: []string{"a.test"}, NotAfter: time.Now().Add(90 * 24 * time.Hour)})
		var log logBuffer
		s := newStore(t, Options{Logger: log.logger(), PollInterval: time.Hour})
		s.seams.newWatcher = func() (watcher, error) { return nil, errors.New("not in here") }
		load(t, s, Source{Files: writePair(t, dir, "1", old)}, Source{Files: writePair(t, dir, "2", next)})
		stop := run(t, s)
		time.Sleep(19 * 24 * time.Hour)
		if !serves(s, "a.test", old) {
			t.Error("the first is not served while it is valid")
		}
		if got := countLines(log.String(), "certificate expires soon"); got < 2 || got > 4 {
			t.Errorf("%d warnings of the near end in its last four days", got)
		}
		time.Sleep(24*time.Hour + 5*time.Second)
		if !serves(s, "a.test", next) {
			t.Error("the second is not served after the first expired")
		}
		time.Sleep(48 * time.Hour)
		if got := countLines(log.String(), "certificate has expired"); got < 2 || got > 3 {
			t.Errorf("expiry was logged %d times in two days", got)
		}
		stop()
	})
}

func TestLookupAllocatesNothing(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	s := newStore(t, Options{})
	load(t, s,
		Source{Files: writePair(t, dir, "ec", issue(t, ca, pki.Request{Names: []string{"a.test", "*.a.test", "192.0.2.1"}}))},
		Source{Files: writePair(t, dir, "rsa", issue(t, ca, pki.Request{Names: []string{"a.test", "*.a.test"}, KeyType: pki.RSA2048}))})
	rsaOnly := modern("x.a.test")
	rsaOnly.SignatureSchemes = []tls.SignatureScheme{tls.PSSWithSHA256}
	noName := modern("")
	noName.Conn = conn{local: "192.0.2.1:443"}
	for name, hello := range map[string]*tls.ClientHelloInfo{
		"exact": modern("a.test"), "wildcard": modern("x.a.test"), "default": modern("unknown.test"), "rsa": rsaOnly,
	} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := s.GetCertificate(hello); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("GetCertificate, %s: %v allocations", name, n)
		}
		if n := testing.AllocsPerRun(100, func() { s.Keys(hello.ServerName) }); n != 0 {
			t.Errorf("Keys, %s: %v allocations", name, n)
		}
	}
}

func TestStatus(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	cert := issue(t, ca, pki.Request{Names: []string{"a.test", "192.0.2.1"}, MustStaple: true, OCSPServers: []string{"http://ocsp.test"}})
	f := writePair(t, dir, "a", cert)
	s := newStore(t, Options{})
	load(t, s, Source{Files: f})
	st := s.Status()[0]
	want := Status{
		Name: f.Cert, Source: "file", Default: true, Names: []string{"a.test", "192.0.2.1"},
		NotBefore: cert.Leaf.NotBefore, NotAfter: cert.Leaf.NotAfter, KeyType: "ECDSA P-256",
		Issuer: "Test Intermediate", Serial: fmt.Sprintf("%x", cert.Leaf.SerialNumber),
		Fingerprint: st.Fingerprint, MustStaple: true, Responder: true,
	}
	if fmt.Sprint(st) != fmt.Sprint(want) || len(st.Fingerprint) != 64 {
		t.Errorf("Status = %+v\nwant %+v", st, want)
	}
}

// TestSameKeyRenewal: Keys, to which sessions are bound, stay.
func TestSameKeyRenewal(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		t.Fatal(err)
	}
	old := issue(t, ca, pki.Request{Names: []string{"a.test"}, Key: key})
	s := newStore(t, Options{})
	load(t, s, Source{Files: writePair(t, dir, "a", old)})
	before := slices.Clone(s.Keys("a.test"))
	next := issue(t, ca, pki.Request{Names: []string{"a.test"}, Key: key})
	load(t, s, Source{Files: writePair(t, dir, "a", next)})
	if !serves(s, "a.test", next) || !slices.Equal(before, s.Keys("a.test")) {
		t.Error("keys changed although the key did not")
	}
}
