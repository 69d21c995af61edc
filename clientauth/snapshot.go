package clientauth

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Snapshot is the rules of a site at one moment. It is immutable.
type Snapshot struct {
	// Mode is what the site asks of clients.
	Mode Mode
	// Pool holds the trust anchors. It is never nil, so it never stands for the
	// roots of the system; after an error it is empty.
	Pool *x509.CertPool
	// Digest identifies the content that decides who may enter: mode,
	// authorities and allow-list, but no CRL. It is the same on every replica
	// with the same content, whatever the files are called.
	Digest [32]byte
	// Rules identifies all that a connection must pass, what no session depends
	// on included: the content of Digest, whether revocation lists must cover
	// and how OCSP decides. The content of the lists is not part of it.
	Rules string
	// Err says why nobody may enter, nil in good times.
	Err error
	// Loaded is when the files were read.
	Loaded time.Time

	anchors map[[32]byte]*x509.Certificate
	allow   *allowList // nil: no allow-list
	crls    *crlSet    // nil: no CRL
	content [32]byte   // of all files, CRLs too
}

// verify applies the rules to a connection at the time now.
func (s *Snapshot) verify(state tls.ConnectionState, now time.Time) error {
	if s.Err != nil {
		return refuse(Unavailable, s.Err)
	}
	if !s.Mode.Verifies() {
		return nil
	}
	if len(state.PeerCertificates) == 0 {
		if s.Mode == Require {
			return refuse(Missing, errors.New("the client sent no certificate"))
		}
		return nil
	}
	leaf := state.PeerCertificates[0]
	chains, err := s.trusted(state.VerifiedChains, now)
	if err != nil {
		return refuse(Invalid, fmt.Errorf("client certificate %s: %w", describe(leaf), err))
	}
	if s.allow != nil && !s.allow.matches(leaf) {
		return refuse(Denied, fmt.Errorf("client certificate %s: not on the allow-list", describe(leaf)))
	}
	if s.crls != nil {
		if err := s.crls.checkChains(chains, now); err != nil {
			return err
		}
	}
	return nil
}

// trusted keeps of the chains that crypto/tls verified, maybe long ago when the
// session began, those that hold now: every certificate in date and the last
// one still a trust anchor.
func (s *Snapshot) trusted(chains [][]*x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	if len(chains) == 0 {
		return nil, errors.New("not verified")
	}
	var errs []error
	var kept [][]*x509.Certificate
	for _, chain := range chains {
		if err := s.holds(chain, now); err != nil {
			errs = append(errs, err)
			continue
		}
		kept = append(kept, chain)
	}
	if len(kept) == 0 {
		return nil, errs[0]
	}
	return kept, nil
}

func (s *Snapshot) holds(chain []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("empty chain")
	}
	for _, c := range chain {
		if now.Before(c.NotBefore) {
			return fmt.Errorf("%s is not valid before %s", describe(c), c.NotBefore.UTC().Format(time.RFC3339))
		}
		if now.After(c.NotAfter) {
			return fmt.Errorf("%s expired at %s", describe(c), c.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	anchor := chain[len(chain)-1]
	if _, ok := s.anchors[sha256.Sum256(anchor.Raw)]; !ok {
		return fmt.Errorf("its authority %s is not trusted here", describe(anchor))
	}
	return nil
}

// digest is what Snapshot.Digest says it is.
func digest(mode Mode, anchors map[[32]byte]*x509.Certificate, allow *allowList) [32]byte {
	h := sha256.New()
	part := func(label string, values ...[]byte) {
		for _, b := range append([][]byte{[]byte(label)}, values...) {
			writePart(h, b)
		}
	}
	part("mode", []byte(mode.String()))
	for _, sum := range slices.SortedFunc(maps.Keys(anchors), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) }) {
		part("anchor", sum[:])
	}
	if allow != nil {
		part("allow-list")
		for _, e := range allow.entries { // sorted
			part("allow", []byte(e.String()))
		}
	}
	return [32]byte(h.Sum(nil))
}

// rules is what Snapshot.Rules says it is.
func (v *Verifier) rules(digest [32]byte) string {
	h := sha256.New()
	writePart(h, digest[:])
	writePart(h, []byte(v.ocsp.String()))
	writePart(h, fmt.Append(nil, len(v.files.crl) > 0, v.allowExpiredCRL))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// writePart writes b so that no two lists of parts come out the same.
func writePart(w io.Writer, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	_, _ = w.Write(n[:])
	_, _ = w.Write(b)
}

// describe names a certificate in an error: its subject, cut to a sane length,
// and its serial number. Both come from a client, so both are quoted.
func describe(c *x509.Certificate) string {
	subject := c.Subject.String()
	const longest = 200
	if len(subject) > longest {
		subject = subject[:longest] + "…"
	}
	return fmt.Sprintf("%q (serial %x)", subject, c.SerialNumber)
}
