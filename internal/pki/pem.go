package pki

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// CertificatePEM encodes certificates, one CERTIFICATE block each.
func CertificatePEM(certs ...*x509.Certificate) []byte {
	var buf bytes.Buffer
	for _, c := range certs {
		buf.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	return buf.Bytes()
}

// ChainPEM encodes the whole chain of cert, leaf first.
func ChainPEM(cert *tls.Certificate) []byte {
	var buf bytes.Buffer
	for _, der := range cert.Certificate {
		buf.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return buf.Bytes()
}

// KeyPEM encodes a private key as PKCS #8.
func KeyPEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// WritePair writes the chain of cert to certFile (mode 0644) and its key to
// keyFile (mode 0600), replacing what was there.
func WritePair(cert *tls.Certificate, certFile, keyFile string) error {
	key, err := KeyPEM(cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, ChainPEM(cert), 0o644)
}

// parsePair reads one PRIVATE KEY and one CERTIFICATE block, in any order.
func parsePair(data []byte) (*x509.Certificate, crypto.Signer, error) {
	var cert *x509.Certificate
	var key crypto.Signer
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		switch block.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			cert = c
		case "PRIVATE KEY":
			k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			s, ok := k.(crypto.Signer)
			if !ok {
				return nil, nil, fmt.Errorf("a key of type %T cannot sign", k)
			}
			key = s
		}
	}
	if cert == nil || key == nil {
		return nil, nil, errors.New("no CERTIFICATE and PRIVATE KEY block found")
	}
	pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !pub.Equal(cert.PublicKey) {
		return nil, nil, errors.New("the private key is not that of the certificate")
	}
	return cert, key, nil
}
