package proxy

import (
	"fmt"
	"net/netip"
	"strings"
)

// canonicalHost turns a Host header into the form that sites are listed under:
// no port, no brackets, lower case, no trailing dot. It says false for what is not
// a host, empty ones included. It allocates only to change upper case.
func canonicalHost(host string) (string, bool) {
	if strings.HasPrefix(host, "[") {
		return canonicalIPv6(host)
	}
	if i := strings.IndexByte(host, ':'); i >= 0 {
		if !isPort(host[i+1:]) {
			return "", false
		}
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return "", false
	}
	for i := range len(host) {
		if !isHostByte(host[i]) {
			return "", false
		}
	}
	return strings.ToLower(host), true
}

func canonicalIPv6(host string) (string, bool) {
	inner, port, ok := strings.Cut(host[1:], "]")
	if !ok || port != "" && (port[0] != ':' || !isPort(port[1:])) {
		return "", false
	}
	addr, err := netip.ParseAddr(inner)
	if err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", false
	}
	return addr.String(), true
}

// isPort accepts the empty port, which RFC 3986 (section 3.2.3) allows.
func isPort(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return len(s) <= 5
}

func isHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}

// hostTable finds the site of a host.
type hostTable struct {
	exact    map[string]*site
	wildcard map[string]*site // keyed by what follows the asterisk, ".example.com"
	any      *site
}

func newHostTable() hostTable {
	return hostTable{exact: map[string]*site{}, wildcard: map[string]*site{}}
}

// add lists a site under a host in canonical form.
func (t *hostTable) add(host string, s *site) error {
	table, key := t.exact, host
	switch {
	case host == "*":
		if t.any != nil {
			return fmt.Errorf("host %q belongs to site %q already", host, t.any.name)
		}
		t.any = s
		return nil
	case strings.HasPrefix(host, "*."):
		table, key = t.wildcard, host[1:]
		if c, ok := canonicalHost(host[2:]); !ok || c != host[2:] {
			return fmt.Errorf("host %q is not a name in lower-case ASCII", host)
		}
	case !isCanonicalHost(host):
		return fmt.Errorf("host %q is not a name in lower-case ASCII nor an IP address", host)
	}
	if other := table[key]; other != nil {
		return fmt.Errorf("host %q belongs to site %q already", host, other.name)
	}
	table[key] = s
	return nil
}

func isCanonicalHost(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String() == host
	}
	c, ok := canonicalHost(host)
	return ok && c == host
}

// find returns the site of a canonical host, nil if there is none.
func (t *hostTable) find(host string) *site {
	if s := t.exact[host]; s != nil {
		return s
	}
	if i := strings.IndexByte(host, '.'); i > 0 && len(t.wildcard) > 0 {
		if s := t.wildcard[host[i:]]; s != nil {
			return s
		}
	}
	return t.any
}
