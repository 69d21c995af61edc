// Package pki is a small certification authority with an OCSP responder.
//
// It has two uses. The running program keeps one as its development CA, so
// that the first command already serves a certificate with a staple:
//
//	ca, err := pki.LoadOrCreate(dir, pki.CAOptions{Name: "tlsproxy development CA"})
//	cert, err := ca.Issue(pki.Request{Names: []string{"localhost", "127.0.0.1"}})
//	responder := pki.NewResponder(ca, pki.ResponderOptions{})
//
// Tests make as many as they need, with [NewRoot] and [CA.NewIntermediate],
// and build OCSP responses of any shape, wrong ones included, with
// [ResponseSpec].
//
// It is not a CA for production: it keeps no register of what it issued,
// publishes no CRL, and its keys lie in files or in memory.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"
)

// KeyType is a kind of private key. The zero value is [ECDSAP256].
type KeyType int

// The kinds of key that [GenerateKey] makes.
const (
	ECDSAP256 KeyType = iota
	ECDSAP384
	RSA2048
	RSA3072
	Ed25519
)

// String returns the usual name of the key type.
func (k KeyType) String() string {
	switch k {
	case ECDSAP256:
		return "ECDSA P-256"
	case ECDSAP384:
		return "ECDSA P-384"
	case RSA2048:
		return "RSA 2048"
	case RSA3072:
		return "RSA 3072"
	case Ed25519:
		return "Ed25519"
	}
	return fmt.Sprintf("KeyType(%d)", int(k))
}

