package clientauth

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AllowEntry is one line of an allow-list: a property that a certificate must
// have to enter. Make one with [ParseAllow].
type AllowEntry struct {
	kind   string
	value  string
	prefix netip.Prefix // of kind ip
	sum    [32]byte     // of kind sha256
}

// String is the entry in its normal form, which [ParseAllow] reads back.
func (e AllowEntry) String() string { return e.kind + ":" + e.value }

// ParseAllow reads one entry, a kind and a value with a colon between. An
// entry matches the leaf of the client's chain, never a certificate above it.
//
//	dns:client.example.com    a DNS name among the subject alternative names
//	dns:*.example.com         the same, one label in place of the star
//	email:ann@example.com     an email address; email:*@example.com any of a domain
//	uri:spiffe://td/ns/web    a URI; a final /* matches everything below
//	ip:192.0.2.0/24           an IP address or network
//	cn:ann                    the subject's common name
//	ou:payments               one of the subject's organizational units
//	sha256:9f86…              the SHA-256 fingerprint of the certificate, in
//	                          hexadecimal, colons allowed
//
// DNS names and the domains of email addresses are compared without regard to
// case, everything else byte for byte.
func ParseAllow(entry string) (AllowEntry, error) {
	kind, value, ok := strings.Cut(strings.TrimSpace(entry), ":")
	kind, value = strings.ToLower(strings.TrimSpace(kind)), strings.TrimSpace(value)
	if !ok || value == "" {
		return AllowEntry{}, fmt.Errorf("allow-list entry %q: must be kind:value, for example dns:client.example.com", clip(entry))
	}
	if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return AllowEntry{}, fmt.Errorf("allow-list entry %q: has characters that no certificate's name can have", clip(entry))
	}
	e := AllowEntry{kind: kind, value: value}
	if err := e.normalise(); err != nil {
		return AllowEntry{}, fmt.Errorf("allow-list entry %q: %w", clip(entry), err)
	}
	return e, nil
}

// normalise brings the value into its normal form and checks it.
func (e *AllowEntry) normalise() error {
	switch e.kind {
	case "dns":
		e.value = strings.TrimSuffix(strings.ToLower(e.value), ".")
		return checkDNS(strings.TrimPrefix(e.value, "*."))
	case "email":
		local, domain, ok := cutLast(e.value, '@')
		if !ok || local == "" || domain == "" {
			return errors.New("an email address has an @ with something on both sides")
		}
		e.value = local + "@" + strings.ToLower(domain)
	case "uri":
		if strings.Contains(strings.TrimSuffix(e.value, "/*"), "*") {
			return errors.New("a star may only stand at the end, after a slash")
		}
	case "ip":
		return e.parseIP()
	case "sha256":
		return e.parseFingerprint()
	case "cn", "ou":
	default:
		return errors.New("the kind must be dns, email, uri, ip, cn, ou or sha256")
	}
	return nil
}

// checkDNS refuses what no certificate can have as a DNS name.
func checkDNS(name string) error {
	if name == "" || strings.Contains(name, "*") {
		return errors.New("a star may only stand for the whole first label")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" {
			return errors.New("a DNS name has no empty label")
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return fmt.Errorf("%q is no label of a DNS name; an internationalised one is written as xn--…", clip(label))
		}
	}
	return nil
}

func (e *AllowEntry) parseIP() error {
	if addr, err := netip.ParseAddr(e.value); err == nil {
		addr = addr.Unmap()
		if addr.Zone() != "" {
			return errors.New("an address in a certificate has no zone")
		}
		e.prefix = netip.PrefixFrom(addr, addr.BitLen())
		e.value = e.prefix.String()
		return nil
	}
	prefix, err := netip.ParsePrefix(e.value)
	if err != nil {
		return errors.New("must be an IP address or a network such as 192.0.2.0/24")
	}
	if prefix != prefix.Masked() {
		return fmt.Errorf("the network has bits set beyond its length: did you mean %s?", prefix.Masked())
	}
	e.prefix, e.value = prefix, prefix.String()
	return nil
}

