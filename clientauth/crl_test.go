package clientauth

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// crlVerifier is a verifier that requires certificates of ca, with lists.
func crlVerifier(t *testing.T, ca *authority, edit func(*Options), lists ...[]byte) (*Verifier, error) {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		Site:    "app",
		Mode:    Require,
		CAFiles: []string{write(t, dir, "ca.pem", bundle(ca))},
		Logger:  testLogger(t),
	}
	for i, der := range lists {
		o.CRLFiles = append(o.CRLFiles, write(t, dir, string(rune('a'+i))+".crl", der))
	}
	if edit != nil {
		edit(&o)
	}
	return New(o)
}

// stateOf is what crypto/tls gives to VerifyConnection after it verified.
func stateOf(chains ...[]*authority) tls.ConnectionState {
	state := tls.ConnectionState{HandshakeComplete: true}
	for _, chain := range chains {
		var certs []*x509.Certificate
		for _, a := range chain {
			certs = append(certs, a.cert)
		}
		state.VerifiedChains = append(state.VerifiedChains, certs)
		state.PeerCertificates = certs[:1]
	}
	return state
}

func wantReason(t *testing.T, err error, want Reason, words ...string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != want {
		t.Errorf("error = %v; want reason %s", err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestCRLDecides(t *testing.T) {
	ca := newCA(t, nil, "ca")
	good, bad, held := newClient(t, ca, "good"), newClient(t, ca, "bad"), newClient(t, ca, "held")
	complete := ca.crl(t, crlOptions{number: 5, revoked: []*authority{bad, held}})

	tests := []struct {
		name  string
		lists [][]byte
		edit  func(*Options)
		want  map[*authority]Reason
		words string
	}{
		{name: "DER", lists: [][]byte{complete}, want: map[*authority]Reason{good: "", bad: Revoked, held: Revoked}},
		{name: "PEM", lists: [][]byte{pemOf("X509 CRL", complete)}, want: map[*authority]Reason{good: "", bad: Revoked}},
		{
			name:  "delta adds",
			lists: [][]byte{ca.crl(t, crlOptions{number: 5}), ca.crl(t, crlOptions{number: 6, base: 5, revoked: []*authority{bad}})},
			want:  map[*authority]Reason{good: "", bad: Revoked},
		},
		{
			name:  "delta takes off",
			lists: [][]byte{complete, ca.crl(t, crlOptions{number: 7, base: 4, removed: []*authority{held}})},
			want:  map[*authority]Reason{good: "", bad: Revoked, held: ""},
		},
		{
			name: "newest delta wins",
			lists: [][]byte{
				complete,
				ca.crl(t, crlOptions{number: 7, base: 4, removed: []*authority{held}}),
				ca.crl(t, crlOptions{number: 8, base: 4, revoked: []*authority{held}}),
			},
			want: map[*authority]Reason{held: Revoked},
		},
		{
			name: "delta older than the complete list is ignored",
			lists: [][]byte{
				ca.crl(t, crlOptions{number: 9, revoked: []*authority{held}}),
				ca.crl(t, crlOptions{number: 7, base: 4, removed: []*authority{held}}),
			},
			want: map[*authority]Reason{held: Revoked},
		},
		{
			name: "newest complete list wins",
			lists: [][]byte{
				ca.crl(t, crlOptions{number: 3, revoked: []*authority{good}}),
				ca.crl(t, crlOptions{number: 4, revoked: []*authority{bad}}),
			},
			want: map[*authority]Reason{good: "", bad: Revoked},
		},
		{
			name: "current delta keeps an outdated complete list alive",
			lists: [][]byte{
				ca.crl(t, crlOptions{number: 5, this: time.Now().Add(-48 * time.Hour), next: time.Now().Add(-time.Hour), revoked: []*authority{bad}}),
				ca.crl(t, crlOptions{number: 6, base: 5}),
			},
			want: map[*authority]Reason{good: "", bad: Revoked},
		},
		{
			name:  "out of date",
			lists: [][]byte{ca.crl(t, crlOptions{this: time.Now().Add(-2 * time.Hour), next: time.Now().Add(-time.Minute), revoked: []*authority{bad}})},
			want:  map[*authority]Reason{good: Unchecked, bad: Revoked}, words: "out of date since",
		},
		{
			name:  "out of date but allowed",
			lists: [][]byte{ca.crl(t, crlOptions{this: time.Now().Add(-2 * time.Hour), next: time.Now().Add(-time.Minute), revoked: []*authority{bad}})},
			edit:  func(o *Options) { o.AllowExpiredCRL = true },
			want:  map[*authority]Reason{good: "", bad: Revoked},
		},
		{
			name:  "from the future",
			lists: [][]byte{ca.crl(t, crlOptions{this: time.Now().Add(time.Hour), next: time.Now().Add(2 * time.Hour)})},
			want:  map[*authority]Reason{good: Unchecked}, words: "in the future",
		},
		{
			name:  "of another authority",
			lists: [][]byte{newCA(t, nil, "other").crl(t, crlOptions{})},
			want:  map[*authority]Reason{good: Unchecked}, words: "no CRL of its issuer",
		},
		{
			name:  "for user certificates",
			lists: [][]byte{ca.crl(t, crlOptions{revoked: []*authority{bad}, extensions: []pkix.Extension{scopeExtension(t, issuingPoint{OnlyUser: true})}})},
			want:  map[*authority]Reason{good: "", bad: Revoked},
		},
		{
			name:  "for authorities only",
			lists: [][]byte{ca.crl(t, crlOptions{extensions: []pkix.Extension{scopeExtension(t, issuingPoint{OnlyCA: true})}})},
			want:  map[*authority]Reason{good: Unchecked},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v, err := crlVerifier(t, ca, test.edit, test.lists...)
			if err != nil {
				t.Fatal(err)
			}
			for client, want := range test.want {
				var words []string
				if want == Unchecked && test.words != "" {
					words = append(words, test.words)
				}
				wantReason(t, v.VerifyConnection(stateOf([]*authority{client, ca})), want, words...)
			}
		})
	}
}

// issuingPoint is IssuingDistributionPoint for encoding/asn1.
type issuingPoint struct {
	Point struct {
		FullName []asn1.RawValue `asn1:"optional,tag:0"`
	} `asn1:"optional,tag:0"`
	OnlyUser    bool           `asn1:"optional,tag:1"`
	OnlyCA      bool           `asn1:"optional,tag:2"`
	SomeReasons asn1.BitString `asn1:"optional,tag:3"`
	Indirect    bool           `asn1:"optional,tag:4"`
	OnlyAttr    bool           `asn1:"optional,tag:5"`
}

func scopeExtension(t testing.TB, p issuingPoint) pkix.Extension {
	t.Helper()
	der, err := asn1.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 28}, Critical: true, Value: der}
}

