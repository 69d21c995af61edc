package ocsp

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

var now = time.Now().Truncate(time.Second)

// world is a CA with a certificate, and others that have no say.
type world struct {
	ca, other *pki.CA
	cert      *tls.Certificate
	now       time.Time
}

func newWorld(t testing.TB) world {
	ca := newCA(t, pki.CAOptions{Name: "issuer"})
	return world{ca: ca, other: newCA(t, pki.CAOptions{Name: "other"}), cert: serverCert(t, ca, "a.test"), now: now}
}

func (w world) good() pki.ResponseSpec { return goodSpec(w.ca, w.cert.Leaf, w.now) }

func (w world) verify(t testing.TB, s pki.ResponseSpec) (*Response, error) {
	return Verify(build(t, s), w.cert.Leaf, w.ca.Certificate, now)
}

func TestVerifySigners(t *testing.T) {
	for _, key := range []pki.KeyType{pki.ECDSAP256, pki.ECDSAP384, pki.RSA2048, pki.Ed25519} {
		ca := newCA(t, pki.CAOptions{KeyType: key})
		cert := serverCert(t, ca, "a.test")
		d := delegate(t, ca, pki.Request{KeyType: key})
		foreign := delegate(t, newCA(t, pki.CAOptions{}), pki.Request{})
		for _, pss := range []bool{false, true} {
			if pss && key != pki.RSA2048 {
				continue
			}
			for _, byName := range []bool{false, true} {
				base := goodSpec(ca, cert.Leaf, now)
				base.PSS, base.ByName = pss, byName
				embedded := base
				embedded.Certificates = []*x509.Certificate{ca.Certificate}
				last := embedded
				last.Certificates = append(last.Certificates, foreign.Leaf)
				for name, test := range map[string]struct {
					spec      pki.ResponseSpec
					delegated bool
				}{
					"issuer":                      {base, false},
					"issuer, embedded":            {embedded, false},
					"issuer, a stranger embedded": {last, false},
					"delegate":                    {signedBy(base, d), true},
					"delegate, after the issuer":  {signedBy(embedded, d), true},
					"delegate, after two others":  {signedBy(last, d), true},
				} {
					r, err := Verify(build(t, test.spec), cert.Leaf, ca.Certificate, now)
					if err != nil {
						t.Errorf("%v, pss %v, by name %v, %s: %v", key, pss, byName, name, err)
						continue
					}
					if (r.Signer != nil) != test.delegated || test.delegated && !r.Signer.Equal(d.Leaf) {
						t.Errorf("%v, %s: signer = %v", key, name, r.Signer)
					}
					if r.Status != Good || r.SignatureAlgorithm == "" {
						t.Errorf("%v, %s: status %v, algorithm %q", key, name, r.Status, r.SignatureAlgorithm)
					}
				}
			}
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	w := newWorld(t)
	leafKey := w.cert.PrivateKey.(crypto.Signer)
	stranger := delegate(t, w.other, pki.Request{})
	inter, err := w.ca.NewIntermediate(pki.CAOptions{Name: "below"})
	if err != nil {
		t.Fatal(err)
	}
	grandchild := delegate(t, inter, pki.Request{})
	noPurpose := issue(t, w.ca, pki.Request{CommonName: "server"})
	expired := delegate(t, w.ca, pki.Request{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Minute)})
	early := delegate(t, w.ca, pki.Request{NotBefore: now.Add(time.Minute)})
	sameName := newCA(t, pki.CAOptions{Name: "issuer"}) // the issuer's name with another key
	impostor := delegate(t, sameName, pki.Request{})
	weird := delegate(t, w.ca, pki.Request{Template: func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}})
	}})
	critical := []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}

	tests := map[string]struct {
		change func(*pki.ResponseSpec)
		want   Reason
	}{
		"malformedRequest":       {func(s *pki.ResponseSpec) { s.ResponseStatus = 1 }, ReasonMalformedRequest},
		"internalError":          {func(s *pki.ResponseSpec) { s.ResponseStatus = 2 }, ReasonInternalError},
		"tryLater":               {func(s *pki.ResponseSpec) { s.ResponseStatus = 3 }, ReasonTryLater},
		"status 4":               {func(s *pki.ResponseSpec) { s.ResponseStatus = 4 }, ReasonBadStatus},
		"sigRequired":            {func(s *pki.ResponseSpec) { s.ResponseStatus = 5 }, ReasonSigRequired},
		"unauthorized":           {func(s *pki.ResponseSpec) { s.ResponseStatus = 6 }, ReasonUnauthorized},
		"status 7":               {func(s *pki.ResponseSpec) { s.ResponseStatus = 7 }, ReasonBadStatus},
		"wrong serial":           {func(s *pki.ResponseSpec) { s.Singles[0].CertID.Serial = big.NewInt(42) }, ReasonWrongCertificate},
		"no single response":     {func(s *pki.ResponseSpec) { s.ProducedAt = now; s.Singles = nil }, ReasonWrongCertificate},
		"serial of other issuer": {func(s *pki.ResponseSpec) { s.Singles[0].CertID.Issuer = w.other.Certificate }, ReasonWrongIssuer},
		"wrong name hash":        {func(s *pki.ResponseSpec) { s.Singles[0].CertID.NameHash = make([]byte, 20) }, ReasonWrongIssuer},
		"wrong key hash":         {func(s *pki.ResponseSpec) { s.Singles[0].CertID.KeyHash = make([]byte, 20) }, ReasonWrongIssuer},
		"empty hashes": {func(s *pki.ResponseSpec) {
			s.Singles[0].CertID.NameHash = []byte{}
			s.Singles[0].CertID.KeyHash = []byte{}
		}, ReasonWrongIssuer},
		"signed by other CA": {func(s *pki.ResponseSpec) { s.Signer, s.SignerCert = w.other.Key, w.other.Certificate }, ReasonWrongResponder},
		"other CA, embedded": {func(s *pki.ResponseSpec) {
			*s = signedBy(*s, &tls.Certificate{PrivateKey: w.other.Key, Leaf: w.other.Certificate})
		}, ReasonUnauthorizedSigner},
		"leaf-signed":            {func(s *pki.ResponseSpec) { *s = signedBy(*s, w.cert) }, ReasonUnauthorizedSigner},
		"delegate of other CA":   {func(s *pki.ResponseSpec) { *s = signedBy(*s, stranger) }, ReasonUnauthorizedSigner},
		"delegate of a namesake": {func(s *pki.ResponseSpec) { *s = signedBy(*s, impostor) }, ReasonUnauthorizedSigner},
		"delegate of a child CA": {func(s *pki.ResponseSpec) { *s = signedBy(*s, grandchild) }, ReasonUnauthorizedSigner},
		"child CA itself": {func(s *pki.ResponseSpec) {
			*s = signedBy(*s, &tls.Certificate{PrivateKey: inter.Key, Leaf: inter.Certificate})
		}, ReasonUnauthorizedSigner},
		"without OCSPSigning":     {func(s *pki.ResponseSpec) { *s = signedBy(*s, noPurpose) }, ReasonUnauthorizedSigner},
		"critical in delegate":    {func(s *pki.ResponseSpec) { *s = signedBy(*s, weird) }, ReasonUnauthorizedSigner},
		"delegate expired":        {func(s *pki.ResponseSpec) { *s = signedBy(*s, expired) }, ReasonSignerExpired},
		"delegate not yet valid":  {func(s *pki.ResponseSpec) { *s = signedBy(*s, early) }, ReasonSignerExpired},
		"responder ID of another": {func(s *pki.ResponseSpec) { s.SignerCert = w.other.Certificate }, ReasonWrongResponder},
		"wrong key for the ID":    {func(s *pki.ResponseSpec) { s.Signer = leafKey }, ReasonBadSignature},
		"thisUpdate in future":    {func(s *pki.ResponseSpec) { s.Singles[0].ThisUpdate = now.Add(5*time.Minute + time.Second) }, ReasonNotYetValid},
		"producedAt in future":    {func(s *pki.ResponseSpec) { s.ProducedAt = now.Add(time.Hour) }, ReasonNotYetValid},
		"nextUpdate passed":       {func(s *pki.ResponseSpec) { s.Singles[0].NextUpdate = now.Add(-time.Second) }, ReasonExpired},
		"nextUpdate now":          {func(s *pki.ResponseSpec) { s.Singles[0].NextUpdate = now }, ReasonExpired},
		"old, no nextUpdate": {func(s *pki.ResponseSpec) {
			s.Singles[0].NextUpdate = time.Time{}
			s.Singles[0].ThisUpdate = now.Add(-25 * time.Hour)
		}, ReasonExpired},
		"critical response ext.": {func(s *pki.ResponseSpec) { s.Extensions = critical }, ReasonCriticalExtension},
		"critical single ext.":   {func(s *pki.ResponseSpec) { s.Singles[0].Extensions = critical }, ReasonCriticalExtension},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := w.good()
			test.change(&spec)
			r, err := w.verify(t, spec)
			if got := ReasonOf(err); got != test.want {
				t.Errorf("reason = %q (%v); want %q", got, err, test.want)
			}
			if r != nil {
				t.Error("a refused response was returned")
			}
			if err != nil && err.Error() == "" {
				t.Error("no words for it")
			}
		})
	}
}

