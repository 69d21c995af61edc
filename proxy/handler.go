package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Handler is the [http.Handler] of one configuration; see the package comment.
type Handler struct {
	opts    Options
	hosts   hostTable
	classes headerClasses
	trust   trustList
	forward httputil.ReverseProxy
}

// site is a [Site] made ready.
type site struct {
	name              string
	policyID          func() string
	routes            routeTable
	hsts              []string // nil: none
	identity          Identity
	request, response headerRules
}

// New returns a handler for one configuration. Every error is reported at once;
// each names the site and the route.
func New(opts Options) (*Handler, error) {
	opts.UpgradeIdleTimeout = cmp.Or(opts.UpgradeIdleTimeout, 10*time.Minute)
	opts.ReadTimeout = cmp.Or(opts.ReadTimeout, time.Minute)
	opts.WriteTimeout = cmp.Or(opts.WriteTimeout, time.Minute)
	opts.StreamWriteTimeout = cmp.Or(opts.StreamWriteTimeout, time.Minute)
	opts.Upgrades = cmp.Or(opts.Upgrades, new(Upgrades))
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	h := &Handler{
		opts:    opts,
		hosts:   newHostTable(),
		classes: newHeaderClasses(opts),
		trust:   unmapped(opts.TrustedProxies),
	}
	var errs []error
	for i, cfg := range opts.Sites {
		if err := h.addSite(cfg); err != nil {
			errs = append(errs, fmt.Errorf("sites[%d]: %w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	h.forward = httputil.ReverseProxy{
		Rewrite:        h.rewrite,
		Transport:      roundTripper{},
		ModifyResponse: modifyResponse,
		ErrorHandler:   func(_ http.ResponseWriter, r *http.Request, err error) { exchangeOf(r).fail(err) },
		ErrorLog:       slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
		BufferPool:     &bufferPool{},
	}
	return h, nil
}

// unmapped turns prefixes of IPv4-mapped addresses into those of IPv4, in which
// clients are compared.
func unmapped(prefixes []netip.Prefix) trustList {
	var t trustList
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		t = append(t, p.Masked())
	}
	return t
}

func (h *Handler) addSite(cfg Site) error {
	if len(cfg.Hosts) == 0 {
		return errors.New("no hosts")
	}
	s := &site{
		name:     cmp.Or(cfg.Name, cfg.Hosts[0]),
		policyID: cfg.PolicyID,
		identity: cfg.Identity,
	}
	if s.policyID == nil {
		s.policyID = func() string { return "" }
	}
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("site %q: %w", s.name, err))
		}
	}
	if cfg.HSTS != "" {
		s.hsts = []string{cfg.HSTS}
	}
	if !httpguts.ValidHeaderFieldValue(cfg.HSTS) {
		keep(fmt.Errorf("hsts %q has control characters", cfg.HSTS))
	}
	for _, name := range cfg.Identity.Headers() {
		if !httpguts.ValidHeaderFieldName(name) || isFraming(http.CanonicalHeaderKey(name)) {
			keep(fmt.Errorf("identity header %q cannot be used", name))
		}
	}
	var err error
	s.request, err = newHeaderRules(cfg.Request, h.classes)
	keep(err)
	s.response, err = newHeaderRules(cfg.Response, h.classes)
	keep(err)
	s.routes, err = newRouteTable(s.name, cfg.Routes, h.opts.MaxBodyBytes)
	keep(err)
	for _, host := range cfg.Hosts {
		keep(h.hosts.add(host, s))
	}
	return errors.Join(errs...)
}

// HasHost reports whether a site serves the host, which may have a port, as in a
// Host header. An IPv6 address may stand without brackets.
func (h *Handler) HasHost(host string) bool {
	name, ok := canonicalHost(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		name, ok = addr.String(), true
	}
	return ok && h.hosts.find(name) != nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ex := newExchange(h, w, r)
	defer ex.finish()
	if !r.ProtoAtLeast(1, 1) {
		// net/http ignores a Transfer-Encoding here: nobody knows where the request ends
		// (RFC 9112, section 6.1).
		closeAfterReply(w)
	}
	switch err := h.admit(ex, r); {
	case errors.Is(err, errServerOptions):
		ex.answerOptions()
		return
	case err != nil:
		ex.fail(err)
		ex.done = true
		return
	}
	if stripUpgrade(r); r.Header["Upgrade"] != nil {
		ex.Context, ex.cancel = context.WithCancel(ex.Context)
		defer ex.cancel()
	}
	out := r.WithContext(ex)
	ex.takeBody(out)
	h.forward.ServeHTTP(ex, out)
	ex.done = true
}

