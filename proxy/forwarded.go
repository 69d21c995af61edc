package proxy

import (
	"net/netip"
	"strings"
)

// hop is one element of a Forwarded header (RFC 7239, section 4).
type hop struct {
	node  string // the "for" parameter, unquoted
	host  string
	proto string
}

// parseForwarded parses the values of Forwarded headers. It says false if anything
// in them is malformed.
func parseForwarded(values []string) ([]hop, bool) {
	var hops []hop
	for _, v := range values {
		p := forwardedParser{rest: v}
		for {
			h, ok := p.element()
			if !ok {
				return nil, false
			}
			if h != (hop{}) {
				hops = append(hops, h)
			}
			if p.rest == "" {
				break
			}
		}
	}
	return hops, true
}

type forwardedParser struct{ rest string }

// element parses parameters up to a comma or the end.
func (p *forwardedParser) element() (hop, bool) {
	var h hop
	seen := 0
	for {
		p.skipSpace()
		if p.rest != "" && p.rest[0] != ';' && p.rest[0] != ',' {
			name, value, ok := p.pair()
			if !ok || !h.set(name, value, &seen) {
				return hop{}, false
			}
			p.skipSpace()
		}
		if p.rest == "" {
			return h, true
		}
		sep := p.rest[0]
		p.rest = p.rest[1:]
		switch sep {
		case ',':
			if strings.TrimLeft(p.rest, " \t") == "" {
				p.rest = "" // an empty element at the end of a list is allowed
			}
			return h, true
		case ';':
		default:
			return hop{}, false
		}
	}
}

// set keeps a parameter; each may come once. A node has no comma and no space
// (RFC 7239, section 6); one that had would be several in X-Forwarded-For.
func (h *hop) set(name, value string, seen *int) bool {
	bit := 0
	switch strings.ToLower(name) {
	case "for":
		if strings.ContainsAny(value, ", \t") {
			return false
		}
		h.node, bit = value, 1
	case "host":
		h.host, bit = value, 2
	case "proto":
		h.proto, bit = value, 4
	case "by":
		bit = 8
	}
	if *seen&bit != 0 {
		return false
	}
	*seen |= bit
	return true
}

func (p *forwardedParser) pair() (name, value string, ok bool) {
	name = p.token()
	if name == "" || !strings.HasPrefix(p.rest, "=") {
		return "", "", false
	}
	p.rest = p.rest[1:]
	if strings.HasPrefix(p.rest, `"`) {
		value, ok = p.quoted()
		return name, value, ok
	}
	value = p.token()
	return name, value, value != ""
}

func (p *forwardedParser) token() string {
	i := 0
	for i < len(p.rest) && isTokenByte(p.rest[i]) {
		i++
	}
	t := p.rest[:i]
	p.rest = p.rest[i:]
	return t
}

func (p *forwardedParser) quoted() (string, bool) {
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case c == '\\':
			i++
			if i == len(p.rest) {
				return "", false
			}
			c = p.rest[i]
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
		b.WriteByte(c)
	}
	return "", false
}

func (p *forwardedParser) skipSpace() { p.rest = strings.TrimLeft(p.rest, " \t") }

// isTokenByte follows RFC 9110, section 5.6.2.
func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// append writes the hop in the form of RFC 7239.
func (h hop) append(b []byte) []byte {
	b = appendParameter(append(b, "for="...), quoteIPv6(h.node))
	if h.host != "" {
		b = appendParameter(append(b, ";host="...), h.host)
	}
	if h.proto != "" {
		b = appendParameter(append(b, ";proto="...), h.proto)
	}
	return b
}

// quoteIPv6 puts a bare IPv6 address into brackets (RFC 7239, section 6).
func quoteIPv6(node string) string {
	if addr, err := netip.ParseAddr(node); err == nil && addr.Is6() {
		return "[" + node + "]"
	}
	return node
}

func appendParameter(b []byte, v string) []byte {
	token := v != ""
	for i := 0; token && i < len(v); i++ {
		token = isTokenByte(v[i])
	}
	if token {
		return append(b, v...)
	}
	b = append(b, '"')
	for i := range len(v) {
		if v[i] == '"' || v[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, v[i])
	}
	return append(b, '"')
}

// parseXForwardedFor splits the values of X-Forwarded-For headers.
func parseXForwardedFor(values []string) []string {
	var nodes []string
	for _, v := range values {
		for node := range strings.SplitSeq(v, ",") {
			if node = strings.Trim(node, " \t"); node != "" {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// nodeAddr returns the address of a node: an address with or without a port, IPv6
// with or without brackets.
func nodeAddr(node string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(node, "["), "]")); err == nil {
		return addr.Unmap().WithZone(""), true
	}
	if ap, err := netip.ParseAddrPort(node); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	return netip.Addr{}, false
}
