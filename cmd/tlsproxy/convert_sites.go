package main

import (
	"crypto/tls"
	"slices"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// servedOn reports whether a site is served on the listener with an address.
func servedOn(site config.Site, address string) bool {
	return len(site.Listeners) == 0 || slices.Contains(site.Listeners, address)
}

// proxySites turns the sites that a listener serves into what proxy routes by.
func proxySites(g *generation, served func(config.Site) bool) []proxy.Site {
	var sites []proxy.Site
	for i, site := range g.cfg.Sites {
		if !served(site) {
			continue
		}
		sites = append(sites, proxy.Site{
			Name: site.Name, Hosts: site.Hosts, PolicyID: g.policies[i].ID,
			Routes: proxyRoutes(site, g.pools), Identity: identity(site.TLS.ClientAuth), HSTS: site.HSTS,
			Request: proxy.HeaderRules(site.Request), Response: proxy.HeaderRules(site.Response),
		})
	}
	return sites
}

func proxyRoutes(site config.Site, pools map[string]*upstream.Pool) []proxy.Route {
	routes := make([]proxy.Route, len(site.Routes))
	for i, route := range site.Routes {
		routes[i] = proxy.Route{
			Name: route.Name, Path: route.Path, Upstream: pools[route.Upstream], UpstreamName: route.Upstream,
			Host: route.Host, MaxBodyBytes: int64(route.Body),
		}
	}
	return routes
}

func identity(a config.ClientAuth) proxy.Identity {
	if !a.Mode.Verifies() {
		return proxy.Identity{}
	}
	return proxy.Identity{
		Cert: a.Forward.Cert.On(), Chain: a.Forward.Chain.On(),
		Subject: a.Forward.Subject, Serial: a.Forward.Serial, Fingerprint: a.Forward.Fingerprint, Verify: a.Forward.Verify,
	}
}

// identityHeaders are the headers by which any site tells its backends who the
// client is. They are removed from the requests of every listener, since two
// listeners may lead to one backend.
func identityHeaders(cfg *config.Config) []string {
	var names []string
	for _, site := range cfg.Sites {
		names = append(names, identity(site.TLS.ClientAuth).Headers()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// clientAuthOptions turns a site's client_auth section into the rules of its
// verifier.
func clientAuthOptions(site config.Site) (clientauth.Options, error) {
	a := site.TLS.ClientAuth
	mode, err := clientauth.ParseMode(string(a.Mode))
	if err != nil {
		return clientauth.Options{}, err
	}
	ocspMode, err := clientauth.ParseOCSPMode(string(a.OCSP))
	if err != nil {
		return clientauth.Options{}, err
	}
	return clientauth.Options{
		Site: site.Name, Mode: mode, CAFiles: a.CAFile, Allow: a.Allow, AllowFiles: a.AllowFile,
		CRLFiles: a.CRLFile, AllowExpiredCRL: a.AllowExpiredCRL, OCSP: ocspMode,
	}, nil
}

func cipherSuites(names []string) []uint16 {
	var ids []uint16
	for _, suite := range tls.CipherSuites() {
		if slices.Contains(names, suite.Name) {
			ids = append(ids, suite.ID)
		}
	}
	return ids
}

func curves(names []string) []tls.CurveID {
	var ids []tls.CurveID
	for _, name := range names {
		if id, ok := config.CurveID(name); ok {
			ids = append(ids, id)
		}
	}
	return ids
}
