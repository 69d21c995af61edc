package ocsp

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	_ "crypto/sha1" // hash of CertIDs and responder IDs
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/asn1"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// signatureAlgorithm is a parsed AlgorithmIdentifier of a signature.
type signatureAlgorithm struct {
	name string
	kind keyKind
	hash crypto.Hash // 0 for Ed25519
	salt int         // of RSA-PSS, bytes
}

type keyKind int

const (
	rsaPKCS1 keyKind = iota + 1
	rsaPSS
	ecdsaKey
	ed25519Key
)

var (
	oidRSAPSS = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10}
	oidMGF1   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 8}
)

// fixedAlgorithms are the signature algorithms whose identifier says it all.
// SHA-1 and MD5 are left out: collisions make them forgeable, and Go refuses
// them in certificates for the same reason.
var fixedAlgorithms = []struct {
	oid asn1.ObjectIdentifier
	signatureAlgorithm
}{
	{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, signatureAlgorithm{name: "SHA256-RSA", kind: rsaPKCS1, hash: crypto.SHA256}},
	{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 12}, signatureAlgorithm{name: "SHA384-RSA", kind: rsaPKCS1, hash: crypto.SHA384}},
	{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 13}, signatureAlgorithm{name: "SHA512-RSA", kind: rsaPKCS1, hash: crypto.SHA512}},
	{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}, signatureAlgorithm{name: "ECDSA-SHA256", kind: ecdsaKey, hash: crypto.SHA256}},
	{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}, signatureAlgorithm{name: "ECDSA-SHA384", kind: ecdsaKey, hash: crypto.SHA384}},
	{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 4}, signatureAlgorithm{name: "ECDSA-SHA512", kind: ecdsaKey, hash: crypto.SHA512}},
	{asn1.ObjectIdentifier{1, 3, 101, 112}, signatureAlgorithm{name: "Ed25519", kind: ed25519Key}},
}

func parseAlgorithm(der []byte) (signatureAlgorithm, error) {
	input := cryptobyte.String(der)
	var body cryptobyte.String
	var oid asn1.ObjectIdentifier
	if !input.ReadASN1(&body, cbasn1.SEQUENCE) || !body.ReadASN1ObjectIdentifier(&oid) {
		return signatureAlgorithm{}, malformed("signatureAlgorithm")
	}
	if oid.Equal(oidRSAPSS) {
		return parsePSS(body)
	}
	for _, a := range fixedAlgorithms {
		if a.oid.Equal(oid) {
			if !skipNull(&body) {
				return signatureAlgorithm{}, malformed("signatureAlgorithm")
			}
			return a.signatureAlgorithm, nil
		}
	}
	return signatureAlgorithm{}, refuse(ReasonUnsupported, "signature algorithm %v", oid)
}

// parsePSS reads RSASSA-PSS-params (RFC 4055, section 3.1). The defaults are
// SHA-1, which is refused, so hash and mask must both be given, and agree.
func parsePSS(body cryptobyte.String) (signatureAlgorithm, error) {
	var params, wrapped, hashID, mgf, mgfHash cryptobyte.String
	var hashOID, mgfOID, mgfHashOID asn1.ObjectIdentifier
	a := signatureAlgorithm{kind: rsaPSS}
	trailer := 1
	if !body.ReadASN1(&params, cbasn1.SEQUENCE) || !body.Empty() {
		return a, malformed("RSASSA-PSS-params")
	}
	if !params.PeekASN1Tag(tag(0)) {
		return a, refuse(ReasonUnsupported, "RSA-PSS with SHA-1")
	}
	if !params.ReadASN1(&wrapped, tag(0)) || !wrapped.ReadASN1(&hashID, cbasn1.SEQUENCE) ||
		!hashID.ReadASN1ObjectIdentifier(&hashOID) || !skipNull(&hashID) ||
		!params.ReadASN1(&wrapped, tag(1)) || !wrapped.ReadASN1(&mgf, cbasn1.SEQUENCE) ||
		!mgf.ReadASN1ObjectIdentifier(&mgfOID) || !mgf.ReadASN1(&mgfHash, cbasn1.SEQUENCE) ||
		!mgfHash.ReadASN1ObjectIdentifier(&mgfHashOID) || !skipNull(&mgfHash) ||
		!params.ReadOptionalASN1Integer(&a.salt, tag(2), 20) ||
		!params.ReadOptionalASN1Integer(&trailer, tag(3), 1) || !params.Empty() {
		return a, malformed("RSASSA-PSS-params")
	}
	a.hash = hashByOID(hashOID)
	if a.hash == 0 || a.hash == crypto.SHA1 || !mgfOID.Equal(oidMGF1) || !mgfHashOID.Equal(hashOID) ||
		trailer != 1 || a.salt < 0 || a.salt > 512 {
		return a, refuse(ReasonUnsupported, "parameters of RSA-PSS")
	}
	a.name = "RSA-PSS with " + a.hash.String()
	return a, nil
}

// verify reports whether signature over data is that of the key.
func (a signatureAlgorithm) verify(key any, data, signature []byte) bool {
	digest := data
	if a.hash != 0 {
		digest = hashOf(a.hash, data)
	}
	switch pub := key.(type) {
	case *rsa.PublicKey:
		switch a.kind {
		case rsaPKCS1:
			return rsa.VerifyPKCS1v15(pub, a.hash, digest, signature) == nil
		case rsaPSS:
			opts := &rsa.PSSOptions{SaltLength: a.salt, Hash: a.hash}
			if a.salt == 0 { // in PSSOptions zero means any length
				return false
			}
			return rsa.VerifyPSS(pub, a.hash, digest, signature, opts) == nil
		}
	case *ecdsa.PublicKey:
		return a.kind == ecdsaKey && ecdsa.VerifyASN1(pub, digest, signature)
	case ed25519.PublicKey:
		return a.kind == ed25519Key && ed25519.Verify(pub, digest, signature)
	}
	return false
}

func hashOf(h crypto.Hash, data []byte) []byte {
	w := h.New()
	w.Write(data)
	return w.Sum(nil)
}

// hashByOID returns the hash function with that identifier, 0 if unknown.
func hashByOID(oid asn1.ObjectIdentifier) crypto.Hash {
	switch {
	case oid.Equal(asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}):
		return crypto.SHA1
	case oid.Equal(asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}):
		return crypto.SHA256
	case oid.Equal(asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2}):
		return crypto.SHA384
	case oid.Equal(asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3}):
		return crypto.SHA512
	}
	return 0
}

// publicKeyBits returns the public key of a certificate without tag, length
// and count of unused bits: what CertIDs and responder IDs hash.
func publicKeyBits(c *x509.Certificate) []byte {
	spki := cryptobyte.String(c.RawSubjectPublicKeyInfo)
	var inner cryptobyte.String
	var bits asn1.BitString
	if !spki.ReadASN1(&inner, cbasn1.SEQUENCE) || !inner.SkipASN1(cbasn1.SEQUENCE) || !inner.ReadASN1BitString(&bits) {
		return nil
	}
	return bits.RightAlign()
}
