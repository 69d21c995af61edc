package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/youmark/pkcs8"
)

var (
	errEncrypted       = errors.New("the key is encrypted: passphrase_file is missing")
	errWrongPassphrase = errors.New("the passphrase does not open the key")
	errEncryption      = errors.New("the encryption of the key is not supported: \"openssl pkcs8 -topk8\" writes one that is")
	errNoKey           = errors.New("no private key in it")
	errNoCertificate   = errors.New("no certificate in it")
)

// parseCertificates returns all certificates of a PEM file in its order;
// other blocks and text between them are passed over.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		der := block.Bytes
		switch block.Type {
		case "CERTIFICATE", "X509 CERTIFICATE":
		case "TRUSTED CERTIFICATE":
			der = withoutTrust(der)
		default:
			continue
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errNoCertificate
	}
	return certs, nil
}

// withoutTrust returns the certificate in a block of OpenSSL's own, in which
// settings of trust follow it.
func withoutTrust(der []byte) []byte {
	var first asn1.RawValue
	if _, err := asn1.Unmarshal(der, &first); err != nil {
		return der // for the parser to complain about
	}
	return first.FullBytes
}

// parseKey returns the one private key of a PEM file: PKCS#8, PKCS#1 or SEC 1,
// in clear or encrypted with the passphrase.
func parseKey(data, passphrase []byte) (crypto.Signer, error) {
	var key crypto.Signer
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if !isKeyBlock(block.Type) {
			continue
		}
		if key != nil {
			return nil, errors.New("more than one private key in it")
		}
		k, err := parseKeyBlock(block, passphrase)
		if err != nil {
			return nil, err
		}
		key = k
	}
	if key == nil {
		return nil, errNoKey
	}
	return key, nil
}

func isKeyBlock(blockType string) bool {
	switch blockType {
	case "PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
		return true
	}
	return false
}

func parseKeyBlock(block *pem.Block, passphrase []byte) (crypto.Signer, error) {
	if block.Type == "ENCRYPTED PRIVATE KEY" {
		if len(passphrase) == 0 {
			return nil, errEncrypted
		}
		if err := checkKDF(block.Bytes, maxIterations); err != nil {
			return nil, err
		}
		key, err := pkcs8.ParsePKCS8PrivateKey(block.Bytes, passphrase)
		if err != nil {
			return nil, pkcs8Error(err)
		}
		return usableKey(key)
	}
	der := block.Bytes
	// The encryption of PEM itself (RFC 1421) is weak, but files of old
	// OpenSSL versions have it, and refusing them would make people store the
	// key in clear.
	//lint:ignore SA1019 see above
	if x509.IsEncryptedPEMBlock(block) { //nolint:staticcheck // SA1019: see above
		if len(passphrase) == 0 {
			return nil, errEncrypted
		}
		var err error
		//lint:ignore SA1019 see above
		der, err = x509.DecryptPEMBlock(block, passphrase) //nolint:staticcheck // SA1019: see above
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errWrongPassphrase, err)
		}
	}
	return parseKeyDER(der)
}

// pkcs8Error tells a wrong passphrase from an encryption that the library does
// not know.
func pkcs8Error(err error) error {
	if err.Error() == "pkcs8: incorrect password" {
		return errWrongPassphrase
	}
	return fmt.Errorf("%w (%w)", errEncryption, err)
}

// parseKeyDER tries all encodings, because the block's type does not always
// tell the truth.
func parseKeyDER(der []byte) (crypto.Signer, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err == nil {
		return usableKey(key)
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return usableKey(key)
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return usableKey(key)
	}
	return nil, fmt.Errorf("private key: %w", err)
}

// usableKey refuses keys that crypto/tls cannot sign handshakes with.
func usableKey(key any) (crypto.Signer, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < 1024 {
			return nil, fmt.Errorf("the RSA key of %d bits is too short: at least 1024 are needed, and 2048 are advised", k.N.BitLen())
		}
		return k, nil
	case *ecdsa.PrivateKey:
		if kindOf(k.Public()) == kindUnknown {
			return nil, fmt.Errorf("keys on the curve %s cannot be used in TLS", k.Curve.Params().Name)
		}
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, fmt.Errorf("keys of type %T cannot be used in TLS", key)
}
