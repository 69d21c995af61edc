package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1" // CertIDs and key hashes are SHA-1 by RFC 6960
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// Status is what an OCSP responder says about one certificate. The zero value
// is [Good].
type Status int

// The three answers of RFC 6960, section 2.2.
const (
	Good Status = iota
	Revoked
	Unknown
)

// ResponseSpec describes an OCSP response to be built by [ResponseSpec.Sign].
// Every field can be wrong on purpose: nothing is checked.
type ResponseSpec struct {
	ResponseStatus int                 // OCSPResponseStatus; anything but 0 (successful) makes a response without a body
	Singles        []SingleSpec        // the SingleResponses, in order
	ProducedAt     time.Time           // zero: the ThisUpdate of the first single
	Signer         crypto.Signer       // the key that signs
	SignerCert     *x509.Certificate   // whose name or key is the responder ID
	ByName         bool                // identify the responder by name instead of by key hash
	Certificates   []*x509.Certificate // the embedded certificates, in order
	PSS            bool                // sign with RSA-PSS instead of PKCS #1 v1.5
	Extensions     []pkix.Extension    // responseExtensions
}

// SingleSpec describes one SingleResponse.
type SingleSpec struct {
	CertID     CertID
	Status     Status
	RevokedAt  time.Time // of a revoked one
	Reason     int       // CRLReason of a revoked one; negative: left out
	ThisUpdate time.Time
	NextUpdate time.Time // zero: left out
	Extensions []pkix.Extension
}

// CertID names a certificate in an OCSP response (RFC 6960, section 4.1.1).
type CertID struct {
	Hash     crypto.Hash       // SHA1 (also the zero value) or SHA256
	Serial   *big.Int          // of the certificate asked about
	Issuer   *x509.Certificate // whose name and key are hashed
	NameHash []byte            // if not nil: instead of the hash of the issuer's name
	KeyHash  []byte            // if not nil: instead of the hash of the issuer's key
}

// Sign builds the response and returns its DER encoding.
func (s ResponseSpec) Sign() ([]byte, error) {
	if s.ResponseStatus != 0 {
		return []byte{0x30, 0x03, 0x0a, 0x01, byte(s.ResponseStatus)}, nil
	}
	data, err := s.responseData()
	if err != nil {
		return nil, err
	}
	algorithm, signature, err := signData(s.Signer, data, s.PSS)
	if err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Enum(0)
		explicit(b, 0, func(b *cryptobyte.Builder) {
			b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1ObjectIdentifier(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1})
				b.AddASN1(cbasn1.OCTET_STRING, func(b *cryptobyte.Builder) {
					s.basicResponse(b, data, algorithm, signature)
				})
			})
		})
	})
	return b.Bytes()
}

func (s ResponseSpec) basicResponse(b *cryptobyte.Builder, data, algorithm, signature []byte) {
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(data)
		b.AddBytes(algorithm)
		b.AddASN1BitString(signature)
		if len(s.Certificates) == 0 {
			return
		}
		explicit(b, 0, func(b *cryptobyte.Builder) {
			b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
				for _, c := range s.Certificates {
					b.AddBytes(c.Raw)
				}
			})
		})
	})
}

func (s ResponseSpec) responseData() ([]byte, error) {
	produced := s.ProducedAt
	if produced.IsZero() && len(s.Singles) > 0 {
		produced = s.Singles[0].ThisUpdate
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		if s.ByName {
			explicit(b, 1, func(b *cryptobyte.Builder) { b.AddBytes(s.SignerCert.RawSubject) })
		} else {
			explicit(b, 2, func(b *cryptobyte.Builder) {
				b.AddASN1OctetString(sum(crypto.SHA1, publicKeyBits(s.SignerCert)))
			})
		}
		addTime(b, produced)
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, single := range s.Singles {
				single.marshal(b)
			}
		})
		addExtensions(b, 1, s.Extensions)
	})
	return b.Bytes()
}