func TestVerifyRefusesDamage(t *testing.T) {
	w := newWorld(t)
	der := build(t, w.good())
	for n := range der {
		if _, err := Verify(der[:n], w.cert.Leaf, w.ca.Certificate, now); ReasonOf(err) != ReasonMalformed {
			t.Fatalf("truncated to %d of %d bytes: %v", n, len(der), err)
		}
		damaged := bytes.Clone(der)
		damaged[n] ^= 0x01
		r, err := Verify(damaged, w.cert.Leaf, w.ca.Certificate, now)
		if err == nil {
			// Only what is not signed and not used may differ without harm.
			t.Fatalf("byte %d of %d changed and still accepted: %+v", n, len(der), r)
		}
		if ReasonOf(err) == "" {
			t.Fatalf("byte %d changed: error without a reason: %v", n, err)
		}
	}
	for name, bad := range map[string][]byte{
		"empty": {}, "html": []byte("<html>hello</html>"), "trailing": append(bytes.Clone(der), 0),
		"PEM": []byte("-----BEGIN CERTIFICATE-----\n"),
	} {
		if _, err := Verify(bad, w.cert.Leaf, w.ca.Certificate, now); ReasonOf(err) != ReasonMalformed {
			t.Errorf("%s: %v; want %s", name, err, ReasonMalformed)
		}
	}
	if _, err := Verify(make([]byte, maxResponse+1), w.cert.Leaf, w.ca.Certificate, now); ReasonOf(err) != ReasonTooLarge {
		t.Errorf("too large: %v", err)
	}
}

