package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// trustList is the one rule of trust: whose forwarding headers are believed.
type trustList []netip.Prefix

func (t trustList) contains(addr netip.Addr) bool {
	for _, p := range t {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// origin is what is known of where a request came from.
type origin struct {
	peer    netip.Addr // invalid if unknown
	trusted bool       // the peer's headers are believed
	nodes   []string   // those before the peer, from the client on
	host    string     // as the client sent it
	proto   string     // as the client used it
}

// originOf applies the rule of trust to the headers of a request.
func (t trustList) originOf(r *http.Request, c *Conn) origin {
	o := origin{peer: c.Client.Addr().Unmap().WithZone(""), host: r.Host, proto: "http"}
	if c.TLS {
		o.proto = "https"
	}
	o.trusted = o.peer.IsValid() && t.contains(o.peer)
	if !o.trusted {
		return o
	}
	if !o.believeXForwarded(r.Header) {
		o.believeForwarded(r.Header)
	}
	return o
}

// believeXForwarded takes what X-Forwarded-* says; false means that it says
// nothing. Where it says anything, Forwarded is not read at all: most proxies set
// the one and know nothing of the other, which then is whatever the client wrote.
func (o *origin) believeXForwarded(h http.Header) bool {
	o.nodes = parseXForwardedFor(h["X-Forwarded-For"])
	host, proto := firstOf(h["X-Forwarded-Host"]), firstOf(h["X-Forwarded-Proto"])
	o.believe(host, proto)
	return len(o.nodes) > 0 || host != "" || proto != ""
}

func (o *origin) believeForwarded(h http.Header) {
	hops, ok := parseForwarded(h["Forwarded"])
	if !ok || len(hops) == 0 {
		return
	}
	o.believe(hops[0].host, hops[0].proto)
	for _, hp := range hops {
		o.nodes = append(o.nodes, orUnknown(hp.node))
	}
}

// believe takes host and protocol from a trusted peer where they make sense.
func (o *origin) believe(host, proto string) {
	if _, ok := canonicalHost(host); ok {
		o.host = host
	}
	if proto = strings.ToLower(proto); proto == "http" || proto == "https" {
		o.proto = proto
	}
}

// firstOf returns the first member of a comma-separated header.
func firstOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(values[0], ",")
	return strings.Trim(first, " \t")
}

// client is the nearest address that is not a trusted proxy, or the farthest one
// that is known.
func (t trustList) client(o origin) netip.Addr {
	client := o.peer
	for i := len(o.nodes) - 1; i >= 0 && t.contains(client); i-- {
		addr, ok := nodeAddr(o.nodes[i])
		if !ok {
			break
		}
		client = addr
	}
	return client
}

// set writes the forwarding headers for the backend, both families from the same
// values, so that they tell the same. In Forwarded the first hop has host and
// protocol, as X-Forwarded-* has no more to tell.
func (o origin) set(h http.Header) {
	peer := orUnknown("")
	if o.peer.IsValid() {
		peer = o.peer.String()
	}
	nodes := append(slices.Clip(o.nodes), peer)
	buf := make([]byte, 0, 96)
	for i, node := range nodes {
		hp := hop{node: node}
		if i == 0 {
			hp.host, hp.proto = o.host, o.proto
		} else {
			buf = append(buf, ", "...)
		}
		buf = hp.append(buf)
	}
	h["Forwarded"] = []string{string(buf)}
	h["X-Forwarded-For"] = []string{strings.Join(nodes, ", ")}
	h["X-Forwarded-Host"] = []string{o.host}
	h["X-Forwarded-Proto"] = []string{o.proto}
}

// orUnknown names nodes that have no name (RFC 7239, section 6).
func orUnknown(node string) string {
	if node == "" {
		return "unknown"
	}
	return node
}
