package certs

import (
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const maxName = 253

// canonicalName is the form in which names are compared: lower case, ASCII,
// no final dot. It allocates nothing for a name that has this form already.
// What is not a name at all, such as "a b", is not ok.
func canonicalName(name string) (_ string, ok bool) {
	// Longer ones are not names (RFC 1035, section 2.3.4), and converting them
	// would take time that grows with the square of the length.
	if name = strings.TrimSuffix(name, "."); len(name) > maxName {
		return "", false
	}
	lower := true
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 0x80:
			ascii, err := idna.Lookup.ToASCII(name)
			if err != nil || ascii == "" || len(ascii) > maxName || !utf8.ValidString(name) {
				return "", false
			}
			return ascii, true
		case c >= 'A' && c <= 'Z':
			lower = false
		case c == '.' || c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z':
		default:
			return "", false
		}
	}
	if !lower {
		name = strings.ToLower(name)
	}
	return name, true
}

// canonicalHost is canonicalName for names of the configuration: it also takes
// wildcards and IP addresses.
func canonicalHost(host string) (_ string, ok bool) {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return addr.Unmap().WithZone("").String(), true
	}
	base, wild := strings.CutPrefix(host, "*.")
	name, ok := canonicalName(base)
	if !ok || !validHostname(name) {
		return "", false
	}
	if wild {
		return "*." + name, true
	}
	return name, true
}

// validHostname reports whether a canonical name can be that of a host
// (RFC 1123, with underscores let pass).
func validHostname(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// covers reports whether pattern, a canonical name or wildcard, stands for
// the canonical name.
func covers(pattern, name string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		i := strings.IndexByte(name, '.')
		return i > 0 && name[i:] == suffix
	}
	return pattern == name
}

// namesOf returns the canonical names and addresses that a certificate
// carries. A certificate without any, as old private CAs made them, has its
// common name.
func namesOf(leaf *x509.Certificate) (names []string, ips []netip.Addr) {
	dns := leaf.DNSNames
	if len(dns) == 0 && len(leaf.IPAddresses) == 0 && leaf.Subject.CommonName != "" {
		dns = []string{leaf.Subject.CommonName}
	}
	for _, name := range dns {
		name, ok := canonicalHost(name)
		switch {
		case !ok:
		case net.ParseIP(name) != nil:
			ips = append(ips, netip.MustParseAddr(name))
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	for _, ip := range leaf.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			ips = append(ips, addr.Unmap())
		}
	}
	return names, ips
}