func pointAt(uri string) issuingPoint {
	var p issuingPoint
	p.Point.FullName = []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(uri)}}
	return p
}

func TestCRLPartitions(t *testing.T) {
	ca := newCA(t, nil, "ca")
	template := clientTemplate("a")
	template.CRLDistributionPoints = []string{"http://ca.example/1.crl"}
	one := issue(t, ca, template)
	template = clientTemplate("b")
	template.CRLDistributionPoints = []string{"http://ca.example/2.crl"}
	two := issue(t, ca, template)
	template = clientTemplate("c")
	template.CRLDistributionPoints = []string{"http://ca.example/2.crl"}
	revoked := issue(t, ca, template)

	first := ca.crl(t, crlOptions{number: 1, extensions: []pkix.Extension{scopeExtension(t, pointAt("http://ca.example/1.crl"))}})
	second := ca.crl(t, crlOptions{number: 9, revoked: []*authority{revoked}, extensions: []pkix.Extension{scopeExtension(t, pointAt("http://ca.example/2.crl"))}})
	v, err := crlVerifier(t, ca, nil, first, second)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf([]*authority{one, ca})), "")
	wantReason(t, v.VerifyConnection(stateOf([]*authority{two, ca})), "")
	wantReason(t, v.VerifyConnection(stateOf([]*authority{revoked, ca})), Revoked)

	v, err = crlVerifier(t, ca, nil, first)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf([]*authority{two, ca})), Unchecked)
}

