package clientauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

// shake does one real handshake in memory: the server by v, the client with
// cert, or with none. It returns what the server's side said.
func shake(t *testing.T, v *Verifier, version uint16, cert *tls.Certificate) (tls.ConnectionState, error) {
	t.Helper()
	ca := newCA(t, nil, "server ca")
	server := newClient(t, ca, "server.example")
	config := &tls.Config{
		MaxVersion: version, MinVersion: version,
		Certificates: []tls.Certificate{server.tls()},
	}
	if _, err := v.Configure(config); err != nil {
		return tls.ConnectionState{}, err
	}
	clientConfig := &tls.Config{InsecureSkipVerify: true} // it is the server that is tested
	if cert != nil {
		// GetClientCertificate sends it whatever authorities the server names.
		clientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	a, b := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
	defer a.Close()
	defer b.Close()
	client := tls.Client(a, clientConfig)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if client.Handshake() == nil {
			_, _ = client.Read(make([]byte, 1))
		}
	}()
	s := tls.Server(b, config)
	err := s.Handshake()
	state := s.ConnectionState()
	b.Close()
	<-done
	return state, err
}

func TestModes(t *testing.T) {
	ca := newCA(t, nil, "ca")
	inter := newCA(t, ca, "intermediate")
	stranger := newCA(t, nil, "ca") // the same name, another key
	good := newClient(t, ca, "good").tls()
	chained := newClient(t, inter, "chained").tls(inter)
	unchained := newClient(t, inter, "chained").tls()
	foreign := newClient(t, stranger, "foreign").tls()
	template := clientTemplate("old")
	template.NotBefore, template.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	expired := issue(t, ca, template).tls()
	template = clientTemplate("server")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	wrongUse := issue(t, ca, template).tls()

	caFile := write(t, t.TempDir(), "ca.pem", bundle(ca))
	certs := map[string]*tls.Certificate{
		"none": nil, "good": &good, "chained": &chained, "unchained": &unchained,
		"foreign": &foreign, "expired": &expired, "wrong use": &wrongUse,
	}
	refused := map[Mode][]string{
		None:          nil,
		Request:       nil,
		VerifyIfGiven: {"unchained", "foreign", "expired", "wrong use"},
		Require:       {"none", "unchained", "foreign", "expired", "wrong use"},
	}
	for mode, refusals := range refused {
		o := Options{Site: "app", Mode: mode, Logger: testLogger(t)}
		if mode != None {
			o.CAFiles = []string{caFile}
		}
		v, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for name, cert := range certs {
				state, err := shake(t, v, version, cert)
				want := true
				for _, r := range refusals {
					want = want && r != name
				}
				if (err == nil) != want {
					t.Errorf("%s, %s, %s: handshake = %v; want accepted %v", mode, tls.VersionName(version), name, err, want)
				}
				if verified := len(state.VerifiedChains) > 0; err == nil && verified != (mode.Verifies() && cert != nil) {
					t.Errorf("%s, %s, %s: verified = %v", mode, tls.VersionName(version), name, verified)
				}
			}
		}
	}
}

func TestModeWords(t *testing.T) {
	for _, m := range []Mode{None, Request, VerifyIfGiven, Require} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("ParseMode(%q) = %v, %v", m, got, err)
		}
	}
	for _, m := range []OCSPMode{Off, Soft, Hard} {
		if got, err := ParseOCSPMode(m.String()); err != nil || got != m {
			t.Errorf("ParseOCSPMode(%q) = %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("required"); err == nil {
		t.Error("an unknown mode is accepted")
	}
	if _, err := ParseOCSPMode("on"); err == nil {
		t.Error("an unknown OCSP mode is accepted")
	}
}

func TestAllowListDecides(t *testing.T) {
	ca := newCA(t, nil, "ca")
	dir := t.TempDir()
	ann, bob, eve := newClient(t, ca, "ann.example"), newClient(t, ca, "bob.example"), newClient(t, ca, "eve.example")
	v, err := New(Options{
		Mode: Require, CAFiles: []string{write(t, dir, "ca.pem", bundle(ca))},
		Allow:      []string{"dns:ann.example"},
		AllowFiles: []string{write(t, dir, "allow", []byte("dns:bob.example # too\n"))},
		Logger:     testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf([]*authority{ann, ca})), "")
	wantReason(t, v.VerifyConnection(stateOf([]*authority{bob, ca})), "")
	wantReason(t, v.VerifyConnection(stateOf([]*authority{eve, ca})), Denied, "not on the allow-list", "eve.example")

	write(t, dir, "allow", []byte("# nobody any more\n"))
	if err := v.Reload(); err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf([]*authority{bob, ca})), Denied)
	if got := v.Status(); !got.AllowList || got.AllowEntries != 1 || got.Refusals[Denied] != 2 {
		t.Errorf("status = %+v", got)
	}
}

