package proxy

import (
	"net/http"
	"net/netip"
	"strconv"
)

// RedirectOptions configures [NewRedirect].
type RedirectOptions struct {
	// Port is the port of the https URL for a host, 443 being left out of it; false
	// means that the host is not served, and 404. Nil redirects every host to 443.
	// See [Handler.HasHost].
	Port func(host string) (int, bool)
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
	port, served := 443, true
	if err == nil && o.Port != nil {
		port, served = o.Port(host)
	}
	if !served {
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
	w.Header().Set("Location", "https://"+authority(host, port)+t.String())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	w.WriteHeader(http.StatusPermanentRedirect)
}

// authority puts host and port together.
func authority(host string, port int) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + host + "]"
	}
	if port == 443 {
		return host
	}
	return host + ":" + strconv.Itoa(port)
}
