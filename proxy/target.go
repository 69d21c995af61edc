package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// target is what follows the authority in a request, as it was sent.
type target struct {
	path     string
	query    string
	hasQuery bool // there was a question mark
}

var errBadTarget = errors.New("the request target is not a valid path")

// parseTarget takes the target of the origin form or the absolute form (RFC 9112,
// section 3.2). Over HTTP/2 it refuses what could not be written into an HTTP/1.1
// request line, and everywhere a raw "#", at which some backends would cut.
func parseTarget(r *http.Request) (target, error) {
	raw := r.RequestURI
	if !strings.HasPrefix(raw, "/") {
		_, rest, ok := strings.Cut(raw, "://")
		if !ok {
			return target{}, errBadTarget
		}
		i := strings.IndexAny(rest, "/?")
		switch {
		case i < 0:
			raw = "/"
		case rest[i] == '?':
			raw = "/" + rest[i:]
		default:
			raw = rest[i:]
		}
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c == 0x7f || c == '#' {
			return target{}, errBadTarget
		}
	}
	var t target
	t.path, t.query, t.hasQuery = strings.Cut(raw, "?")
	return t, nil
}

// writeTo makes u send the target byte for byte. The one exception is a path that
// begins with two slashes, which net/url would take for an authority: there,
// bytes that RFC 3986 does not allow are sent encoded.
func (t target) writeTo(u *url.URL) {
	if !strings.HasPrefix(t.path, "//") {
		u.Opaque = t.path
	}
	u.RawQuery = t.query
	u.ForceQuery = t.hasQuery && t.query == ""
}

// String is the target as it was sent.
func (t target) String() string {
	if t.hasQuery {
		return t.path + "?" + t.query
	}
	return t.path
}