func (s SingleSpec) marshal(b *cryptobyte.Builder) {
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		s.CertID.marshal(b)
		switch s.Status {
		case Good:
			b.AddASN1(cbasn1.Tag(0).ContextSpecific(), func(*cryptobyte.Builder) {})
		case Revoked:
			b.AddASN1(cbasn1.Tag(1).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
				addTime(b, s.RevokedAt)
				if s.Reason >= 0 {
					explicit(b, 0, func(b *cryptobyte.Builder) { b.AddASN1Enum(int64(s.Reason)) })
				}
			})
		default:
			b.AddASN1(cbasn1.Tag(2).ContextSpecific(), func(*cryptobyte.Builder) {})
		}
		addTime(b, s.ThisUpdate)
		if !s.NextUpdate.IsZero() {
			explicit(b, 0, func(b *cryptobyte.Builder) { addTime(b, s.NextUpdate) })
		}
		addExtensions(b, 1, s.Extensions)
	})
}

func (id CertID) marshal(b *cryptobyte.Builder) {
	hash, oid := id.Hash, asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}
	switch hash {
	case crypto.SHA256:
		oid = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	case 0:
		hash = crypto.SHA1
	}
	name, key := id.NameHash, id.KeyHash
	if name == nil {
		name = sum(hash, id.Issuer.RawSubject)
	}
	if key == nil {
		key = sum(hash, publicKeyBits(id.Issuer))
	}
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1ObjectIdentifier(oid)
			b.AddASN1NULL()
		})
		b.AddASN1OctetString(name)
		b.AddASN1OctetString(key)
		b.AddASN1BigInt(id.Serial)
	})
}

func explicit(b *cryptobyte.Builder, tag uint8, f cryptobyte.BuilderContinuation) {
	b.AddASN1(cbasn1.Tag(tag).ContextSpecific().Constructed(), f)
}

func addTime(b *cryptobyte.Builder, t time.Time) {
	b.AddASN1GeneralizedTime(t.UTC().Truncate(time.Second))
}

func addExtensions(b *cryptobyte.Builder, tag uint8, exts []pkix.Extension) {
	if len(exts) == 0 {
		return
	}
	explicit(b, tag, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, e := range exts {
				b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1ObjectIdentifier(e.Id)
					if e.Critical {
						b.AddASN1Boolean(true)
					}
					b.AddASN1OctetString(e.Value)
				})
			}
		})
	})
}

// publicKeyBits returns the subject's public key without tag, length and
// unused bits: what OCSP hashes.
func publicKeyBits(c *x509.Certificate) []byte {
	spki := cryptobyte.String(c.RawSubjectPublicKeyInfo)
	var inner cryptobyte.String
	var bits asn1.BitString
	if !spki.ReadASN1(&inner, cbasn1.SEQUENCE) || !inner.SkipASN1(cbasn1.SEQUENCE) || !inner.ReadASN1BitString(&bits) {
		return nil
	}
	return bits.RightAlign()
}

func sum(h crypto.Hash, data []byte) []byte {
	w := h.New()
	w.Write(data)
	return w.Sum(nil)
}

// rsaPSSSHA256 is the AlgorithmIdentifier of RSASSA-PSS with SHA-256, MGF1
// with SHA-256 and a salt of 32 bytes (RFC 4055).
var rsaPSSSHA256 = []byte{
	0x30, 0x41, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a,
	0x30, 0x34,
	0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
	0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08,
	0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
	0xa2, 0x03, 0x02, 0x01, 0x20,
}

func signData(key crypto.Signer, data []byte, pss bool) (algorithm, signature []byte, err error) {
	digest := sha256.Sum256(data)
	switch key.Public().(type) {
	case *rsa.PublicKey:
		if pss {
			opts := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
			signature, err = key.Sign(rand.Reader, digest[:], opts)
			return rsaPSSSHA256, signature, err
		}
		signature, err = key.Sign(rand.Reader, digest[:], crypto.SHA256)
		return algorithmID(true, 1, 2, 840, 113549, 1, 1, 11), signature, err
	case *ecdsa.PublicKey:
		signature, err = key.Sign(rand.Reader, digest[:], crypto.SHA256)
		return algorithmID(false, 1, 2, 840, 10045, 4, 3, 2), signature, err
	case ed25519.PublicKey:
		signature, err = key.Sign(rand.Reader, data, crypto.Hash(0))
		return algorithmID(false, 1, 3, 101, 112), signature, err
	}
	return nil, nil, fmt.Errorf("cannot sign an OCSP response with a key of type %T", key.Public())
}

func algorithmID(null bool, oid ...int) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1ObjectIdentifier(oid)
		if null {
			b.AddASN1NULL()
		}
	})
	return b.BytesOrPanic()
}
