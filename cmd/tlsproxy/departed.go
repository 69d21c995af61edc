package main

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/proxy"
)

// departed is a listener that the configuration no longer has. Its connections
// live on, and each gets one more answer.
type departed struct {
	trusted []netip.Prefix
	sites   map[string]bool // that it served, by name
	handler *proxy.Handler
}

// buildDeparted makes handlers for the listeners that the generation in force
// has, or had, and this one has not.
func (p *program) buildDeparted(g *generation) error {
	g.departed = make(map[string]*departed)
	old := p.generation.Load()
	if old == nil {
		return nil
	}
	maps.Copy(g.departed, old.departed)
	for _, listener := range old.cfg.Listeners {
		g.departed[listener.Address] = &departed{trusted: listener.TrustedProxies, sites: servedSites(old.cfg, listener.Address)}
	}
	for _, listener := range g.cfg.Listeners {
		delete(g.departed, listener.Address)
	}
	for address, d := range g.departed {
		options := p.handlerOptions(g, departedSites(g, d.sites), d.trusted)
		options.Closing = func() bool { return true } // an upgraded connection goes on
		handler, err := proxy.New(options)
		if err != nil {
			return err
		}
		g.departed[address] = &departed{trusted: d.trusted, sites: d.sites, handler: handler}
	}
	return nil
}

// servedSites are the sites that a listener serves.
func servedSites(cfg *config.Config, address string) map[string]bool {
	names := make(map[string]bool)
	for _, site := range cfg.Sites {
		if servedOn(site, address) {
			names[site.Name] = true
		}
	}
	return names
}

// departedSites are the sites in force as the connections of a departed
// listener may see them: those that it served under the policy that they have
// now. The others are there without one, which is answered with 421: a host
// that has become a site of its own must not fall to the wildcard that had it.
func departedSites(g *generation, served map[string]bool) []proxy.Site {
	sites := proxySites(g, func(s config.Site) bool { return served[s.Name] })
	others := proxySites(g, func(s config.Site) bool { return !served[s.Name] })
	for i := range others {
		others[i].PolicyID = nil
	}
	return distinctHosts(append(sites, others...))
}

// distinctHosts leaves each host to the first site that has it. Sites of
// different listeners may share hosts; a handler's may not.
func distinctHosts(sites []proxy.Site) []proxy.Site {
	taken := make(map[string]bool)
	for i, site := range sites {
		sites[i].Hosts = slices.DeleteFunc(slices.Clone(site.Hosts), func(host string) bool { return taken[host] })
		for _, host := range site.Hosts {
			taken[host] = true
		}
	}
	return slices.DeleteFunc(sites, func(s proxy.Site) bool { return len(s.Hosts) == 0 })
}

// handler is that of a listener, whether it is still there or not.
func (g *generation) handler(listener string) http.Handler {
	if h := g.handlers[listener]; h != nil {
		return h
	}
	return g.departed[listener].handler
}
