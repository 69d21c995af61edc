package config

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

func (v *validator) sites() {
	if len(v.c.Sites) == 0 {
		v.add("sites", "none: give at least one, such as {hosts: [localhost], routes: [{upstream: web}]}")
	}
	names := make(map[string]int)
	claims := make(map[string][]claim)
	for i := range v.c.Sites {
		s, path := &v.c.Sites[i], idx("sites", i)
		if first, ok := names[s.Name]; ok && v.c.Has(path+".name") {
			v.add(path+".name", "%q is the name of sites[%d] already", s.Name, first)
		}
		names[s.Name] = i
		v.siteListeners(path, s)
		v.siteHosts(path, s, claims)
		v.policy(path+".tls", &s.TLS.TLS)
		v.clientAuth(path+".tls.client_auth", &s.TLS.ClientAuth)
		v.siteHeaders(path, s)
		v.routes(path, s)
	}
}

func (v *validator) siteListeners(path string, s *Site) {
	var known []string
	for _, l := range v.c.Listeners {
		known = append(known, l.Address)
	}
	for i, a := range s.Listeners {
		at := idx(path+".listeners", i)
		if !slices.Contains(known, a) && !v.unread("listeners") {
			_, hint := suggest(a, known)
			v.add(at, "no listener has the address %q: %s", clip(a), hint)
		} else if slices.Contains(s.Listeners[:i], a) {
			v.add(at, "duplicate")
		}
	}
}

// claim is a site's claim to a host, on some listeners.
type claim struct {
	path      string
	listeners []string // empty: all
}

func (c claim) meets(d claim) bool {
	return len(c.listeners) == 0 || len(d.listeners) == 0 ||
		slices.ContainsFunc(c.listeners, func(l string) bool { return slices.Contains(d.listeners, l) })
}

// siteHosts checks a site's hosts against each other and those of earlier sites.
func (v *validator) siteHosts(path string, s *Site, claims map[string][]claim) {
	if len(s.Hosts) == 0 {
		v.add(path+".hosts", "none: give the host names that the site answers for")
	}
	for i, h := range s.Hosts {
		own := claim{path: idx(path+".hosts", i), listeners: s.Listeners}
		if err := checkHost(h); err != nil && h != "*" {
			v.add(own.path, "%w", err)
			continue
		}
		if j := slices.IndexFunc(claims[h], own.meets); j >= 0 {
			first := claims[h][j].path
			v.add(own.path, "%q is a host of %s already (line %d)", h, first, v.c.line(first))
		}
		claims[h] = append(claims[h], own)
	}
}

func (v *validator) siteHeaders(path string, s *Site) {
	if s.HSTS != "" && !strings.Contains(strings.ToLower(s.HSTS), "max-age=") {
		v.add(path+".hsts", `%q lacks max-age: write it like "max-age=31536000; includeSubDomains"`, clip(s.HSTS))
	}
	v.headers(path+".request_headers", &s.Request)
	v.headers(path+".response_headers", &s.Response)
}

// headers checks headers to set and to remove. Those that frame a message are
// the proxy's own.
func (v *validator) headers(path string, h *Headers) {
	for _, name := range sortedKeys(h.Set) {
		at := join(path+".set", name)
		v.headerName(at, name)
		if !httpguts.ValidHeaderFieldValue(h.Set[name]) {
			v.add(at, "%q is not a header value", clip(h.Set[name]))
		}
	}
	for i, name := range h.Remove {
		v.headerName(idx(path+".remove", i), name)
	}
}

func (v *validator) headerName(path, name string) {
	framing := []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		v.add(path, "%q is not a header name", clip(name))
	case slices.Contains(framing, http.CanonicalHeaderKey(name)):
		v.add(path, "%s is set by the proxy itself", name)
	}
}

func (v *validator) routes(path string, s *Site) {
	if len(s.Routes) == 0 {
		v.add(path+".routes", "none: give at least one, such as {path: /, upstream: web}")
	}
	seen := make(map[string]int)
	for i, r := range s.Routes {
		at := idx(path+".routes", i)
		if err := checkPath(r.Path); err != nil {
			v.add(at+".path", "%w", err)
		}
		prefix := strings.TrimSuffix(r.Path, "/")
		if first, ok := seen[prefix]; ok {
			v.add(at+".path", "%q is the same as in routes[%d]", r.Path, first)
		}
		seen[prefix] = i
		v.upstreamName(at+".upstream", r.Upstream)
		if r.Host != "" && !httpguts.ValidHostHeader(r.Host) {
			v.add(at+".host", "%q is not a Host header", clip(r.Host))
		}
	}
}

