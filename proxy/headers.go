package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// headerClass says what becomes of a request header that a client sent.
type headerClass int

const (
	endToEnd   headerClass = iota // forwarded as it is
	forwarding                    // believed from trusted peers, else removed
	identity                      // always removed
)

// headerClasses knows the headers that are not simply forwarded.
type headerClasses map[string]headerClass

// newHeaderClasses lists the headers by which proxies tell backends who the client
// is and what it asked for. Headers of one site are removed for every site: sites
// may share a backend.
func newHeaderClasses(o Options) headerClasses {
	c := headerClasses{"Client-Cert": identity, "Client-Cert-Chain": identity}
	for _, name := range []string{
		"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "X-Cluster-Client-Ip", "Cf-Connecting-Ip",
		"Front-End-Https", "X-Url-Scheme", "X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Request-Id",
	} {
		c[name] = forwarding
	}
	names := slices.Clone(o.IdentityHeaders)
	for _, s := range o.Sites {
		names = append(names, s.Identity.Headers()...)
	}
	for _, name := range names {
		c[http.CanonicalHeaderKey(name)] = identity
	}
	return c
}

// of classes a header by its canonical name.
func (c headerClasses) of(name string) headerClass {
	if strings.HasPrefix(name, "X-Forwarded-") {
		return max(forwarding, c[name])
	}
	return c[name]
}

// strip removes what the peer may not say. Names with underscores are classed as if
// they had hyphens, which is how CGI-like backends see them, and never believed.
func (c headerClasses) strip(h http.Header, trusted bool) {
	for name := range h {
		class := c.of(name)
		disguised := strings.IndexByte(name, '_') >= 0
		if disguised {
			class = c.of(http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")))
		}
		if class == identity || class == forwarding && (disguised || !trusted) {
			delete(h, name)
		}
	}
}

// stripTrailer removes from a trailer section all that a peer could not say among the
// headers, and what belongs there alone (RFC 9110, section 6.5.1): there are backends
// that take one for the other. Nobody is trusted to speak of clients in a trailer.
func (c headerClasses) stripTrailer(t http.Header) {
	c.strip(t, false)
	for name := range t {
		if isFraming(name) {
			delete(t, name)
		}
	}
}

// headerRules is [HeaderRules] made ready.
type headerRules struct {
	set    map[string][]string // by canonical name; nil: remove
	filled bool
}

func newHeaderRules(cfg HeaderRules, classes headerClasses) (headerRules, error) {
	r := headerRules{set: map[string][]string{}}
	var errs []error
	for _, name := range cfg.Remove {
		if err := checkHeaderName(name, classes); err != nil {
			errs = append(errs, err)
		}
		r.set[http.CanonicalHeaderKey(name)] = nil
	}
	for name, value := range cfg.Set {
		if err := checkHeaderName(name, classes); err != nil {
			errs = append(errs, err)
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			errs = append(errs, fmt.Errorf("header %q: value %q has control characters", name, value))
		}
		r.set[http.CanonicalHeaderKey(name)] = []string{value}
	}
	r.filled = len(r.set) > 0
	return r, errors.Join(errs...)
}

func checkHeaderName(name string, classes headerClasses) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("header %q is not a valid name", name)
	case isFraming(canonical):
		return fmt.Errorf("header %q frames the message and cannot be changed", name)
	case classes.of(canonical) == identity:
		return fmt.Errorf("header %q carries the client's identity and cannot be changed", name)
	}
	return nil
}

func isFraming(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Host", "Http2-Settings", "Expect":
		return true
	}
	return false
}

// apply changes h. The values are shared; nobody writes into them.
func (r headerRules) apply(h http.Header) {
	if !r.filled {
		return
	}
	for name, values := range r.set {
		if values == nil {
			delete(h, name)
		} else {
			h[name] = values
		}
	}
}

// stripTrailer removes from a trailer section what the rules decide on: as a header, the
// field is gone or has another value.
func (r headerRules) stripTrailer(t http.Header) {
	for name := range r.set {
		delete(t, name)
	}
}

// withhold keeps net/http from putting back what was removed from a response:
// it takes a name without values for a wish to send none.
func (r headerRules) withhold(h http.Header) {
	for name, values := range r.set {
		if values == nil {
			h[name] = nil
		}
	}
}

// stripUpgrade makes an upgrade the proxy will not pass on an ordinary request, as
// RFC 9110 (section 7.8) lets any server do. To HTTP/2 and to TLS a backend must not
// switch: what came then would bypass the proxy's rules.
func stripUpgrade(r *http.Request) {
	delete(r.Header, "Http2-Settings")
	values, ok := r.Header["Upgrade"]
	if !ok {
		return
	}
	if len(values) != 1 || !r.ProtoAtLeast(1, 1) || !isPassableProtocol(values[0]) {
		delete(r.Header, "Upgrade")
	}
}

func isPassableProtocol(protocol string) bool {
	name, _, _ := strings.Cut(strings.ToLower(protocol), "/")
	if name == "" || name == "h2c" || name == "h2" || name == "http" || name == "tls" {
		return false
	}
	for i := range len(protocol) {
		if c := protocol[i]; !isTokenByte(c) && c != '/' {
			return false
		}
	}
	return true
}
