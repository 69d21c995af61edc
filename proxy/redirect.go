package proxy

import (
	"net/http"
	"net/netip"
	"strconv"
)

// RedirectOptions configures [NewRedirect].
type RedirectOptions struct {
	// Port is the port of the https URL; zero or 443 is left out of it.
	Port int
	// HasHost says which hosts are redirected, others get 404; nil means all. Use
	// [Handler.HasHost].
	HasHost func(host string) bool
}

// NewRedirect returns the handler of the plain HTTP listener: it sends clients to
// the same host, path and query at https, with 301 for GET and HEAD and 308, which
// keeps method and body, for all else. ACME challenges are answered by a handler
// put before it.
func NewRedirect(opts RedirectOptions) http.Handler {
	return http.HandlerFunc(opts.redirect)
}

func (o RedirectOptions) redirect(w http.ResponseWriter, r *http.Request) {
	host, err := hostOf(r)
	var t target
	if err == nil {
		t, err = parseTarget(r)
	}
	if err == nil && o.HasHost != nil && !o.HasHost(host) {
		err = errNoSite
	}
	if err == nil && r.Method == http.MethodConnect {
		err = errMethod
	}
	if err != nil {
		status, text := statusOf(r.Context(), err)
		writeError(w, status, text, requestID(nil, false))
		return
	}
	w.Header().Set("Location", "https://"+o.authority(host)+t.String())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	w.WriteHeader(http.StatusPermanentRedirect)
}

// authority puts host and port together.
func (o RedirectOptions) authority(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + host + "]"
	}
	if o.Port == 0 || o.Port == 443 {
		return host
	}
	return host + ":" + strconv.Itoa(o.Port)
}
