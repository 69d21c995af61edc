package clientauth

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// clockSkew is how far in the future a list's thisUpdate may lie.
const clockSkew = 5 * time.Minute

// crlSet is all lists of a site.
type crlSet struct {
	byIssuer     map[string][]*crl // by the issuer's raw name, newest first
	anchors      map[string][]*x509.Certificate
	allowExpired bool
}

// newCRLSet orders the lists and checks what can be checked before a client
// comes: the signature of each list whose issuer is a trust anchor, and that
// each delta has a list to add to.
func newCRLSet(lists []*crl, anchors map[[32]byte]*x509.Certificate, allowExpired bool) (*crlSet, error) {
	s := &crlSet{
		byIssuer:     make(map[string][]*crl),
		anchors:      make(map[string][]*x509.Certificate),
		allowExpired: allowExpired,
	}
	for _, c := range anchors {
		s.anchors[string(c.RawSubject)] = append(s.anchors[string(c.RawSubject)], c)
	}
	for _, c := range lists {
		issuer := string(c.list.RawIssuer)
		s.byIssuer[issuer] = append(s.byIssuer[issuer], c)
	}
	var errs []error
	for issuer, lists := range s.byIssuer {
		slices.SortStableFunc(lists, newestFirst)
		for _, c := range lists {
			errs = append(errs, checkSigner(c, s.anchors[issuer]), checkBase(c, lists))
		}
		markDeciding(lists, s.anchors[issuer])
	}
	return s, errors.Join(errs...)
}

// markDeciding marks the lists of one issuer's name, newest first, whose dates
// count in check: of each scope the newest complete list, or the delta that
// completes it.
func markDeciding(lists []*crl, anchors []*x509.Certificate) {
	for i, complete := range lists {
		if complete.base != nil || slices.ContainsFunc(lists[:i], func(c *crl) bool {
			return c.base == nil && c.scope.raw == complete.scope.raw && sameSigner(c, complete, anchors)
		}) {
			continue
		}
		deciding := complete
		for _, d := range lists {
			if d.completes(complete) && sameSigner(d, complete, anchors) {
				deciding = d
				break
			}
		}
		deciding.decides = true
	}
}

// sameSigner reports whether one key signed both lists, as far as is known
// before a client sends its issuer along.
func sameSigner(a, b *crl, anchors []*x509.Certificate) bool {
	for _, anchor := range anchors {
		if a.signedBy(anchor) == nil {
			return b.signedBy(anchor) == nil
		}
	}
	return len(a.list.AuthorityKeyId) > 0 && bytes.Equal(a.list.AuthorityKeyId, b.list.AuthorityKeyId)
}

// completes reports whether a list is a delta that adds to another one, which is
// not newer.
func (c *crl) completes(complete *crl) bool {
	return c.base != nil && complete.list.Number != nil && c.scope.raw == complete.scope.raw &&
		c.list.Number.Cmp(complete.list.Number) >= 0 && c.base.Cmp(complete.list.Number) <= 0
}

// newestFirst orders by CRL number, then by thisUpdate.
func newestFirst(a, b *crl) int {
	if a.list.Number != nil && b.list.Number != nil {
		if order := b.list.Number.Cmp(a.list.Number); order != 0 {
			return order
		}
	}
	return b.list.ThisUpdate.Compare(a.list.ThisUpdate)
}

// checkSigner verifies a list with the trust anchors of its issuer's name. With
// none of that name the issuer is an authority that clients send along; its
// signature is checked when one does.
func checkSigner(c *crl, anchors []*x509.Certificate) error {
	var last error
	for _, anchor := range anchors {
		if last = c.signedBy(anchor); last == nil {
			return nil
		}
	}
	return last
}

// checkBase finds a delta list that no list here can be completed with: what it
// would add is known to be missing.
func checkBase(delta *crl, lists []*crl) error {
	if delta.base == nil {
		return nil
	}
	var have *big.Int
	for _, c := range lists {
		if c.base != nil || c.scope.raw != delta.scope.raw || !bytes.Equal(c.list.AuthorityKeyId, delta.list.AuthorityKeyId) {
			continue
		}
		if c.list.Number != nil && c.list.Number.Cmp(delta.base) >= 0 {
			return nil
		}
		have = c.list.Number
	}
	if have == nil {
		return fmt.Errorf("crl_file %q: is a delta list and its complete list, number %s or later, is not among the files", delta.file, delta.base)
	}
	return fmt.Errorf("crl_file %q: is a delta list for a complete list of number %s or later, but the newest one here is %s", delta.file, delta.base, have)
}

// checkChains refuses if any chain has a revoked certificate, or if no chain is
// wholly covered by current lists.
func (s *crlSet) checkChains(chains [][]*x509.Certificate, now time.Time) error {
	var uncovered error
	covered := false
	for _, chain := range chains {
		err := s.checkChain(chain, now)
		if e, ok := errors.AsType[*Error](err); ok && e.Reason == Revoked {
			return err
		}
		if err == nil {
			covered = true
		}
		uncovered = cmp.Or(uncovered, err)
	}
	if covered {
		return nil
	}
	return uncovered
}

