package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// route is a [Route] made ready.
type route struct {
	name         string
	prefix       string // without the slash at the end; "" matches everything
	upstream     http.RoundTripper
	upstreamName string
	host         string
	maxBody      int64 // zero: no bound
}

// routeTable finds the route of a path.
type routeTable []*route // longest prefix first

var (
	errAmbiguousPath = errors.New("the path can be read in ways that belong to different routes")
	errNoRoute       = errors.New("no route for this path")
)

func newRouteTable(siteName string, routes []Route, maxBody int64) (routeTable, error) {
	var t routeTable
	var errs []error
	if len(routes) == 0 {
		errs = append(errs, errors.New("no routes"))
	}
	for i, cfg := range routes {
		r, err := newRoute(siteName, cfg, maxBody)
		if err == nil && slices.ContainsFunc(t, func(o *route) bool { return o.prefix == r.prefix }) {
			err = fmt.Errorf("path %q has a route already", cfg.Path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("routes[%d]: %w", i, err))
			continue
		}
		t = append(t, r)
	}
	slices.SortFunc(t, func(a, b *route) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	return t, errors.Join(errs...)
}

func newRoute(siteName string, cfg Route, maxBody int64) (*route, error) {
	if !strings.HasPrefix(cfg.Path, "/") {
		return nil, fmt.Errorf("path %q does not begin with a slash", cfg.Path)
	}
	prefix := strings.TrimSuffix(cfg.Path, "/")
	if !isClear(prefix) || strings.HasSuffix(prefix, "/") || strings.ContainsAny(prefix, "?#*\x00") {
		return nil, fmt.Errorf("path %q: write a plain path without encoding, empty or dot segments, or any of ;\\?#*", cfg.Path)
	}
	if cfg.Upstream == nil {
		return nil, fmt.Errorf("path %q has no upstream", cfg.Path)
	}
	return &route{
		name:         cmp.Or(cfg.Name, siteName+cfg.Path),
		prefix:       prefix,
		upstream:     cfg.Upstream,
		upstreamName: cfg.UpstreamName,
		host:         cfg.Host,
		maxBody:      max(cmp.Or(cfg.MaxBodyBytes, maxBody), 0),
	}, nil
}

// find returns the route of a path as sent. It refuses a path that backends may
// read in ways that belong to different routes.
func (t routeTable) find(path string) (*route, error) {
	r := t.lookup(plainReading(path))
	if len(t) == 1 && t[0].prefix == "" || isClear(path) {
		if r == nil {
			return nil, errNoRoute
		}
		return r, nil
	}
	if len(path) > maxUnclearPath {
		return nil, errAmbiguousPath
	}
	same := true
	readings(path, func(p string) bool {
		same = t.lookup(p) == r && strings.IndexByte(p, 0) < 0
		return same
	})
	switch {
	case !same:
		return nil, errAmbiguousPath
	case r == nil:
		return nil, errNoRoute
	}
	return r, nil
}

// lookup returns the longest route that is a prefix of path on a segment boundary,
// nil if there is none.
func (t routeTable) lookup(path string) *route {
	for _, r := range t {
		if strings.HasPrefix(path, r.prefix) && (len(path) == len(r.prefix) || path[len(r.prefix)] == '/') {
			return r
		}
	}
	return nil
}
