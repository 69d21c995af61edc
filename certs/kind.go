package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"slices"
)

// kind is a kind of key, in the order of preference.
type kind uint8

const (
	kindP256 kind = iota
	kindP384
	kindP521
	kindEd25519
	kindRSA
	kindUnknown
)

func kindOf(pub crypto.PublicKey) kind {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		return kindRSA
	case ed25519.PublicKey:
		return kindEd25519
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return kindP256
		case elliptic.P384():
			return kindP384
		case elliptic.P521():
			return kindP521
		}
	}
	return kindUnknown
}

// keyTypeName is the usual name of a public key's type and size.
func keyTypeName(pub crypto.PublicKey) string {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", pub)
}

// supportedBy reports whether a client can check a handshake signed with a key
// of this kind. Unlike [tls.ClientHelloInfo.SupportsCertificate] it allocates
// nothing; it is only asked when there is a choice.
func (k kind) supportedBy(hello *tls.ClientHelloInfo) bool {
	tls13 := slices.Contains(hello.SupportedVersions, tls.VersionTLS13)
	switch k {
	case kindP256:
		return ecdsaSupported(hello, tls13, tls.CurveP256, tls.ECDSAWithP256AndSHA256)
	case kindP384:
		return ecdsaSupported(hello, tls13, tls.CurveP384, tls.ECDSAWithP384AndSHA384)
	case kindP521:
		return ecdsaSupported(hello, tls13, tls.CurveP521, tls.ECDSAWithP521AndSHA512)
	case kindEd25519:
		return slices.Contains(hello.SignatureSchemes, tls.Ed25519) && (tls13 || offersECDSASuite(hello))
	case kindRSA:
		return rsaSupported(hello, tls13)
	}
	return false
}

// ecdsaSupported: in TLS 1.3 the signature scheme names the curve (RFC 8446,
// section 4.2.3); in TLS 1.2 any ECDSA scheme will do, while the curve must be
// among the supported groups (RFC 8422, section 5.1.1) and a cipher suite must
// be for ECDSA.
func ecdsaSupported(hello *tls.ClientHelloInfo, tls13 bool, curve tls.CurveID, scheme tls.SignatureScheme) bool {
	if tls13 && slices.Contains(hello.SignatureSchemes, scheme) {
		return true
	}
	return offersECDSASuite(hello) &&
		slices.Contains(hello.SupportedCurves, curve) &&
		slices.ContainsFunc(hello.SignatureSchemes, isECDSA)
}

func isECDSA(s tls.SignatureScheme) bool {
	switch s {
	case tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512:
		return true
	}
	return false
}

func offersECDSASuite(hello *tls.ClientHelloInfo) bool {
	return slices.ContainsFunc(hello.CipherSuites, func(id uint16) bool {
		switch id {
		case tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256:
			return true
		}
		return false
	})
}

// rsaSupported: TLS 1.3 needs RSA-PSS; a TLS 1.2 client that lists no schemes
// means RSA with SHA-1 (RFC 5246, section 7.4.1.4.1).
func rsaSupported(hello *tls.ClientHelloInfo, tls13 bool) bool {
	if tls13 {
		return slices.ContainsFunc(hello.SignatureSchemes, isPSS)
	}
	return len(hello.SignatureSchemes) == 0 ||
		slices.ContainsFunc(hello.SignatureSchemes, func(s tls.SignatureScheme) bool {
			switch s {
			case tls.PKCS1WithSHA256, tls.PKCS1WithSHA384, tls.PKCS1WithSHA512, tls.PKCS1WithSHA1:
				return true
			}
			return isPSS(s)
		})
}

func isPSS(s tls.SignatureScheme) bool {
	return s == tls.PSSWithSHA256 || s == tls.PSSWithSHA384 || s == tls.PSSWithSHA512
}

// rsaBits is the size of an RSA key, 0 for any other.
func rsaBits(pub crypto.PublicKey) int {
	if k, ok := pub.(*rsa.PublicKey); ok {
		return k.N.BitLen()
	}
	return 0
}