// GenerateKey makes a new private key of the given type.
func GenerateKey(k KeyType) (crypto.Signer, error) {
	switch k {
	case ECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case ECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case RSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	case RSA3072:
		return rsa.GenerateKey(rand.Reader, 3072)
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown key type %d", int(k))
}

// CA is a certification authority: a root or an intermediate. It is safe for
// concurrent use as long as its fields are not changed.
type CA struct {
	Certificate *x509.Certificate   // the CA's own certificate
	Key         crypto.Signer       // the CA's private key
	Parents     []*x509.Certificate // issuers of Certificate, nearest first, ending with the root; empty for a root
}

// CAOptions says what a new CA is like.
type CAOptions struct {
	Name      string                  // common name; "" means "tlsproxy CA"
	Key       crypto.Signer           // nil: a new key of KeyType
	KeyType   KeyType                 // of the new key
	NotBefore time.Time               // zero: one hour ago
	NotAfter  time.Time               // zero: ten years after NotBefore
	Template  func(*x509.Certificate) // last changes to the certificate; nil: none
}

// NewRoot makes a self-signed CA.
func NewRoot(o CAOptions) (*CA, error) {
	key, tmpl, err := o.prepare()
	if err != nil {
		return nil, err
	}
	cert, err := sign(tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &CA{Certificate: cert, Key: key}, nil
}

// NewIntermediate makes a CA below ca.
func (ca *CA) NewIntermediate(o CAOptions) (*CA, error) {
	key, tmpl, err := o.prepare()
	if err != nil {
		return nil, err
	}
	cert, err := sign(tmpl, ca.Certificate, key.Public(), ca.Key)
	if err != nil {
		return nil, err
	}
	parents := append([]*x509.Certificate{ca.Certificate}, ca.Parents...)
	return &CA{Certificate: cert, Key: key, Parents: parents}, nil
}

// Root returns the certificate at the end of the chain of ca.
func (ca *CA) Root() *x509.Certificate {
	if len(ca.Parents) == 0 {
		return ca.Certificate
	}
	return ca.Parents[len(ca.Parents)-1]
}

// Pool returns a new pool that holds the root of ca.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Root())
	return pool
}

func (o CAOptions) prepare() (crypto.Signer, *x509.Certificate, error) {
	key := o.Key
	if key == nil {
		var err error
		if key, err = GenerateKey(o.KeyType); err != nil {
			return nil, nil, err
		}
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	name := o.Name
	if name == "" {
		name = "tlsproxy CA"
	}
	notBefore, notAfter := window(o.NotBefore, o.NotAfter, 10*365*24*time.Hour)
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	if o.Template != nil {
		o.Template(tmpl)
	}
	return key, tmpl, nil
}

// Request says what a certificate to be issued is like. The zero value gives
// a server certificate without names, valid for 90 days.
type Request struct {
	Names       []string                // DNS names, IP addresses and URIs; the first is the common name too
	CommonName  string                  // "": the first of Names
	Key         crypto.Signer           // nil: a new key of KeyType
	KeyType     KeyType                 // of the new key
	NotBefore   time.Time               // zero: one hour ago
	NotAfter    time.Time               // zero: 90 days after NotBefore
	OCSPServers []string                // responder URLs for the AIA extension; none: no extension
	MustStaple  bool                    // add the TLS feature extension of RFC 7633
	Client      bool                    // for client authentication instead of server authentication
	OCSPSigning bool                    // a delegated OCSP signer (RFC 6960, section 4.2.2.2) instead of either
	Template    func(*x509.Certificate) // last changes to the certificate; nil: none
}

// Issue makes a certificate signed by ca. Its chain is the leaf, then ca and
// the intermediates above; the root only when it is the issuer itself, so that
// the issuer is always present. Leaf is set.
func (ca *CA) Issue(r Request) (*tls.Certificate, error) {
	key := r.Key
	if key == nil {
		var err error
		if key, err = GenerateKey(r.KeyType); err != nil {
			return nil, err
		}
	}
	tmpl, err := r.template()
	if err != nil {
		return nil, err
	}
	leaf, err := sign(tmpl, ca.Certificate, key.Public(), ca.Key)
	if err != nil {
		return nil, err
	}
	chain := [][]byte{leaf.Raw, ca.Certificate.Raw}
	for i, p := range ca.Parents {
		if i < len(ca.Parents)-1 {
			chain = append(chain, p.Raw)
		}
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

func (r Request) template() (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	name := r.CommonName
	if name == "" && len(r.Names) > 0 {
		name = r.Names[0]
	}
	notBefore, notAfter := window(r.NotBefore, r.NotAfter, 90*24*time.Hour)
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    notBefore,
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		OCSPServer:   r.OCSPServers,
	}
	switch {
	case r.OCSPSigning:
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}
		tmpl.ExtraExtensions = append(tmpl.ExtraExtensions, pkix.Extension{Id: oidOCSPNoCheck, Value: asn1.NullBytes})
	case r.Client:
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	if r.MustStaple {
		tmpl.ExtraExtensions = append(tmpl.ExtraExtensions, pkix.Extension{Id: oidTLSFeature, Value: statusRequestFeature})
	}
	if err := addNames(tmpl, r.Names); err != nil {
		return nil, err
	}
	if r.Template != nil {
		r.Template(tmpl)
	}
	return tmpl, nil
}

var (
	oidTLSFeature        = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}
	oidOCSPNoCheck       = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 5}
	statusRequestFeature = []byte{0x30, 0x03, 0x02, 0x01, 0x05} // SEQUENCE { INTEGER 5 (status_request) }
)

func addNames(tmpl *x509.Certificate, names []string) error {
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
			continue
		}
		if strings.Contains(name, "://") {
			u, err := url.Parse(name)
			if err != nil {
				return fmt.Errorf("certificate name %q: %w", name, err)
			}
			tmpl.URIs = append(tmpl.URIs, u)
			continue
		}
		tmpl.DNSNames = append(tmpl.DNSNames, name)
	}
	return nil
}

// window resolves the zero values of a validity period.
func window(notBefore, notAfter time.Time, life time.Duration) (from, to time.Time) {
	if notBefore.IsZero() {
		notBefore = time.Now().Add(-time.Hour)
	}
	if notAfter.IsZero() {
		notAfter = notBefore.Add(life)
	}
	return notBefore, notAfter
}

// newSerial returns a positive random serial number of 127 bits.
func newSerial() (*big.Int, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), 127)
	serial, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, err
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func sign(tmpl, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	if key == nil {
		return nil, errors.New("the CA has no private key")
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("certificate for %q: %w", tmpl.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}
