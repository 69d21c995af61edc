package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/tlsproxy/tlsproxy/admin"
	"github.com/tlsproxy/tlsproxy/cache"
	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/metrics"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/upstream"
)

func (p *program) buildMetrics(*config.Config) error {
	options := metrics.Options{
		Version:      versionString(),
		Revision:     revision(),
		Front:        p.frontStats,
		Upgraded:     p.upgrades.Len,
		Sessions:     p.resumer.Stats,
		OCSP:         p.ocspStats,
		Staples:      p.staples,
		ClientOCSP:   p.checker.Stats,
		Certificates: p.certificates,
		CertStats:    p.certs.Stats,
		Memory:       p.memory.Status,
		ClientAuth:   p.clientAuthMetrics,
		Upstreams:    p.upstreams,
		AccessLog:    p.access.stats,
		Config:       p.configStats,
		Logger:       p.log,
	}
	if p.shared != nil {
		options.Store = p.shared.Status
	}
	p.metrics = metrics.New(options)
	return nil
}

// buildAdmin makes the admin handler of a generation.
func (p *program) buildAdmin(g *generation) error {
	handler, err := admin.New(admin.Options{
		Status:            p.status,
		NotReady:          p.notReady,
		RequireMustStaple: g.cfg.Admin.Ready.MustStaple,
		RequireExpiry:     max(g.cfg.Admin.Ready.CertificateExpiry, 0),
		Metrics:           p.metrics.Handler(),
		Reload:            p.reload,
		Quit:              p.requestQuit,
		Revoke:            p.resumer.Revoke,
		Sites:             func() []string { return siteNames(p.generation.Load().cfg) },
		Hosts:             g.cfg.Admin.Hosts,
		AllowRemote:       g.cfg.Admin.AllowRemote,
		Logger:            p.log,
	})
	g.admin = handler
	return g.cfg.At("admin", err)
}

func siteNames(cfg *config.Config) []string {
	names := make([]string, len(cfg.Sites))
	for i, site := range cfg.Sites {
		names[i] = site.Name
	}
	return names
}

func (p *program) notReady() []string {
	if p.draining.Load() {
		return []string{"draining"}
	}
	return nil
}

// requestQuit begins the shutdown that SIGTERM begins.
func (p *program) requestQuit() {
	select {
	case p.quit <- struct{}{}:
	default: // already asked for
	}
}

// status is the state of the whole program, for /api/status and the dashboard.
func (p *program) status() admin.Status {
	g := p.generation.Load()
	sessions, staples := p.resumer.Status(), p.ocspStats()
	return admin.Status{
		Version:          versionString(),
		Started:          p.started,
		Draining:         p.draining.Load(),
		Config:           p.configStatus(g),
		Listeners:        p.front.Status(),
		HTTP:             p.plain.addresses(),
		Admin:            p.admin.addresses(),
		Front:            p.front.Stats(),
		Upgraded:         p.upgrades.Len(),
		Certificates:     p.certificates(),
		CertificateStats: p.certs.Stats(),
		Staples:          p.staples(),
		OCSP:             staples,
		Sessions:         sessions,
		Caches: []admin.Cache{
			sessionCache(sessions.Stats),
			adminCache("ocsp", staples.Cache),
			adminCache("client_ocsp", p.checker.Stats().Cache),
		},
		Memory:     p.memory.Status(),
		Upstreams:  p.upstreams(),
		ClientAuth: p.clientAuthStatus(),
		Store:      p.storeStatus(),
	}
}

func (p *program) configStatus(g *generation) admin.Config {
	h := &p.reloads
	h.mu.Lock()
	defer h.mu.Unlock()
	c := admin.Config{
		Path: p.path, Generation: g.number, Loaded: g.loaded,
		Reloads: h.good, ReloadFailures: h.bad, LastReload: h.last, LastReloadOK: h.lastErr == nil,
	}
	if h.lastErr != nil {
		lines := make([]string, 0, 1)
		for _, e := range flatten(h.lastErr) {
			lines = append(lines, e.Error())
		}
		c.LastError = strings.Join(lines, "\n")
	}
	return c
}

func sessionCache(s session.Stats) admin.Cache {
	hits := s.Lookups[session.Hit] + s.Lookups[session.HitShared]
	var misses uint64
	for result, n := range s.Lookups {
		if result != session.Hit && result != session.HitShared {
			misses += n
		}
	}
	return admin.Cache{
		Name: "session", Entries: s.Entries, Capacity: s.Capacity, Bytes: s.Bytes, MaxBytes: s.MaxBytes,
		Hits: hits, Misses: misses, Evictions: s.Evictions, Scans: s.Scans,
	}
}

func adminCache(name string, s cache.Stats) admin.Cache {
	return admin.Cache{
		Name: name, Entries: s.Entries, Capacity: s.Capacity, Bytes: s.Bytes, MaxBytes: s.MaxBytes,
		Hits: s.Hits, Misses: s.Misses, Evictions: s.Evictions.ByName(), Scans: s.Scans,
	}
}

// certificates are those that clients are served and those that backends and the
// store are shown.
func (p *program) certificates() []certs.Status {
	all := p.certs.Status()
	var clients []*certs.Client
	if g := p.generation.Load(); g != nil {
		clients = append(clients, g.clients...)
	}
	if p.storeClient != nil {
		clients = append(clients, p.storeClient)
	}
	for _, client := range clients {
		if s, ok := client.Status(); ok {
			all = append(all, s)
		}
	}
	return all
}

func (p *program) upstreams() []upstream.Status {
	g := p.generation.Load()
	if g == nil {
		return nil
	}
	var all []upstream.Status
	for _, name := range slices.Sorted(maps.Keys(g.pools)) {
		all = append(all, g.pools[name].Status())
	}
	return all
}

func (p *program) frontStats() front.Stats { return p.front.Stats() }

func (p *program) ocspStats() ocsp.Stats {
	if p.stapler == nil {
		return ocsp.Stats{}
	}
	return p.stapler.Stats()
}

func (p *program) staples() []ocsp.CertificateStatus {
	if p.stapler == nil {
		return nil
	}
	return p.stapler.Status()
}