func (e *AllowEntry) parseFingerprint() error {
	sum, err := hex.DecodeString(strings.ReplaceAll(e.value, ":", ""))
	if err != nil || len(sum) != sha256.Size {
		return errors.New("a SHA-256 fingerprint has 64 hexadecimal digits")
	}
	e.sum = [32]byte(sum)
	e.value = hex.EncodeToString(sum)
	return nil
}

// matches reports whether the certificate has the entry's property.
func (e *AllowEntry) matches(c *x509.Certificate) bool {
	switch e.kind {
	case "dns":
		return slices.ContainsFunc(c.DNSNames, e.matchesDNS)
	case "email":
		return slices.ContainsFunc(c.EmailAddresses, e.matchesEmail)
	case "uri":
		for _, u := range c.URIs {
			if e.matchesURI(u.String()) {
				return true
			}
		}
	case "ip":
		for _, ip := range c.IPAddresses {
			if addr, ok := netip.AddrFromSlice(ip); ok && e.prefix.Contains(addr.Unmap()) {
				return true
			}
		}
	case "cn":
		return c.Subject.CommonName == e.value
	case "ou":
		return slices.Contains(c.Subject.OrganizationalUnit, e.value)
	case "sha256":
		return sha256.Sum256(c.Raw) == e.sum
	}
	return false
}

func (e *AllowEntry) matchesDNS(name string) bool {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == e.value {
		return true
	}
	domain, wild := strings.CutPrefix(e.value, "*")
	if !wild {
		return false
	}
	label, ok := strings.CutSuffix(name, domain)
	return ok && label != "" && label != "*" && !strings.Contains(label, ".")
}

func (e *AllowEntry) matchesEmail(address string) bool {
	local, domain, ok := cutLast(address, '@')
	if !ok || local == "" {
		return false
	}
	wantLocal, wantDomain, _ := cutLast(e.value, '@')
	return strings.ToLower(domain) == wantDomain && (wantLocal == "*" || local == wantLocal)
}

func (e *AllowEntry) matchesURI(uri string) bool {
	if below, ok := strings.CutSuffix(e.value, "*"); ok {
		// A path with dot segments could climb out of what the entry means.
		return strings.HasPrefix(uri, below) && len(uri) > len(below) && !hasDotSegment(uri)
	}
	return uri == e.value
}

func hasDotSegment(uri string) bool {
	for segment := range strings.SplitSeq(uri, "/") {
		switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
		case ".", "..":
			return true
		}
	}
	return false
}

// allowList is a set of entries of which one must match.
type allowList struct{ entries []AllowEntry }

func (a *allowList) matches(c *x509.Certificate) bool {
	for i := range a.entries {
		if a.entries[i].matches(c) {
			return true
		}
	}
	return false
}

// compact sorts the entries and drops repetitions, so that neither order nor
// repetition shows in a digest.
func (a *allowList) compact() {
	slices.SortFunc(a.entries, func(x, y AllowEntry) int { return cmp.Compare(x.String(), y.String()) })
	a.entries = slices.Compact(a.entries)
}

// parseAllowFile reads a file of entries and reports every bad line.
func parseAllowFile(data []byte) ([]AllowEntry, error) {
	var entries []AllowEntry
	var errs []error
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 64<<10)
	number := 0
	for lines.Scan() {
		number++
		text := stripComment(lines.Text())
		if text == "" {
			continue
		}
		e, err := ParseAllow(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		entries = append(entries, e)
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("line %d: %w", number+1, err))
	}
	return entries, errors.Join(errs...)
}

// stripComment cuts a comment off a line. A # begins one at the start of the
// line or after white space; inside a value it is part of the value.
func stripComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
			break
		}
	}
	return strings.TrimSpace(line)
}

// cutLast splits s around the last sep.
func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// clip keeps a quoted value in an error short.
func clip(s string) string {
	const longest = 100
	if len(s) > longest {
		return s[:longest] + "…"
	}
	return s
}
