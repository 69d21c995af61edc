package clientauth

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// Extensions of lists and their entries, RFC 5280, sections 5.2 and 5.3.
const (
	oidCRLNumber      = "2.5.29.20"
	oidReasonCode     = "2.5.29.21"
	oidDeltaIndicator = "2.5.29.27"
	oidIssuingPoint   = "2.5.29.28"
	oidAuthorityKeyID = "2.5.29.35"
)

// reasonRemoveFromCRL marks an entry of a delta list that takes a certificate
// off the list, RFC 5280, section 5.3.1.
const reasonRemoveFromCRL = 8

// crl is one certificate revocation list, complete or delta.
type crl struct {
	file    string
	list    *x509.RevocationList // without its entries
	base    *big.Int             // of a delta: the least number of the list it adds to
	scope   crlScope
	entries map[string]crlEntry // by the serial number's bytes
	decides bool                // its dates are those that count; set by newCRLSet

	mu       sync.Mutex
	verified map[[32]byte]error // by the issuer's key: what its signature check said
}

type crlEntry struct {
	revoked time.Time
	reason  int
}

// parseCRLFile reads the lists of a file, PEM or DER.
func parseCRLFile(file string, data []byte) ([]*crl, error) {
	ders := [][]byte{data}
	if bytes.Contains(data, []byte("-----BEGIN ")) {
		var err error
		if ders, err = pemBlocks(data, "X509 CRL"); err != nil {
			return nil, err
		}
	}
	var lists []*crl
	for i, der := range ders {
		c, err := parseCRL(der)
		if err != nil {
			if len(ders) > 1 {
				err = fmt.Errorf("list %d: %w", i+1, err)
			}
			return nil, err
		}
		c.file = file
		lists = append(lists, c)
	}
	return lists, nil
}

// parseCRL reads one list from DER. A list with a critical extension that this
// package does not know is refused, RFC 5280, section 5.2.
func parseCRL(der []byte) (*crl, error) {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, fmt.Errorf("not a certificate revocation list: %w", err)
	}
	c := &crl{list: list, verified: make(map[[32]byte]error)}
	for _, ext := range list.Extensions {
		switch ext.Id.String() {
		case oidCRLNumber, oidAuthorityKeyID:
		case oidDeltaIndicator:
			if c.base, err = parseBaseNumber(ext.Value); err != nil {
				return nil, err
			}
		case oidIssuingPoint:
			if c.scope, err = parseScope(ext.Value); err != nil {
				return nil, err
			}
		default:
			if ext.Critical {
				return nil, fmt.Errorf("has a critical extension %s that is not supported", ext.Id)
			}
		}
	}
	if c.base != nil && list.Number == nil {
		return nil, errors.New("is a delta list without a CRL number")
	}
	if err := c.takeEntries(); err != nil {
		return nil, err
	}
	return c, nil
}

// takeEntries moves the entries into the map, which is all that is kept of them.
func (c *crl) takeEntries() error {
	c.entries = make(map[string]crlEntry, len(c.list.RevokedCertificateEntries))
	for i := range c.list.RevokedCertificateEntries {
		e := &c.list.RevokedCertificateEntries[i]
		for _, ext := range e.Extensions {
			if ext.Critical && ext.Id.String() != oidReasonCode {
				return fmt.Errorf("has an entry with a critical extension %s that is not supported", ext.Id)
			}
		}
		c.entries[serialKey(e.SerialNumber)] = crlEntry{revoked: e.RevocationTime, reason: e.ReasonCode}
	}
	c.list.RevokedCertificateEntries = nil
	//lint:ignore SA1019 the parser fills the old field too, and it would hold the memory
	c.list.RevokedCertificates = nil
	return nil
}

