package certs

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// TestObtain obtains certificates by HTTP-01 and TLS-ALPN-01, with every key
// type that Pebble takes, for names and for an address.
func TestObtain(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	roots := p.roots()
	tests := []struct {
		host      string
		challenge Challenge
		key       KeyType
		keyName   string
	}{
		{"http.a.test", HTTP01, "", "ECDSA P-256"},
		{"alpn.a.test", TLSALPN01, KeyECDSAP384, "ECDSA P-384"},
		{"rsa.a.test", HTTP01, KeyRSA2048, "RSA 2048"},
		{"xn--bcher-kva.test", TLSALPN01, "", "ECDSA P-256"},
		{"127.0.0.1", HTTP01, "", "ECDSA P-256"},
	}
	dir := t.TempDir()
	h := new(hooks)
	s := newACMEStore(t, Options{StateDir: dir, Prepare: h.prepare, Release: h.release})
	p.add(s)
	var sources []Source
	for _, tt := range tests {
		sources = append(sources, p.source(func(a *ACME) {
			a.Challenges, a.KeyType = []Challenge{tt.challenge}, tt.key
		}, tt.host))
	}
	load(t, s, sources...)
	if st := statusOf(s, "http.a.test"); st.ACME == nil || st.ACME.State != ACMEPending || !st.NotAfter.IsZero() {
		t.Errorf("Status before = %+v", st)
	}
	stop := run(t, s)
	for i, tt := range tests {
		eventually(t, 20*time.Second, "obtained: "+tt.host, func() bool { return !s.Status()[i].NotAfter.IsZero() })
		st := s.Status()[i]
		if st.KeyType != tt.keyName || st.Name != tt.host || st.Source != "acme" || st.ACME.Directory != p.directory {
			t.Errorf("%s: Status = %+v", tt.host, st)
		}
		if net.ParseIP(tt.host) == nil {
			if _, err := p.dial(tt.host, roots); err != nil {
				t.Errorf("%s: %v", tt.host, err)
			}
		}
	}
	eventually(t, 5*time.Second, "waiting for renewals", func() bool {
		st := statusOf(s, "http.a.test")
		return st.ACME.State == ACMEValid && st.NextAction == "renewal"
	})
	st := statusOf(s, "http.a.test")
	if left := time.Until(st.NextActionAt); left < 50*24*time.Hour || left > 61*24*time.Hour {
		t.Errorf("renewal of a certificate of 90 days in %v", left)
	}
	if st.ACME.WindowStart.IsZero() || st.ACME.RenewAt.IsZero() {
		t.Errorf("no renewal information: %+v", st.ACME)
	}
	if n := h.live(t); n != len(tests) {
		t.Errorf("%d certificates prepared; want %d", n, len(tests))
	}
	stop()

	// Secrets are for the owner alone.
	filepath.WalkDir(filepath.Join(dir, "acme"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
		return nil
	})

	// After a restart what was obtained is there before Run.
	before := p.issued()
	s2 := newACMEStore(t, Options{StateDir: dir})
	load(t, s2, sources...)
	for _, tt := range tests[:4] {
		if leaf := served(s2, tt.host); leaf == nil || leaf.VerifyHostname(tt.host) != nil {
			t.Errorf("%s is not served after a restart", tt.host)
		}
	}
	stop = run(t, s2)
	eventually(t, 5*time.Second, "valid", func() bool { return statusOf(s2, "http.a.test").NextAction == "renewal" })
	stop()
	if p.issued() != before {
		t.Error("certificates were obtained again after a restart")
	}
}

