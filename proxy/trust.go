package proxy

import (
	"net/http"
	"net/netip"
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
	hops    []hop      // the same as Forwarded said it; nil if it did not
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
	o.nodes = parseXForwardedFor(r.Header["X-Forwarded-For"])
	if hops, ok := parseForwarded(r.Header["Forwarded"]); ok && len(hops) > 0 {
		o.hops = hops
		o.believe(hops[0].host, hops[0].proto)
		if len(o.nodes) == 0 {
			for _, h := range hops {
				o.nodes = append(o.nodes, orUnknown(h.node))
			}
		}
	}
	o.believe(firstOf(r.Header["X-Forwarded-Host"]), firstOf(r.Header["X-Forwarded-Proto"]))
	return o
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

// set writes the forwarding headers for the backend. Both families tell the same:
// if a trusted proxy sent one of them only, the other is derived from it.
func (o origin) set(h http.Header) {
	peer := orUnknown("")
	if o.peer.IsValid() {
		peer = o.peer.String()
	}
	hops := o.hops
	if hops == nil {
		for _, node := range o.nodes {
			hops = append(hops, hop{node: node})
		}
	}
	last := hop{node: peer}
	if len(hops) == 0 {
		last.host, last.proto = o.host, o.proto
	} else if o.hops == nil {
		hops[0].host, hops[0].proto = o.host, o.proto
	}
	buf := make([]byte, 0, 96)
	for _, hp := range hops {
		hp.node = orUnknown(hp.node)
		buf = append(hp.append(buf), ", "...)
	}
	h["Forwarded"] = []string{string(last.append(buf))}
	if len(o.nodes) > 0 {
		peer = strings.Join(o.nodes, ", ") + ", " + peer
	}
	h["X-Forwarded-For"] = []string{peer}
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