// admit finds the site and the route and refuses what must not be forwarded.
func (h *Handler) admit(ex *exchange, r *http.Request) error {
	host, err := hostOf(r)
	if err == nil {
		ex.site = h.hosts.find(host)
	}
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return errMethod
	case err != nil:
		return err
	case ex.site == nil:
		return errNoSite
	}
	if ex.site.policyID() != ex.conn.PolicyID {
		// HTTP/2 clients share connections between hosts; on one that was made
		// for this very host, the policy has changed since.
		ex.leave = r.ProtoMajor == 1 || ex.conn.SNI == host || ex.conn.SNI == ""
		return errMisdirected
	}
	if r.Method == http.MethodOptions && r.RequestURI == "*" {
		return errServerOptions
	}
	if ex.target, err = parseTarget(r); err != nil {
		return err
	}
	if ex.route, err = ex.site.routes.find(ex.target.path); err != nil {
		return err
	}
	if limit := ex.route.maxBody; limit > 0 && r.ContentLength > limit {
		return errBodyTooLarge
	}
	return nil
}

func hostOf(r *http.Request) (string, error) {
	if r.Host == "" {
		return "", errNoHost
	}
	host, ok := canonicalHost(r.Host)
	if !ok {
		return "", errBadHost
	}
	// HTTP/2 may carry a Host beside :authority; RFC 9113, section 8.3.1.
	if extra, ok := r.Header["Host"]; ok && (len(extra) != 1 || !strings.EqualFold(extra[0], r.Host)) {
		return "", errHostMismatch
	}
	return host, nil
}

// rewrite makes the request that the backend gets. httputil has removed hop-by-hop
// headers before, so that no Connection header can remove what is set here.
func (h *Handler) rewrite(pr *httputil.ProxyRequest) {
	ex := exchangeOf(pr.In)
	out := pr.Out
	ex.target.writeTo(out.URL)
	ex.takeTrailer(out, pr.In.Trailer)
	if ex.route.host != "" {
		out.Host = ex.route.host
	}
	h.classes.strip(out.Header, ex.origin.trusted)
	delete(out.Header, "Host")
	ex.origin.set(out.Header)
	out.Header["X-Request-Id"] = []string{ex.record.RequestID}
	ex.site.request.apply(out.Header)
	ex.site.identity.set(out.Header, ex.conn.ClientChain)
}

// modifyResponse finishes the headers of a backend's response.
func modifyResponse(res *http.Response) error {
	ex := exchangeOf(res.Request)
	ex.setHSTS(res.Header)
	if len(res.Trailer) > 0 && ex.request.ProtoMajor == 1 {
		delete(res.Header, "Content-Length") // HTTP/1 has trailers after chunks only
	}
	if res.StatusCode == http.StatusNoContent {
		// Forbidden there (RFC 9110, section 8.6); HTTP/2 clients take it for a
		// broken response.
		delete(res.Header, "Content-Length")
	}
	if res.Header["Content-Type"] == nil {
		ex.Header()["Content-Type"] = nil // net/http would guess one, which is the client's to do or not
	}
	ex.site.response.apply(res.Header)
	ex.site.response.withhold(ex.Header())
	return nil
}

// roundTripper sends each request to the upstream of its route.
type roundTripper struct{}

func (roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	ex := exchangeOf(r)
	res, err := ex.route.upstream.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 100 {
		res.Body.Close()
		return nil, fmt.Errorf("backend sent the status %d", res.StatusCode)
	}
	ex.record.FirstByte = time.Since(ex.record.Start)
	res.Request = r // the upstream may have sent a copy
	return res, nil
}

// bufferPool lends buffers for copying response bodies.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[32 << 10]byte); ok {
		return b[:]
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[32 << 10]byte)(b)) }
