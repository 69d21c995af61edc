package ocsp

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestParseAlgorithm(t *testing.T) {
	const (
		pss    = "06092a864886f70d01010a"
		sha1   = "300906052b0e03021a0500"
		sha256 = "300d06096086480165030402010500"
		mgf    = "06092a864886f70d010108"
	)
	seq := func(tag string, parts ...string) string { return der(t, tag, parts...) }
	tests := map[string]struct {
		der  string
		want Reason
		salt int
	}{
		"SHA-256":              {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha256)), seq("a2", "020120"))), "", 32},
		"default salt":         {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha256)))), "", 20},
		"trailer given":        {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha256)), seq("a3", "020101"))), "", 20},
		"all defaults (SHA-1)": {seq("30", pss, "3000"), ReasonUnsupported, 0},
		"SHA-1":                {seq("30", pss, seq("30", seq("a0", sha1), seq("a1", seq("30", mgf, sha1)))), ReasonUnsupported, 0},
		"two hashes":           {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha1)))), ReasonUnsupported, 0},
		"another mask":         {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", pss, sha256)))), ReasonUnsupported, 0},
		"another trailer":      {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha256)), seq("a3", "020102"))), ReasonUnsupported, 0},
		"negative salt":        {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha256)), seq("a2", "0201ff"))), ReasonUnsupported, 0},
		"huge salt":            {seq("30", pss, seq("30", seq("a0", sha256), seq("a1", seq("30", mgf, sha256)), seq("a2", "02027fff"))), ReasonUnsupported, 0},
		"no mask":              {seq("30", pss, seq("30", seq("a0", sha256))), ReasonMalformed, 0},
		"no parameters":        {seq("30", pss), ReasonMalformed, 0},
		"SHA1-RSA":             {seq("30", "06092a864886f70d010105", "0500"), ReasonUnsupported, 0},
		"MD5-RSA":              {seq("30", "06092a864886f70d010104", "0500"), ReasonUnsupported, 0},
		"ECDSA-SHA1":           {seq("30", "06072a8648ce3d0401"), ReasonUnsupported, 0},
		"junk after ECDSA":     {seq("30", "06082a8648ce3d040302", "020101"), ReasonMalformed, 0},
		"no identifier":        {"3000", ReasonMalformed, 0},
	}
	for name, test := range tests {
		raw, err := hex.DecodeString(test.der)
		if err != nil {
			t.Fatal(err)
		}
		a, err := parseAlgorithm(raw)
		if ReasonOf(err) != test.want || err == nil && (a.salt != test.salt || a.hash != crypto.SHA256) {
			t.Errorf("%s: %+v, %v; want reason %q", name, a, err, test.want)
		}
	}
}

// der encodes a short element in hexadecimal.
func der(t *testing.T, tag string, parts ...string) string {
	t.Helper()
	body := strings.Join(parts, "")
	if len(body) > 2*127 {
		t.Fatal("too long for this test")
	}
	return tag + hex.EncodeToString([]byte{byte(len(body) / 2)}) + body
}

// A signature counts only with the kind of key that its algorithm is for.
func TestKeyAndAlgorithmMustFit(t *testing.T) {
	kinds := []pki.KeyType{pki.RSA2048, pki.ECDSAP256, pki.Ed25519}
	for _, signs := range kinds {
		for _, claims := range kinds {
			ca := newCA(t, pki.CAOptions{KeyType: signs})
			leaf := serverCert(t, ca, "a.test").Leaf
			raw := build(t, goodSpec(ca, leaf, now))
			b, err := parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			other := newCA(t, pki.CAOptions{KeyType: claims})
			o, err := parse(build(t, goodSpec(other, leaf, now)))
			if err != nil {
				t.Fatal(err)
			}
			algorithm, err := parseAlgorithm(o.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			if got := algorithm.verify(ca.Certificate.PublicKey, b.signed, b.signature); got != (signs == claims) {
				t.Errorf("%v signature, said to be %v: verifies = %v", signs, claims, got)
			}
			if algorithm.verify(ca.Certificate.PublicKey, b.signed, bytes.Repeat([]byte{0}, 300)) {
				t.Errorf("%v: zeros verify", claims)
			}
		}
	}
}