func TestCRLOfAnIntermediate(t *testing.T) {
	root := newCA(t, nil, "root")
	inter := newCA(t, root, "intermediate")
	client := newClient(t, inter, "client")
	chain := []*authority{client, inter, root}

	v, err := crlVerifier(t, root, nil, root.crl(t, crlOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf(chain)), Unchecked, "no CRL of its issuer", "intermediate")

	v, err = crlVerifier(t, root, nil, root.crl(t, crlOptions{}), inter.crl(t, crlOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf(chain)), "")

	v, err = crlVerifier(t, root, nil, root.crl(t, crlOptions{}), inter.crl(t, crlOptions{revoked: []*authority{client}}))
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf(chain)), Revoked)

	v, err = crlVerifier(t, root, nil, root.crl(t, crlOptions{revoked: []*authority{inter}}), inter.crl(t, crlOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf(chain)), Revoked, "intermediate")
}

// A list in the name of an intermediate that somebody else signed must neither
// cover nor revoke.
func TestCRLOfAnIntermediateForged(t *testing.T) {
	root := newCA(t, nil, "root")
	inter, impostor := newCA(t, root, "intermediate"), newCA(t, nil, "intermediate")
	client := newClient(t, inter, "client")
	for _, revoked := range [][]*authority{nil, {client}} {
		v, err := crlVerifier(t, root, nil, root.crl(t, crlOptions{}), impostor.crl(t, crlOptions{revoked: revoked}))
		if err != nil {
			t.Fatal(err)
		}
		wantReason(t, v.VerifyConnection(stateOf([]*authority{client, inter, root})), Unchecked, "signature does not verify")
	}
}

// An intermediate that is itself a trust anchor falls when its issuer, an
// anchor too, revokes it, though chains end at the intermediate.
func TestCRLRevokesAnAnchor(t *testing.T) {
	root := newCA(t, nil, "root")
	inter := newCA(t, root, "intermediate")
	client := newClient(t, inter, "client")
	anchors := func(o *Options) {
		o.CAFiles = append(o.CAFiles, write(t, t.TempDir(), "inter.pem", bundle(inter)))
	}
	v, err := crlVerifier(t, root, anchors, root.crl(t, crlOptions{revoked: []*authority{inter}}), inter.crl(t, crlOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, v.VerifyConnection(stateOf([]*authority{client, inter}, []*authority{client, inter, root})), Revoked)
	wantReason(t, v.VerifyConnection(stateOf([]*authority{client, inter})), Revoked)
}

// With two chains it is enough that one is covered.
func TestCRLOneCoveredChainIsEnough(t *testing.T) {
	root, other := newCA(t, nil, "root"), newCA(t, nil, "other root")
	client := newClient(t, root, "client")
	v, err := crlVerifier(t, root, func(o *Options) {
		o.CAFiles = append(o.CAFiles, write(t, t.TempDir(), "other.pem", bundle(other)))
	}, root.crl(t, crlOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	crossed := newCA(t, other, "root") // the same name, signed by the other root
	wantReason(t, v.VerifyConnection(stateOf([]*authority{client, crossed, other}, []*authority{client, root})), "")
}

func TestCRLFilesThatAreRefused(t *testing.T) {
	ca := newCA(t, nil, "ca")
	noCRLSign := issue(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	})
	client := newClient(t, ca, "client")
	whole := pemOf("X509 CRL", ca.crl(t, crlOptions{}), ca.crl(t, crlOptions{number: 2}))
	unknown := pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}

	tests := []struct {
		name, want string
		list       []byte
	}{
		{"empty", "not a certificate revocation list", nil},
		{"text", "not a certificate revocation list", []byte("hello")},
		{"certificate", `PEM block of type "CERTIFICATE"`, bundle(ca)},
		{"second block cut", "PEM blocks are damaged", whole[:len(whole)-40]},
		{"truncated DER", "not a certificate revocation list", ca.crl(t, crlOptions{})[:60]},
		{"signed by another key of the same name", "signature does not verify", noCRLSign.crl(t, crlOptions{})},
		{"flipped bit", "signature does not verify", flipLast(ca.crl(t, crlOptions{}))},
		{"delta alone", "its complete list", ca.crl(t, crlOptions{number: 3, base: 2})},
		{"unknown critical extension", "critical extension 1.2.3", ca.crl(t, crlOptions{extensions: []pkix.Extension{unknown}})},
		{"unknown critical entry extension", "critical extension 1.2.3", ca.crl(t, crlOptions{revoked: []*authority{client}, entryExt: []pkix.Extension{unknown}})},
		{"indirect", "indirect", ca.crl(t, crlOptions{extensions: []pkix.Extension{scopeExtension(t, issuingPoint{Indirect: true})}})},
		{"attribute certificates", "attribute", ca.crl(t, crlOptions{extensions: []pkix.Extension{scopeExtension(t, issuingPoint{OnlyAttr: true})}})},
		{"some reasons", "some revocation reasons", ca.crl(t, crlOptions{extensions: []pkix.Extension{
			scopeExtension(t, issuingPoint{SomeReasons: asn1.BitString{Bytes: []byte{0x40}, BitLength: 2}}),
		}})},
		{"malformed scope", "malformed issuing distribution point", ca.crl(t, crlOptions{extensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 28}, Critical: true, Value: []byte{0x30, 0x02, 0x81, 0x05}},
		}})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := crlVerifier(t, ca, nil, test.list)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `site "app"`) {
				t.Errorf("New = %v; want an error with %q", err, test.want)
			}
		})
	}

	t.Run("delta for the list of another key", func(t *testing.T) {
		next := newCA(t, nil, "ca") // the same name after a change of key
		anchors := func(o *Options) {
			o.CAFiles = append(o.CAFiles, write(t, t.TempDir(), "next.pem", bundle(next)))
		}
		_, err := crlVerifier(t, ca, anchors, ca.crl(t, crlOptions{number: 4}), next.crl(t, crlOptions{number: 9}), ca.crl(t, crlOptions{number: 9, base: 8}))
		if err == nil || !strings.Contains(err.Error(), "number 8 or later, but the newest one here is 4") {
			t.Errorf("New = %v; want the delta list refused", err)
		}
	})
	t.Run("delta for a newer list", func(t *testing.T) {
		_, err := crlVerifier(t, ca, nil, ca.crl(t, crlOptions{number: 4}), ca.crl(t, crlOptions{number: 9, base: 8}))
		if err == nil || !strings.Contains(err.Error(), "number 8 or later, but the newest one here is 4") {
			t.Errorf("New = %v; want the numbers", err)
		}
	})
}

