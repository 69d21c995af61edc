package proxy

import "net/http"

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
func NewRedirect(opts RedirectOptions) http.Handler { return http.NotFoundHandler() }