func TestEmptyAllowFileAllowsNobody(t *testing.T) {
	ca := newCA(t, nil, "ca")
	dir := t.TempDir()
	v, err := New(Options{
		Mode: Require, CAFiles: []string{write(t, dir, "ca.pem", bundle(ca))},
		AllowFiles: []string{write(t, dir, "allow", nil)}, Logger: testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf([]*authority{newClient(t, ca, "ann"), ca})), Denied)
}

func TestDigestIsOfContent(t *testing.T) {
	one, two := newCA(t, nil, "one"), newCA(t, nil, "two")
	dir := t.TempDir()
	digestOf := func(edit func(*Options)) [32]byte {
		t.Helper()
		o := Options{Site: "app", Mode: Require, CAFiles: []string{write(t, dir, "both.pem", bundle(one, two))}, Logger: testLogger(t)}
		edit(&o)
		v, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return v.Current().Digest
	}
	base := digestOf(func(*Options) {})
	same := map[string]func(*Options){
		"other site": func(o *Options) { o.Site = "other" },
		"two files": func(o *Options) {
			o.CAFiles = []string{write(t, dir, "2.pem", bundle(two)), write(t, dir, "1.pem", bundle(one))}
		},
		"twice the same": func(o *Options) { o.CAFiles = []string{write(t, dir, "twice.pem", bundle(two, one, two))} },
	}
	for name, edit := range same {
		if digestOf(edit) != base {
			t.Errorf("%s: the digest differs", name)
		}
	}
	differs := map[string]func(*Options){
		"one authority":        func(o *Options) { o.CAFiles = []string{write(t, dir, "one.pem", bundle(one))} },
		"other authority":      func(o *Options) { o.CAFiles = []string{write(t, dir, "o.pem", bundle(one, newCA(t, nil, "two")))} },
		"other mode":           func(o *Options) { o.Mode = VerifyIfGiven },
		"allow-list":           func(o *Options) { o.Allow = []string{"cn:x"} },
		"other allow-list":     func(o *Options) { o.Allow = []string{"cn:y"} },
		"empty allow-list":     func(o *Options) { o.AllowFiles = []string{write(t, dir, "empty", nil)} },
		"allow-list, two ways": func(o *Options) { o.Allow = []string{"cn:x", "ou:x"} },
	}
	seen := map[[32]byte]string{base: "base"}
	for name, edit := range differs {
		d := digestOf(edit)
		if other, dup := seen[d]; dup {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
	if digestOf(func(o *Options) { o.Allow = []string{"ou:x", "cn:x", "cn:x"} }) != digestOf(differs["allow-list, two ways"]) {
		t.Error("order or repetition in the allow-list changes the digest")
	}
}

func TestOptionsThatContradict(t *testing.T) {
	ca := write(t, t.TempDir(), "ca.pem", bundle(newCA(t, nil, "ca")))
	for name, test := range map[string]struct {
		o    Options
		want string
	}{
		"require without authorities": {Options{Mode: Require}, "needs a ca_file"},
		"verify without authorities":  {Options{Mode: VerifyIfGiven}, "needs a ca_file"},
		"allow-list with request":     {Options{Mode: Request, Allow: []string{"cn:x"}}, "allow-list has no effect"},
		"crl with none":               {Options{CRLFiles: []string{"x"}}, "crl_file has no effect"},
		"ocsp with request":           {Options{Mode: Request, OCSP: Soft, Checker: checker(nil)}, "ocsp has no effect"},
		"ocsp without checker":        {Options{Mode: Require, CAFiles: []string{ca}, OCSP: Hard}, "needs a checker"},
		"unknown mode":                {Options{Mode: 9}, "mode 9"},
		"bad allow entry":             {Options{Mode: Require, CAFiles: []string{ca}, Allow: []string{"x"}}, "kind:value"},
		"two things":                  {Options{Mode: Request, Allow: []string{"cn:x"}, CRLFiles: []string{"x"}}, "crl_file has no effect"},
	} {
		_, err := New(test.o)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: New = %v; want an error with %q", name, err, test.want)
		}
	}
}

func TestAuthorityFilesThatAreRefused(t *testing.T) {
	ca, other := newCA(t, nil, "ca"), newCA(t, nil, "other")
	whole := bundle(ca, other)
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":        {nil, "no PEM block"},
		"text":         {[]byte("hello"), "no PEM block"},
		"cut":          {whole[:len(whole)-40], "1 of its 2 PEM blocks are damaged"},
		"key inside":   {append(bundle(ca), pemOf("PRIVATE KEY", []byte{1})...), `"PRIVATE KEY"`},
		"not a cert":   {pemOf("CERTIFICATE", []byte{1, 2, 3}), "certificate 1"},
		"one bad cert": {append(bundle(ca), pemOf("CERTIFICATE", []byte{1})...), "certificate 2"},
	} {
		path := write(t, t.TempDir(), "ca.pem", test.data)
		_, err := New(Options{Site: "app", Mode: Require, CAFiles: []string{path}})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: New = %v; want an error with %q and the path", name, err, test.want)
		}
	}
}