// TestChallengeCertificates: they are for hellos with acme-tls/1 alone, and
// only while a validation is under way.
func TestChallengeCertificates(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{env: []string{"PEBBLE_VA_NOSLEEP=", "PEBBLE_VA_SLEEPTIME=2"}})
	fallback := issue(t, newCA(t), pkiRequest("fallback.test"))
	s := newACMEStore(t, Options{})
	p.add(s)
	load(t, s, Source{Files: writePair(t, t.TempDir(), "f", fallback)},
		p.source(func(a *ACME) { a.Challenges = []Challenge{TLSALPN01} }, "challenge.test"))
	if _, err := p.dial("challenge.test", nil, "acme-tls/1"); err == nil {
		t.Error("acme-tls/1 succeeds before an order")
	}
	run(t, s)
	eventually(t, 20*time.Second, "a validation under way", func() bool {
		leaf, err := p.dial("challenge.test", nil, "acme-tls/1")
		return err == nil && leaf.Subject.CommonName == "ACME challenge"
	})
	// The library would listen on port 443 itself.
	if stacks := allStacks(); strings.Contains(stacks, "tlsALPNSolver).Present.") || strings.Contains(stacks, "httpSolver).serve") {
		t.Error("the library runs a server of its own for the challenge")
	}
	for _, protos := range [][]string{nil, {"h2"}, {"h2", "acme-tls/1"}, {"acme-tls/1", "http/1.1"}} {
		leaf, err := p.dial("challenge.test", nil, protos...)
		if err != nil || leaf.Subject.CommonName == "ACME challenge" {
			t.Errorf("protocols %q during the validation: %v, %v", protos, leaf, err)
		}
	}
	if _, err := p.dial("other.test", nil, "acme-tls/1"); err == nil {
		t.Error("acme-tls/1 succeeds for a name without order")
	}
	if _, err := p.dial("fallback.test", nil, "acme-tls/1"); err == nil {
		t.Error("acme-tls/1 is answered with the default certificate")
	}
	obtained(t, s, 20*time.Second, "challenge.test")
	eventually(t, 5*time.Second, "over", func() bool {
		_, err := p.dial("challenge.test", nil, "acme-tls/1")
		return err != nil
	})
}

// TestFaults: bad nonces and slow validation only take time; a rejected
// validation is reported and tried again until it succeeds.
func TestFaults(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{env: []string{
		"PEBBLE_WFE_NONCEREJECT=40", "PEBBLE_VA_NOSLEEP=", "PEBBLE_VA_SLEEPTIME=1", "PEBBLE_AUTHZREUSE=0"}})
	var log logBuffer
	s := newACMEStore(t, Options{Logger: log.logger()})
	p.add(s)
	p.breakDNS("broken.test")
	fallback := issue(t, newCA(t), pkiRequest("fallback.test"))
	load(t, s, Source{Files: writePair(t, t.TempDir(), "f", fallback)}, p.source(nil, "good.test", "broken.test"))
	run(t, s)
	eventually(t, 30*time.Second, "reported", func() bool {
		st := statusOf(s, "broken.test")
		return st.ACME.State == ACMEFailed && st.ACME.Failures > 0 && strings.Contains(st.LastError, "broken.test") &&
			st.NextAction == "next attempt" && !st.NextActionAt.IsZero()
	})
	if !serves(s, "broken.test", fallback) {
		t.Error("the default certificate is not served meanwhile")
	}
	if !strings.Contains(log.String(), `msg="certificate was not obtained" name=broken.test`) {
		t.Errorf("log does not tell:\n%s", log.String())
	}
	p.mendDNS("broken.test")
	obtained(t, s, 60*time.Second, "good.test", "broken.test")
	eventually(t, 5*time.Second, "free of errors", func() bool { return statusOf(s, "broken.test").LastError == "" })
	if st := s.Stats(); st.Obtained != 2 || st.ObtainFailures == 0 {
		t.Errorf("Stats = %+v", st)
	}
}

func TestExternalAccountBinding(t *testing.T) {
	t.Parallel()
	const macKey = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	p := newPebble(t, pebbleOptions{config: map[string]any{
		"externalAccountBindingRequired": true,
		"externalAccountMACKeys":         map[string]string{"kid-1": macKey},
	}})
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	writeFile(t, good, []byte(macKey+"\n"))
	writeFile(t, bad, []byte(strings.Repeat("A", 64)+"==\n"))
	s := newACMEStore(t, Options{})
	p.add(s)
	source := func(eab *EAB) Source {
		return p.source(func(a *ACME) { a.Issuers[0].EAB = eab }, "eab.test")
	}
	run(t, s)
	load(t, s, source(nil))
	eventually(t, 20*time.Second, "refused without binding", func() bool {
		return strings.Contains(statusOf(s, "eab.test").LastError, "externalAccount")
	})
	load(t, s, source(&EAB{KeyID: "kid-1", KeyFile: bad}))
	eventually(t, 20*time.Second, "refused with a wrong key", func() bool {
		return statusOf(s, "eab.test").ACME.Failures > 0
	})
	load(t, s, source(&EAB{KeyID: "kid-1", KeyFile: good}))
	obtained(t, s, 20*time.Second, "eab.test")
}