func TestVerifyAccepts(t *testing.T) {
	w := newWorld(t)
	other := pki.SingleSpec{CertID: pki.CertID{Serial: big.NewInt(42), Issuer: w.ca.Certificate}, Status: pki.Revoked, RevokedAt: now, ThisUpdate: now, Reason: -1}
	twin := pki.SingleSpec{CertID: pki.CertID{Serial: w.cert.Leaf.SerialNumber, Issuer: w.other.Certificate}, Status: pki.Revoked, RevokedAt: now, ThisUpdate: now, Reason: -1}
	tests := map[string]struct {
		change func(*pki.ResponseSpec)
		want   Status
	}{
		"SHA-1":         {func(s *pki.ResponseSpec) {}, Good},
		"SHA-256":       {func(s *pki.ResponseSpec) { s.Singles[0].CertID.Hash = crypto.SHA256 }, Good},
		"among several": {func(s *pki.ResponseSpec) { s.Singles = []pki.SingleSpec{other, twin, s.Singles[0], other} }, Good},
		"unknown":       {func(s *pki.ResponseSpec) { s.Singles[0].Status = pki.Unknown }, Unknown},
		"revoked":       {func(s *pki.ResponseSpec) { s.Singles[0].Status = pki.Revoked; s.Singles[0].RevokedAt = now }, Revoked},
		"revoked, long expired": {func(s *pki.ResponseSpec) {
			s.Singles[0].Status = pki.Revoked
			s.Singles[0].RevokedAt = now
			s.Singles[0].NextUpdate = now.Add(-time.Minute)
		}, Revoked},
		"never issued": {func(s *pki.ResponseSpec) {
			s.Singles[0].Status = pki.Revoked
			s.Singles[0].RevokedAt = time.Unix(0, 0)
			s.Singles[0].Reason = 6
		}, Unknown},
		"on hold": {func(s *pki.ResponseSpec) {
			s.Singles[0].Status = pki.Revoked
			s.Singles[0].RevokedAt = now
			s.Singles[0].Reason = 6
		}, Revoked},
		"skewed clock":           {func(s *pki.ResponseSpec) { s.Singles[0].ThisUpdate = now.Add(4 * time.Minute) }, Good},
		"before the certificate": {func(s *pki.ResponseSpec) { s.Singles[0].ThisUpdate = now.Add(-1000 * time.Hour) }, Good},
		"old producedAt":         {func(s *pki.ResponseSpec) { s.ProducedAt = now.Add(-1000 * time.Hour) }, Good},
		"no nextUpdate":          {func(s *pki.ResponseSpec) { s.Singles[0].NextUpdate = time.Time{} }, Good},
		"ends within the skew":   {func(s *pki.ResponseSpec) { s.Singles[0].NextUpdate = now.Add(time.Minute) }, Good},
		"far future":             {func(s *pki.ResponseSpec) { s.Singles[0].NextUpdate = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) }, Good},
		"other extensions": {func(s *pki.ResponseSpec) {
			s.Extensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: []byte{5, 0}}}
		}, Good},
		"good and revoked at once": {func(s *pki.ResponseSpec) {
			again := s.Singles[0]
			again.Status, again.RevokedAt, again.ThisUpdate = pki.Revoked, now, now.Add(-2*time.Hour)
			s.Singles = append(s.Singles, again)
		}, Revoked},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := w.good()
			test.change(&spec)
			r, err := w.verify(t, spec)
			if err != nil {
				t.Fatal(err)
			}
			if r.Status != test.want {
				t.Errorf("status = %v; want %v", r.Status, test.want)
			}
			if r.Serial.Cmp(w.cert.Leaf.SerialNumber) != 0 {
				t.Errorf("serial = %v", r.Serial)
			}
		})
	}
}