// A closed site must refuse in every mode, and its pool must not be nil: a nil
// pool means the roots of the system to crypto/tls.
func TestBrokenFileClosesTheSite(t *testing.T) {
	for _, mode := range []Mode{Request, VerifyIfGiven, Require} {
		ca := newCA(t, nil, "ca")
		dir := t.TempDir()
		path := write(t, dir, "ca.pem", bundle(ca))
		v, err := New(Options{Site: "app", Mode: mode, CAFiles: []string{path}, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		before := v.Current()
		write(t, dir, "ca.pem", []byte("-----BEGIN CERTIFICATE-----\n"))
		if v.Reload() == nil {
			t.Fatalf("%s: a broken file reloads", mode)
		}
		s := v.Current()
		if s.Err == nil || s.Pool == nil || !s.Pool.Equal(x509.NewCertPool()) {
			t.Errorf("%s: snapshot = %+v; want an error and an empty pool", mode, s)
		}
		config := &tls.Config{}
		_, err = v.Configure(config)
		wantReason(t, err, Unavailable, "ca.pem")
		wantReason(t, v.VerifyConnection(stateOf([]*authority{newClient(t, ca, "c"), ca})), Unavailable)
		wantReason(t, v.VerifyConnection(tls.ConnectionState{}), Unavailable)
		if v.Status().Error == "" || v.Status().Refusals[Unavailable] != 3 {
			t.Errorf("%s: status = %+v", mode, v.Status())
		}

		write(t, dir, "ca.pem", bundle(ca))
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		if s := v.Current(); s.Err != nil || s.Digest != before.Digest {
			t.Errorf("%s: the site did not open again with its old digest", mode)
		}
	}
}

// An authority that was taken away ends the trust of sessions that it vouched
// for: what crypto/tls stored with the session is checked against the present.
func TestStoredChainsAreCheckedAgain(t *testing.T) {
	old, other := newCA(t, nil, "old"), newCA(t, nil, "other")
	client := newClient(t, old, "client")
	dir := t.TempDir()
	now := time.Now()
	v, err := New(Options{
		Mode: Require, CAFiles: []string{write(t, dir, "ca.pem", bundle(old, other))},
		Logger: testLogger(t), Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	state := stateOf([]*authority{client, old})
	state.DidResume = true
	wantReason(t, v.VerifyConnection(state), "")

	now = client.cert.NotAfter.Add(time.Second)
	wantReason(t, v.VerifyConnection(state), Invalid, "expired")
	now = client.cert.NotBefore.Add(-time.Second)
	wantReason(t, v.VerifyConnection(state), Invalid, "not valid before")
	now = time.Now()

	write(t, dir, "ca.pem", bundle(other))
	if err := v.Reload(); err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(state), Invalid, "not trusted here")

	state.VerifiedChains = nil
	wantReason(t, v.VerifyConnection(state), Invalid, "not verified")
	wantReason(t, v.VerifyConnection(tls.ConnectionState{DidResume: true}), Missing)
}

// checker is a RevocationChecker that gives one answer.
type checkerFunc func(ctx context.Context) error

func (f checkerFunc) Check(ctx context.Context, leaf, issuer *x509.Certificate) error {
	if leaf == nil || issuer == nil {
		return errors.New("called without leaf or issuer")
	}
	return f(ctx)
}

func checker(err error) RevocationChecker {
	return checkerFunc(func(context.Context) error { return err })
}

type revokedError struct{}

func (revokedError) Error() string { return "revoked at noon" }
func (revokedError) Revoked() bool { return true }

func TestAuthorize(t *testing.T) {
	ca := newCA(t, nil, "ca")
	client := newClient(t, ca, "client")
	caFile := write(t, t.TempDir(), "ca.pem", bundle(ca))
	unknown := errors.New("responder down")
	tests := []struct {
		mode   OCSPMode
		answer error
		want   Reason
	}{
		{Off, revokedError{}, ""},
		{Soft, nil, ""},
		{Soft, unknown, ""},
		{Soft, revokedError{}, Revoked},
		{Hard, nil, ""},
		{Hard, unknown, Unchecked},
		{Hard, revokedError{}, Revoked},
		{Hard, errors.Join(errors.New("answer"), revokedError{}), Revoked},
	}
	for _, test := range tests {
		v, err := New(Options{Mode: VerifyIfGiven, CAFiles: []string{caFile}, OCSP: test.mode, Checker: checker(test.answer), Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		wantReason(t, v.Authorize(t.Context(), stateOf([]*authority{client, ca})), test.want)
		wantReason(t, v.Authorize(t.Context(), tls.ConnectionState{}), "") // no certificate, nothing to ask
		st := v.Status()
		if want := uint64(0); test.mode == Soft && test.answer == unknown {
			want = 1
			if st.SoftFailures != want {
				t.Errorf("soft failures = %d; want %d", st.SoftFailures, want)
			}
		}
		if test.want != "" && st.Refusals[test.want] != 1 {
			t.Errorf("%s, %v: refusals = %v", test.mode, test.answer, st.Refusals)
		}
	}
}

// Counters are those of the site: they go on in the verifier that takes over, also
// for connections that the one before still decides about.
func TestCountersGoOn(t *testing.T) {
	ca := newCA(t, nil, "ca")
	client := stateOf([]*authority{newClient(t, ca, "client"), ca})
	options := Options{
		Mode: Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", bundle(ca))},
		OCSP: Soft, Checker: checker(errors.New("responder down")), Logger: testLogger(t),
	}
	var verifiers []*Verifier
	for range 3 {
		v, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		verifiers, options.Predecessor = append(verifiers, v), v
	}
	for _, v := range verifiers {
		wantReason(t, v.Authorize(t.Context(), client), "")
		wantReason(t, v.VerifyConnection(tls.ConnectionState{}), Missing)
	}
	for i, v := range verifiers {
		if st := v.Status(); st.SoftFailures != 3 || st.Refusals[Missing] != 3 {
			t.Errorf("verifier %d counts %d soft failures and %d refusals, want 3 and 3", i, st.SoftFailures, st.Refusals[Missing])
		}
	}
	options.Predecessor = nil
	v, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if st := v.Status(); st.SoftFailures != 0 || st.Refusals[Missing] != 0 {
		t.Errorf("a verifier without a predecessor begins with %+v", st)
	}
}

// A trust anchor that is the client's own certificate has no issuer whom a
// responder could speak for.
func TestAuthorizePinnedLeaf(t *testing.T) {
	client := newClient(t, nil, "pinned")
	caFile := write(t, t.TempDir(), "ca.pem", bundle(client))
	for mode, want := range map[OCSPMode]Reason{Soft: "", Hard: Unchecked} {
		v, err := New(Options{Mode: Require, CAFiles: []string{caFile}, OCSP: mode, Checker: checker(nil), Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		wantReason(t, v.VerifyConnection(stateOf([]*authority{client})), "")
		wantReason(t, v.Authorize(t.Context(), stateOf([]*authority{client})), want)
	}
}

func TestAuthorizeHasADeadline(t *testing.T) {
	ca := newCA(t, nil, "ca")
	client := newClient(t, ca, "client")
	caFile := write(t, t.TempDir(), "ca.pem", bundle(ca))
	synctest.Test(t, func(t *testing.T) {
		v, err := New(Options{
			Mode: Require, CAFiles: []string{caFile}, OCSP: Hard, Logger: testLogger(t), OCSPTimeout: 3 * time.Second,
			Checker: checkerFunc(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
			Now:     func() time.Time { return client.cert.NotBefore.Add(time.Minute) },
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		wantReason(t, v.Authorize(t.Context(), stateOf([]*authority{client, ca})), Unchecked, "deadline")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v; want 3 s", took)
		}
	})
}

// TestEveryFaultStandsForItself: two missing files and two bad lines are four
// errors, each of which names its site and its file.
func TestEveryFaultStandsForItself(t *testing.T) {
	dir := t.TempDir()
	allow := write(t, dir, "allow", []byte("nonsense\nip:1.2.3.4/8\n"))
	_, err := New(Options{Site: "app", Mode: Require, CAFiles: []string{dir + "/no.ca"},
		AllowFiles: []string{allow}, CRLFiles: []string{dir + "/no.crl"}})
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 4 {
		t.Errorf("%d errors, want 4: %v", len(lines), err)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, `site "app": client_auth: `) || !strings.Contains(line, dir) {
			t.Errorf("an error does not say where: %q", line)
		}
	}
}