// checkPath checks the path of a route.
func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("%q must begin with /", clip(path))
	case strings.ContainsAny(path, "?#*"):
		return fmt.Errorf("%q: a path is a prefix, without ?, # and *", clip(path))
	case strings.Contains(path, "//"), slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." }):
		return fmt.Errorf("%q has an empty or dot segment, which no request that is forwarded has", clip(path))
	}
	if _, err := url.PathUnescape(path); err != nil {
		return fmt.Errorf("%q: %w", clip(path), err)
	}
	return nil
}

func (v *validator) upstreamName(path, name string) {
	if name == "" {
		v.add(path, "missing: the name of one of upstreams")
		return
	}
	if _, ok := v.c.Upstreams[name]; ok || v.unread(join("upstreams", name)) {
		return
	}
	_, hint := suggest(name, sortedKeys(v.c.Upstreams))
	v.add(path, "no upstream is named %q: %s", clip(name), hint)
}

// upstreamNames are limited to what is safe in labels and logs.
const upstreamNames = `^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`

func (v *validator) upstreams() {
	valid := regexp.MustCompile(upstreamNames)
	for _, name := range sortedKeys(v.c.Upstreams) {
		u, path := v.c.Upstreams[name], join("upstreams", name)
		if !valid.MatchString(name) {
			v.add(path, "the name %q may have letters, digits, -, _ and . only, 64 at most", clip(name))
		}
		v.backends(path, &u)
		v.health(path+".health", &u.Health)
		if u.EjectAfter == Off {
			v.needless(path, "eject_after", "with eject_after off", "eject_for")
		}
	}
}

func (v *validator) backends(path string, u *Upstream) {
	if len(u.Backends) == 0 {
		v.add(path+".backends", `none: give at least one, such as "http://127.0.0.1:8081"`)
	}
	secure := false
	for i, b := range u.Backends {
		at := idx(path+".backends", i)
		if err := checkBackend(b); err != nil {
			v.add(at, "%w", err)
		} else if slices.Contains(u.Backends[:i], b) {
			v.add(at, "duplicate: %q is in the list already", b)
		}
		secure = secure || strings.HasPrefix(b, "https:") || strings.HasPrefix(b, "h2:")
	}
	if !secure {
		v.needless(path, "backends", "without an https or h2 backend", "tls")
		return
	}
	v.clientTLS(path+".tls", &u.TLS)
}

// checkBackend checks the URL of a backend.
func checkBackend(b string) error {
	schemes := []string{"http", "https", "h2", "h2c", "unix", "unix+h2c", "builtin"}
	scheme, rest, ok := strings.Cut(b, ":")
	switch {
	case isHostPort(b):
		return fmt.Errorf("%q lacks a scheme: did you mean \"http://%s\"?", b, b)
	case !ok || !slices.Contains(schemes, scheme) && !strings.HasPrefix(rest, "//"):
		return fmt.Errorf("%q is not a URL: write it like http://host:port, h2c://host:port or unix:/path", clip(b))
	case !slices.Contains(schemes, scheme):
		_, hint := suggest(scheme, schemes)
		return fmt.Errorf("%q: unknown scheme %q: %s", clip(b), clip(scheme), hint)
	case b == "builtin:echo":
		return nil
	case scheme == "builtin":
		return fmt.Errorf("%q: the only one built in is builtin:echo", clip(b))
	case scheme == "unix" || scheme == "unix+h2c":
		return checkUnix(scheme, rest)
	}
	u, err := url.Parse(b)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return fmt.Errorf("%q is not a URL: write it like %s://host:port", clip(b), scheme)
	case u.User != nil:
		return fmt.Errorf("%s://…@%s has a user name or password, which is never sent: remove it", scheme, u.Host)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has a path or query, but requests keep the path they came with: write %s://%s", clip(b), scheme, u.Host)
	}
	return checkURLHost(u)
}

func isHostPort(s string) bool {
	host, _, err := splitHostPort(s)
	return err == nil && host != ""
}

func checkUnix(scheme, path string) error {
	switch {
	case !filepath.IsAbs(path) || strings.HasPrefix(path, "//"):
		return fmt.Errorf("\"%s:%s\": the path of a unix socket is absolute: write it like %s:/run/app.sock", scheme, clip(path), scheme)
	case len(path) > 107:
		return fmt.Errorf("%q is longer than the 107 bytes that a unix socket's path may have", clip(path))
	}
	return nil
}

func (v *validator) health(path string, h *Health) {
	if h.Path == "" {
		v.needless(path, "path", "without path", "interval", "timeout", "rise", "fall", "status", "host")
		return
	}
	if !strings.HasPrefix(h.Path, "/") || strings.ContainsAny(h.Path, "# ") {
		v.add(path+".path", "%q is not a path: write it like /healthz", clip(h.Path))
	}
}