func (s *crlSet) checkChain(chain []*x509.Certificate, now time.Time) error {
	var uncovered error
	for i := range len(chain) - 1 {
		err := s.check(chain[i], chain[i+1], now)
		if e, ok := errors.AsType[*Error](err); ok && e.Reason == Revoked {
			return err
		}
		uncovered = cmp.Or(uncovered, err)
	}
	return cmp.Or(s.checkAnchor(chain[len(chain)-1], now), uncovered)
}

// checkAnchor refuses a trust anchor that a list of another trust anchor calls
// revoked. An anchor needs no list to be trusted.
func (s *crlSet) checkAnchor(anchor *x509.Certificate, now time.Time) error {
	for _, issuer := range s.anchors[string(anchor.RawIssuer)] {
		if issuer.Equal(anchor) {
			continue
		}
		err := s.check(anchor, issuer, now)
		if e, ok := errors.AsType[*Error](err); ok && e.Reason == Revoked {
			return err
		}
	}
	return nil
}

// check looks a certificate up in the lists of its issuer.
func (s *crlSet) check(c, issuer *x509.Certificate, now time.Time) error {
	why := fmt.Errorf("no CRL of its issuer %s is among the files", describe(issuer))
	covered := false
	seen := make(map[string]bool)
	lists := s.byIssuer[string(c.RawIssuer)]
	for _, complete := range lists {
		if complete.base != nil || seen[complete.scope.raw] {
			continue
		}
		if err := complete.signedBy(issuer); err != nil {
			why = err
			continue
		}
		seen[complete.scope.raw] = true // older lists of the same scope are superseded
		delta := newestDelta(lists, complete, issuer)
		if entry, file, ok := lookup(complete, delta, c.SerialNumber); ok {
			return refuse(Revoked, fmt.Errorf("client certificate chain: %s was revoked at %s, says crl_file %q",
				describe(c), entry.revoked.UTC().Format(time.RFC3339), file))
		}
		if !complete.scope.covers(c) {
			continue
		}
		if err := s.current(complete, delta, now); err != nil {
			why = err
			continue
		}
		covered = true
	}
	if covered {
		return nil
	}
	return refuse(Unchecked, fmt.Errorf("client certificate chain: %s cannot be checked for revocation: %w", describe(c), why))
}

// newestDelta finds the newest delta list that completes a list, nil if there
// is none or the list is newer.
func newestDelta(lists []*crl, complete *crl, issuer *x509.Certificate) *crl {
	for _, d := range lists {
		if d.completes(complete) && d.signedBy(issuer) == nil {
			return d
		}
	}
	return nil
}

// lookup finds a serial number in a list completed by a delta, which has the
// last word.
func lookup(complete, delta *crl, serial *big.Int) (crlEntry, string, bool) {
	key := serialKey(serial)
	if delta != nil {
		if e, ok := delta.entries[key]; ok {
			return e, delta.file, e.reason != reasonRemoveFromCRL
		}
	}
	e, ok := complete.entries[key]
	return e, complete.file, ok
}

// current reports whether a list, completed by a delta, speaks for now. With a
// delta it is the delta that must be current, RFC 5280, section 6.3.3 (a).
func (s *crlSet) current(complete, delta *crl, now time.Time) error {
	newest := complete
	if delta != nil {
		newest = delta
	}
	if s.allowExpired && !now.Before(newest.list.NextUpdate) {
		return nil
	}
	return newest.current(now)
}

// current reports whether a list alone speaks for now.
func (c *crl) current(now time.Time) error {
	switch this, next := c.list.ThisUpdate, c.list.NextUpdate; {
	case this.After(now.Add(clockSkew)):
		return fmt.Errorf("crl_file %q: its thisUpdate %s is in the future", c.file, this.UTC().Format(time.RFC3339))
	case next.IsZero():
		return fmt.Errorf("crl_file %q: has no nextUpdate, so nobody can tell whether it is current", c.file)
	case !now.Before(next):
		return fmt.Errorf("crl_file %q: is out of date since %s", c.file, next.UTC().Format(time.RFC3339))
	}
	return nil
}

// status describes every list, sorted by file and issuer.
func (s *crlSet) status(now time.Time) []CRLStatus {
	var all []CRLStatus
	for _, lists := range s.byIssuer {
		for _, c := range lists {
			st := CRLStatus{
				File:       c.file,
				Issuer:     c.list.Issuer.String(),
				Delta:      c.base != nil,
				ThisUpdate: c.list.ThisUpdate,
				NextUpdate: c.list.NextUpdate,
				Entries:    len(c.entries),
				Current:    c.current(now) == nil,
				Decides:    c.decides,
			}
			if c.list.Number != nil {
				st.Number = c.list.Number.String()
			}
			all = append(all, st)
		}
	}
	slices.SortFunc(all, func(a, b CRLStatus) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Issuer, b.Issuer), cmp.Compare(a.Number, b.Number))
	})
	return all
}