// TestSecondIssuer: when the first CA refuses or is away the second issues.
func TestSecondIssuer(t *testing.T) {
	t.Parallel()
	refusing := newPebble(t, pebbleOptions{config: map[string]any{"domainBlocklist": []string{"two.test"}}})
	issuing := newPebble(t, pebbleOptions{})
	s := newACMEStore(t, Options{})
	refusing.add(s)
	issuing.add(s)
	first, second := refusing.source(nil).ACME.Issuers[0], issuing.source(nil).ACME.Issuers[0]
	away := Issuer{Directory: "https://" + testtool.FreeAddr(t) + "/dir"}
	load(t, s,
		Source{ACME: &ACME{Hosts: []string{"two.test"}, Issuers: []Issuer{first, second}}},
		Source{ACME: &ACME{Hosts: []string{"away.test"}, Issuers: []Issuer{away, second}}},
		Source{ACME: &ACME{Hosts: []string{"one.test"}, Issuers: []Issuer{first, second}}})
	run(t, s)
	obtained(t, s, 30*time.Second, "one.test", "two.test", "away.test")
	for name, want := range map[string]string{"one.test": first.Directory, "two.test": second.Directory, "away.test": second.Directory} {
		if st := statusOf(s, name); st.ACME.Directory != want {
			t.Errorf("%s was issued by %s; want %s", name, st.ACME.Directory, want)
		}
	}
}

// TestChangeOfCA: the certificate of the CA given up is served until the new
// one has issued.
func TestChangeOfCA(t *testing.T) {
	t.Parallel()
	a, b := newPebble(t, pebbleOptions{}), newPebble(t, pebbleOptions{})
	s := newACMEStore(t, Options{})
	a.add(s)
	b.add(s)
	run(t, s)
	load(t, s, a.source(nil, "change.test"))
	obtained(t, s, 20*time.Second, "change.test")
	old := served(s, "change.test")
	b.breakDNS("change.test")
	load(t, s, b.source(nil, "change.test"))
	eventually(t, 20*time.Second, "refused by the new CA", func() bool { return statusOf(s, "change.test").ACME.Failures > 0 })
	if leaf := served(s, "change.test"); !leaf.Equal(old) {
		t.Error("the old certificate is not served any more")
	}
	b.mendDNS("change.test")
	eventually(t, 20*time.Second, "issued by the new CA", func() bool { return !served(s, "change.test").Equal(old) })
	if got := statusOf(s, "change.test").ACME.Directory; got != b.directory {
		t.Errorf("issued by %s", got)
	}
}

// TestNoStorage: storage that cannot be reached keeps nobody from starting.
func TestNoStorage(t *testing.T) {
	t.Parallel()
	s := newACMEStore(t, Options{Storage: brokenStorage{}})
	cert := issue(t, newCA(t), pkiRequest("b.test"))
	load(t, s, Source{Files: writePair(t, t.TempDir(), "b", cert)},
		Source{ACME: &ACME{Hosts: []string{"a.test"}, Issuers: []Issuer{{Directory: "https://127.0.0.1:1/dir"}}}})
	run(t, s)
	eventually(t, 10*time.Second, "reported", func() bool {
		return strings.Contains(statusOf(s, "a.test").LastError, errBroken.Error())
	})
	if !serves(s, "b.test", cert) {
		t.Error("other certificates are not served")
	}
}

var errBroken = errors.New("storage is away")

type brokenStorage struct{ certmagic.Storage }

func (brokenStorage) Load(ctx, string) ([]byte, error) { return nil, errBroken }
func (brokenStorage) Store(ctx, string, []byte) error  { return errBroken }
func (brokenStorage) Exists(ctx, string) bool          { return false }
func (brokenStorage) Lock(ctx, string) error           { return errBroken }
func (brokenStorage) Unlock(ctx, string) error         { return errBroken }
func (brokenStorage) Delete(ctx, string) error         { return errBroken }