func TestVerifyNewestOfSeveral(t *testing.T) {
	w := newWorld(t)
	spec := w.good()
	newer := spec.Singles[0]
	newer.ThisUpdate = now.Add(-time.Minute)
	newer.CertID.Hash = crypto.SHA256
	spec.Singles = append(spec.Singles, newer)
	r, err := w.verify(t, spec)
	if err != nil || !r.ThisUpdate.Equal(newer.ThisUpdate) {
		t.Errorf("got %+v, %v; want the newer one", r, err)
	}
}

func TestEnd(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	leafEnd := now.Add(20 * 24 * time.Hour)
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, NotAfter: leafEnd})
	short := delegate(t, ca, pki.Request{NotAfter: now.Add(10 * time.Minute)})
	tests := map[string]struct {
		from, to  time.Duration // relative to now; to 0: no nextUpdate
		delegated bool
		want      time.Duration
	}{
		"two minutes":           {0, 2 * time.Minute, false, 108 * time.Second},
		"ten minutes":           {0, 10 * time.Minute, false, 9 * time.Minute},
		"four days":             {0, 96 * time.Hour, false, 96*time.Hour - 5*time.Minute},
		"half used":             {-30 * time.Minute, 30 * time.Minute, false, 25 * time.Minute},
		"no nextUpdate":         {-time.Minute, 0, false, 10 * time.Minute},
		"beyond the leaf":       {0, 1000 * time.Hour, false, 480*time.Hour - 5*time.Minute},
		"signer ends first":     {-90 * time.Minute, time.Hour, true, 5 * time.Minute},
		"no nextUpdate, signer": {-time.Minute, 0, true, 10 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := goodSpec(ca, cert.Leaf, now)
			spec.Singles[0].ThisUpdate = now.Add(test.from)
			spec.Singles[0].NextUpdate = time.Time{}
			if test.to != 0 {
				spec.Singles[0].NextUpdate = now.Add(test.to)
			}
			if test.delegated {
				spec = signedBy(spec, short)
			}
			r, err := Verify(build(t, spec), cert.Leaf, ca.Certificate, now)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.End.Sub(now); got != test.want {
				t.Errorf("ends in %v; want %v", got, test.want)
			}
		})
	}
}

func TestEndIsClamped(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, NotAfter: now.Add(5 * 365 * 24 * time.Hour)})
	spec := goodSpec(ca, cert.Leaf, now)
	spec.Singles[0].NextUpdate = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	spec.Singles[0].ThisUpdate = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	r, err := Verify(build(t, spec), cert.Leaf, ca.Certificate, now)
	if err != nil || r.End.Sub(now) != maxLife {
		t.Errorf("got %+v, %v; want an end in %v", r, err, maxLife)
	}
}

func TestVerifyExpiredLeaf(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	cert := issue(t, ca, pki.Request{NotAfter: now.Add(-time.Minute)})
	_, err := Verify(build(t, goodSpec(ca, cert.Leaf, now)), cert.Leaf, ca.Certificate, now)
	if ReasonOf(err) != ReasonExpired {
		t.Errorf("got %v; want %s", err, ReasonExpired)
	}
}

func TestReasonsHaveWords(t *testing.T) {
	for _, r := range []Reason{ReasonMalformed, ReasonBreakerOpen, ReasonWrongIssuer} {
		if r.String() == string(r) {
			t.Errorf("%s has no words", r)
		}
	}
	err := &Error{Reason: ReasonNetwork, Err: errors.New("boom")}
	if got, want := err.Error(), "the responder cannot be reached: boom"; got != want {
		t.Errorf("Error() = %q; want %q", got, want)
	}
}