func flipLast(der []byte) []byte {
	der = bytes.Clone(der)
	der[len(der)-1] ^= 1
	return der
}

// The digest that binds sessions has no list in it: a session need not end
// because a list was renewed, since lists are asked on every connection.
func TestCRLIsNotInTheDigest(t *testing.T) {
	ca := newCA(t, nil, "ca")
	with, err := crlVerifier(t, ca, nil, ca.crl(t, crlOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	without, err := crlVerifier(t, ca, nil)
	if err != nil {
		t.Fatal(err)
	}
	if with.Current().Digest != without.Current().Digest {
		t.Error("a CRL changes the digest")
	}
}

func TestCRLStatus(t *testing.T) {
	ca := newCA(t, nil, "ca")
	now := time.Now()
	v, err := crlVerifier(t, ca, func(o *Options) { o.Now = func() time.Time { return now } },
		ca.crl(t, crlOptions{number: 5, revoked: []*authority{newClient(t, ca, "x")}}), ca.crl(t, crlOptions{number: 6, base: 5}))
	if err != nil {
		t.Fatal(err)
	}
	lists := v.Status().CRLs
	if len(lists) != 2 || lists[0].Number != "5" || lists[0].Delta || lists[0].Entries != 1 || !lists[0].Current || !lists[1].Delta {
		t.Errorf("lists = %+v", lists)
	}
	now = now.Add(2 * time.Hour)
	if v.Status().CRLs[0].Current {
		t.Error("an outdated list is called current")
	}
}

// Only the dates of lists that decide count in CRLExpiry and are warned of.
func TestCRLExpiry(t *testing.T) {
	ca, sub := newCA(t, nil, "ca"), newCA(t, newCA(t, nil, "ca"), "sub")
	base := time.Now().Truncate(time.Second)
	at := func(hours int) time.Time { return base.Add(time.Duration(hours) * time.Hour) }
	list := func(a *authority, number, delta int64, next int) []byte {
		return a.crl(t, crlOptions{number: number, base: delta, this: at(-10), next: at(next)})
	}
	for name, tt := range map[string]struct {
		lists [][]byte
		want  int
	}{
		"alone":                 {[][]byte{list(ca, 1, 0, 5)}, 5},
		"superseded":            {[][]byte{list(ca, 1, 0, -1), list(ca, 2, 0, 7)}, 7},
		"newest expires first":  {[][]byte{list(ca, 1, 0, 9), list(ca, 2, 0, 7)}, 7},
		"delta":                 {[][]byte{list(ca, 5, 0, -1), list(ca, 6, 5, 4)}, 4},
		"delta expires first":   {[][]byte{list(ca, 5, 0, 9), list(ca, 6, 5, 4)}, 4},
		"older delta":           {[][]byte{list(ca, 5, 0, 9), list(ca, 6, 5, -1), list(ca, 7, 5, 4)}, 4},
		"superseded delta":      {[][]byte{list(ca, 5, 0, -2), list(ca, 6, 5, -1), list(ca, 8, 0, 6)}, 6},
		"issuer not an anchor":  {[][]byte{list(ca, 5, 0, 9), list(sub, 1, 0, -1), list(sub, 2, 0, 3)}, 3},
		"other issuer outdated": {[][]byte{list(ca, 5, 0, 9), list(sub, 2, 0, -3)}, -3},
	} {
		var log bytes.Buffer
		v, err := crlVerifier(t, ca, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, tt.lists...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := v.Status().CRLExpiry(); !got.Equal(at(tt.want)) {
			t.Errorf("%s: CRLExpiry in %v; want %v", name, got.Sub(base), at(tt.want).Sub(base))
		}
		(&watcher{v: v}).reportOutdated()
		if warned := strings.Contains(log.String(), "out of date"); warned != (tt.want < 0) {
			t.Errorf("%s: log %q", name, log.String())
		}
		if err := v.VerifyConnection(stateOf([]*authority{newClient(t, ca, "x"), ca})); err != nil {
			t.Errorf("%s: the client is refused: %v", name, err)
		}
	}
}

func FuzzCRL(f *testing.F) {
	ca := newCA(f, nil, "ca")
	client := newClient(f, ca, "client")
	f.Add([]byte(nil))
	for _, o := range []crlOptions{
		{}, {number: 5, revoked: []*authority{client}}, {number: 6, base: 5, removed: []*authority{client}},
		{extensions: []pkix.Extension{scopeExtension(f, pointAt("http://ca.example/1.crl"))}},
		{extensions: []pkix.Extension{scopeExtension(f, issuingPoint{OnlyCA: true, Indirect: true})}},
	} {
		der := ca.crl(f, o)
		f.Add(der)
		f.Add(pemOf("X509 CRL", der))
	}
	anchors := map[[32]byte]*x509.Certificate{sha256.Sum256(ca.cert.Raw): ca.cert}
	f.Fuzz(func(t *testing.T, data []byte) {
		lists, err := parseCRLFile("fuzz.crl", data)
		if err != nil {
			return
		}
		set, err := newCRLSet(lists, anchors, true)
		if err != nil {
			return
		}
		_ = set.status(time.Now())
		_ = set.checkChains([][]*x509.Certificate{{client.cert, ca.cert}}, time.Now())
	})
}

func FuzzIssuingDistributionPoint(f *testing.F) {
	for _, p := range []issuingPoint{{}, {OnlyUser: true}, {OnlyCA: true}, pointAt("http://x/"), {Indirect: true}} {
		f.Add(scopeExtension(f, p).Value)
	}
	cert := newClient(f, newCA(f, nil, "ca"), "client").cert
	f.Fuzz(func(t *testing.T, der []byte) {
		if s, err := parseScope(der); err == nil {
			_ = s.covers(cert)
		}
	})
}

func TestMissingCRLFile(t *testing.T) {
	ca := newCA(t, nil, "ca")
	_, err := crlVerifier(t, ca, func(o *Options) { o.CRLFiles = []string{"/nonexistent/list.crl"} })
	if !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), "/nonexistent/list.crl") != 1 {
		t.Errorf("New = %v; want the file named once, and that it does not exist", err)
	}
}