// TestACMEConfig: everything wrong is told, before anything is contacted.
func TestACMEConfig(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	writeFile(t, junk, []byte("!!!"))
	le := []Issuer{{}}
	sources := []Source{
		{ACME: &ACME{}},
		{ACME: &ACME{Hosts: []string{"a.test", "a b", "*.w.test"}, KeyType: "dsa"}},
		{ACME: &ACME{Hosts: []string{"a.test"}, Issuers: []Issuer{{Directory: "http://ca.test/dir"}, {Directory: "ftp://x"}, {CAFile: junk}, {CAFile: filepath.Join(dir, "none")}}}},
		{ACME: &ACME{Hosts: []string{"a.test"}, Issuers: []Issuer{{EAB: &EAB{}}}}},
		{ACME: &ACME{Hosts: []string{"a.test"}, Issuers: []Issuer{{EAB: &EAB{KeyID: "x", KeyFile: junk}}}}},
		{ACME: &ACME{Hosts: []string{"a.test"}, Challenges: []Challenge{"http-02", DNS01}}},
		{ACME: &ACME{Hosts: []string{"a.test", "192.0.2.1"}, DNS: &RFC2136{Algorithm: "md5", Zone: "a b"}}},
		{ACME: &ACME{Hosts: []string{"a.test"}, DNS: &RFC2136{Server: "ns.test", KeyName: "k", KeyFile: junk}}},
		{ACME: &ACME{OnDemand: &OnDemand{}, Issuers: le}},
		{ACME: &ACME{OnDemand: &OnDemand{Ask: "ask.test", Allow: []string{"x y"}}, Issuers: le}},
		{ACME: &ACME{Hosts: []string{"good.test"}, Issuers: []Issuer{{Directory: "http://127.0.0.1:14000/dir"}}}},
	}
	want := []string{
		"[0].acme.hosts: at least one name",
		`[1].acme.hosts[1]: "a b" is not`,
		`[1].acme.hosts[1]: the wildcard "*.w.test" can only`,
		`[1].acme.key_type: unknown key type "dsa"`,
		"[2].acme.issuers[0].directory: ",
		"[2].acme.issuers[1].directory: ",
		"[2].acme.issuers[2].ca_file: " + junk,
		"[2].acme.issuers[3].directory: \"https://acme-v02.api.letsencrypt.org/directory\" is there twice",
		"[2].acme.issuers[3].ca_file: open",
		"[3].acme.issuers[0].eab.key_id: is missing",
		"[3].acme.issuers[0].eab.key_file: is missing",
		"[4].acme.issuers[0].eab.key_file: " + junk + ": not a key",
		`[5].acme.challenges[0]: unknown challenge "http-02"`,
		"[5].acme.challenges: dns-01 excludes",
		"[6].acme.dns.rfc2136.server: is missing",
		"[6].acme.dns.rfc2136.key_name: ",
		"[6].acme.dns.rfc2136.key_algorithm: unknown algorithm \"md5\"",
		"[6].acme.dns.rfc2136.zone: \"a b\"",
		"[6].acme.dns.rfc2136.key_file: is missing",
		"[6].acme.hosts[1]: the address \"192.0.2.1\"",
		"[7].acme.dns.rfc2136.key_file: " + junk + ": not a key",
		"[8].acme.on_demand: ask, allow or both",
		"[9].acme.on_demand.ask: ",
		"[9].acme.on_demand.allow[0]: ",
	}
	s := newStore(t, Options{StateDir: dir})
	err := s.Check(t.Context(), sources)
	all, _ := errors.AsType[SourceErrors](err)
	for i, e := range all {
		if i >= len(want) || !strings.HasPrefix(e.Error(), "certificates"+want[i]) {
			t.Errorf("error %d = %v", i, e)
			if i < len(want) {
				t.Errorf("  want %s", want[i])
			}
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d errors; want %d", len(all), len(want))
	}
	s = newStore(t, Options{})
	if err := s.Check(t.Context(), []Source{{ACME: &ACME{Hosts: []string{"a.test"}}}}); err == nil || !strings.Contains(err.Error(), "a state directory or a shared store is needed") {
		t.Errorf("without state directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "acme")); !os.IsNotExist(err) {
		t.Error("Check made something in the state directory")
	}
}
