package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxBody bounds the body of any request to the admin listener.
const maxBody = 64 << 10

// policy is what the page may do: load its own two files and ask its own
// server, nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard wraps the paths in what holds for all of them.
func (h *handler) guard(next http.Handler) http.Handler {
	// Writes from a page of another origin carry Sec-Fetch-Site or Origin;
	// programs send neither and pass.
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.log.LogAttrs(r.Context(), levelRefused, "admin request from another origin refused", requestAttrs(r)...)
		writeError(w, http.StatusForbidden, "refused: the request comes from a page of another origin")
	}))
	next = crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if !h.hostAllowed(r) {
			h.log.LogAttrs(r.Context(), levelRefused, "admin request for a foreign host refused", requestAttrs(r)...)
			writeError(w, http.StatusMisdirectedRequest,
				"refused: this host name is not one of the admin listener's; use its IP address or localhost")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// hostAllowed tells requests meant for this listener from those of a page whose
// name was pointed at it. A page cannot make its browser send an IP address or
// localhost as Host unless that is where the page came from. Probes of
// orchestrators send all sorts of names, and what they get is harmless.
func (h *handler) hostAllowed(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz":
		return true
	case "/metrics":
		if h.opts.AllowRemote {
			return true
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(h.opts.Hosts, host) {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil
}