// signedBy checks the list's signature against a certificate, once.
func (c *crl) signedBy(issuer *x509.Certificate) error {
	key := sha256.Sum256(issuer.Raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	err, known := c.verified[key]
	if !known {
		err = c.list.CheckSignatureFrom(issuer)
		if err != nil {
			err = fmt.Errorf("crl_file %q: signature does not verify with %s: %w", c.file, describe(issuer), err)
		}
		if len(c.verified) < maxVerified {
			c.verified[key] = err
		}
	}
	return err
}

// maxVerified bounds the remembered signature checks of one list. Only
// authorities of verified chains with the list's issuer name come into it.
const maxVerified = 64

func serialKey(serial *big.Int) string { return string(serial.Bytes()) }

func parseBaseNumber(der []byte) (*big.Int, error) {
	n := new(big.Int)
	if rest, err := asn1.Unmarshal(der, &n); err != nil || len(rest) > 0 {
		return nil, errors.New("has a malformed delta CRL indicator")
	}
	return n, nil
}

// crlScope is which certificates a list speaks for: its issuing distribution
// point, RFC 5280, section 5.2.5. The zero value is all of the issuer's.
type crlScope struct {
	raw       string // the extension, to tell scopes apart
	onlyUser  bool
	onlyCA    bool
	points    []string // URIs; empty: no distribution point named
	hasPoints bool
}

// covers reports whether a certificate is in the scope.
func (s *crlScope) covers(c *x509.Certificate) bool {
	isCA := c.BasicConstraintsValid && c.IsCA
	if s.onlyUser && isCA || s.onlyCA && !isCA {
		return false
	}
	if !s.hasPoints {
		return true
	}
	for _, have := range c.CRLDistributionPoints {
		for _, point := range s.points {
			if have == point {
				return true
			}
		}
	}
	return false
}

// Context-specific tags of IssuingDistributionPoint, of the
// DistributionPointName in its first field, and of a GeneralName that is a URI.
const (
	contextSpecific = 0x80
	constructed     = 0x20

	tagPoint       cbasn1.Tag = contextSpecific | constructed
	tagOnlyUser    cbasn1.Tag = contextSpecific | 1
	tagOnlyCA      cbasn1.Tag = contextSpecific | 2
	tagSomeReasons cbasn1.Tag = contextSpecific | 3
	tagIndirect    cbasn1.Tag = contextSpecific | 4
	tagOnlyAttr    cbasn1.Tag = contextSpecific | 5

	tagFullName cbasn1.Tag = contextSpecific | constructed
	tagURI      cbasn1.Tag = contextSpecific | 6
)

var errScope = errors.New("has a malformed issuing distribution point")

func parseScope(der []byte) (crlScope, error) {
	s := crlScope{raw: string(der)}
	input := cryptobyte.String(der)
	var seq cryptobyte.String
	if !input.ReadASN1(&seq, cbasn1.SEQUENCE) || !input.Empty() {
		return s, errScope
	}
	for !seq.Empty() {
		var field cryptobyte.String
		var tag cbasn1.Tag
		if !seq.ReadAnyASN1(&field, &tag) {
			return s, errScope
		}
		if err := s.setField(tag, field); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *crlScope) setField(tag cbasn1.Tag, field cryptobyte.String) error {
	if tag == tagPoint {
		return s.setPoints(field)
	}
	if tag == tagSomeReasons {
		return errors.New("covers only some revocation reasons, which is not supported")
	}
	if len(field) != 1 || field[0] != 0 && field[0] != 0xff {
		return errScope
	}
	set := field[0] != 0
	switch tag {
	case tagOnlyUser:
		s.onlyUser = set
	case tagOnlyCA:
		s.onlyCA = set
	case tagIndirect:
		if set {
			return errors.New("is an indirect list, which is not supported: use the list of the certificates' own issuer")
		}
	case tagOnlyAttr:
		if set {
			return errors.New("covers only attribute certificates")
		}
	default:
		return errScope
	}
	return nil
}

// setPoints reads a DistributionPointName of which only URIs are used: a list
// whose point has another form covers nothing, since it cannot be matched.
func (s *crlScope) setPoints(field cryptobyte.String) error {
	s.hasPoints = true
	var names cryptobyte.String
	var tag cbasn1.Tag
	if !field.ReadAnyASN1(&names, &tag) || !field.Empty() {
		return errScope
	}
	if tag != tagFullName {
		return nil
	}
	for !names.Empty() {
		var name cryptobyte.String
		if !names.ReadAnyASN1(&name, &tag) {
			return errScope
		}
		if tag == tagURI {
			s.points = append(s.points, string(name))
		}
	}
	return nil
}
