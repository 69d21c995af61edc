package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// generation is everything that one configuration made. It is built whole, put
// in force by a swap of one pointer, and never changed.
type generation struct {
	number uint64
	cfg    *config.Config
	loaded time.Time

	verifiers []*clientauth.Verifier // by site; nil where no certificate is asked for
	policies  []*front.Policy        // by site
	pools     map[string]*upstream.Pool
	ledger    *upstream.Ledger          // of the pools
	clients   []*certs.Client           // how the pools connect, in the order of their names
	handlers  map[string]*proxy.Handler // by the address of the listener
	departed  map[string]*departed      // by the address of a listener that only earlier ones had
	tables    map[string]*front.Table   // by the address of the listener
	redirect  http.Handler
	admin     http.Handler

	// What was opened for it and is not yet in force.
	certs  *certs.Set
	change *front.Change
	web    webSettings

	stop context.CancelFunc // ends the work of start
	done chan struct{}
}

// buildParts makes everything of a generation that needs no listener and no
// certificate: what -check can make too. Every error is reported.
func (p *program) buildParts(cfg *config.Config) (*generation, error) {
	g := &generation{cfg: cfg, loaded: time.Now(), web: webSettingsOf(cfg)}
	var errs []error
	for _, build := range []func(*generation) error{p.buildPolicies, p.buildUpstreams} {
		errs = append(errs, build(g))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, build := range []func(*generation) error{p.buildTables, p.buildHandlers, p.buildDeparted, p.buildAdmin} {
		errs = append(errs, build(g))
	}
	return g, errors.Join(errs...)
}

func (p *program) buildPolicies(g *generation) error {
	var errs []error
	for i, site := range g.cfg.Sites {
		verifier, err := p.newVerifier(g.cfg, site)
		if err != nil {
			for _, e := range flatten(err) {
				errs = append(errs, g.cfg.At(fmt.Sprintf("sites[%d].tls.client_auth", i), e))
			}
			continue
		}
		policy, err := front.NewPolicy(p.policyOptions(site.Name, site.TLS.TLS, verifier))
		errs = append(errs, g.cfg.At(fmt.Sprintf("sites[%d].tls", i), err))
		g.verifiers = append(g.verifiers, verifier)
		g.policies = append(g.policies, policy)
	}
	return errors.Join(errs...)
}

// newVerifier reads a site's rules for client certificates; nil without any.
func (p *program) newVerifier(cfg *config.Config, site config.Site) (*clientauth.Verifier, error) {
	if site.TLS.ClientAuth.Mode == config.ClientAuthNone {
		return nil, nil
	}
	options, err := clientAuthOptions(site)
	if err != nil {
		return nil, err
	}
	options.Logger, options.Checker, options.Predecessor = p.log, p.checker, p.generation.Load().verifier(site.Name)
	options.OCSPTimeout = cfg.OCSP.Client.Timeout + time.Second // the checker's own end comes first, and is remembered
	return clientauth.New(options)
}

// verifier returns that of a site; nil where there is none, and without a
// generation.
func (g *generation) verifier(site string) *clientauth.Verifier {
	if g == nil {
		return nil
	}
	i := slices.IndexFunc(g.cfg.Sites, func(s config.Site) bool { return s.Name == site })
	if i < 0 {
		return nil
	}
	return g.verifiers[i]
}

func (p *program) policyOptions(site string, t config.TLS, verifier *clientauth.Verifier) front.PolicyOptions {
	options := front.PolicyOptions{
		Site:              site,
		MinVersion:        t.MinVersion.Number(),
		MaxVersion:        t.MaxVersion.Number(),
		CipherSuites:      cipherSuites(t.CipherSuites),
		Curves:            curves(t.Curves),
		DisableHTTP2:      !t.HTTP2.On(),
		DisableResumption: !t.Resumption.On(),
		GetCertificate:    p.getCertificate(),
		Keys:              p.certs.Keys,
	}
	if verifier != nil {
		options.ClientAuth = verifier
	}
	return options
}

func (p *program) buildUpstreams(g *generation) error {
	g.ledger = new(upstream.Ledger)
	if old := p.generation.Load(); old != nil {
		g.ledger = old.ledger.Next()
	}
	return p.buildPools(g)
}

func (p *program) buildTables(g *generation) error {
	fallback, err := front.NewPolicy(p.policyOptions("", g.cfg.TLS, nil))
	if err != nil {
		return g.cfg.At("tls", err)
	}
	g.tables = make(map[string]*front.Table)
	var errs []error
	for i, listener := range g.cfg.Listeners {
		options := front.TableOptions{
			Default: fallback, RejectUnknownSNI: g.cfg.RejectUnknownSNI, ACMECertificate: p.certs.GetCertificate,
		}
		for j, site := range g.cfg.Sites {
			if servedOn(site, listener.Address) {
				addSite(&options, site.Hosts, g.policies[j])
			}
		}
		table, err := front.NewTable(options)
		errs = append(errs, g.cfg.At(fmt.Sprintf("listeners[%d]", i), err))
		g.tables[listener.Address] = table
	}
	return errors.Join(errs...)
}

// addSite adds a site to a listener's table. That of any host gets the
// connections for names that no other site has, and those without a name;
// whether there is a certificate for them is not the table's business.
func addSite(options *front.TableOptions, hosts []string, policy *front.Policy) {
	named := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return host == anyHost })
	if len(named) < len(hosts) {
		options.Default, options.RejectUnknownSNI = policy, false
	}
	options.Sites = append(options.Sites, front.Site{Hosts: named, Policy: policy})
}

// anyHost is the pattern of a site for every host that no other has.
const anyHost = "*"

func (p *program) buildHandlers(g *generation) error {
	g.handlers = make(map[string]*proxy.Handler)
	var errs []error
	for i, listener := range g.cfg.Listeners {
		sites := proxySites(g, func(s config.Site) bool { return servedOn(s, listener.Address) })
		handler, err := proxy.New(p.handlerOptions(g, sites, listener.TrustedProxies))
		errs = append(errs, g.cfg.At(fmt.Sprintf("listeners[%d]", i), err))
		g.handlers[listener.Address] = handler
	}
	g.redirect = proxy.NewRedirect(proxy.RedirectOptions{Port: g.redirectPort})
	return errors.Join(errs...)
}

// redirectPort is the port at which a host is served, by default that of the
// first listener that serves it; false if none does.
func (g *generation) redirectPort(host string) (port int, served bool) {
	port = g.cfg.HTTP.RedirectPort
	for _, listener := range g.cfg.Listeners {
		if g.handlers[listener.Address].HasHost(host) {
			port, served = cmp.Or(port, listener.Port()), true
		}
	}
	return cmp.Or(port, 443), served
}

// load opens what -check must not: certificates for use, and listeners.
func (p *program) load(ctx context.Context, g *generation) error {
	set, certErr := p.certs.Load(ctx, certSources(g.cfg))
	if certErr != nil {
		certErr = certErrors(g.cfg, certErr)
	}
	change, listenErr := p.front.Prepare(frontConfig(g))
	if listenErr != nil {
		listenErr = p.listenerErrors(g.cfg, listenErr)
	}
	plainErr := p.explainInUse(g.cfg.HTTP.Address, p.plain.prepare(g.cfg.HTTP.Address, httpSettingsOf(g.cfg)))
	adminErr := p.explainInUse(g.cfg.Admin.Address, p.admin.prepare(adminListenAddress(g.cfg), plainSettingsOf(g.cfg)))
	accessErr := g.cfg.At("access_log.output", p.access.prepare(g.cfg.AccessLog))
	if err := errors.Join(certErr, listenErr, g.cfg.At("http.address", plainErr), g.cfg.At("admin.address", adminErr), accessErr); err != nil {
		if set != nil {
			p.certs.Discard(set)
		}
		if change != nil {
			change.Discard()
		}
		p.plain.discard()
		p.admin.discard()
		p.access.discard()
		return err
	}
	g.certs, g.change = set, change
	return nil
}

// install puts a loaded generation in force. Nothing in it can fail.
func (p *program) install(g *generation) {
	g.certs.RejectUnknownSNI = g.cfg.RejectUnknownSNI
	p.certs.Install(g.certs)
	old := p.generation.Swap(g)
	if old != nil {
		old.end() // what follows goes on where this stopped
	}
	g.start()
	g.change.Install()
	p.access.install()
	p.web.configure(g.web)
	p.plain.install(httpSettingsOf(g.cfg))
	p.admin.install(plainSettingsOf(g.cfg))
	if old != nil {
		old.closeIdle()
	}
}

// start runs the generation's own work: health checks, and watching the files
// of client authentication and of connections to backends.
func (g *generation) start() {
	ctx, stop := context.WithCancel(context.Background())
	g.stop, g.done = stop, make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	for _, pool := range g.pools {
		group.Go(func() error { return pool.Run(ctx) })
	}
	for _, client := range g.clients {
		group.Go(func() error { return client.Run(ctx) })
	}
	for _, verifier := range g.verifiers {
		if verifier != nil {
			group.Go(func() error { return verifier.Run(ctx) })
		}
	}
	go g.wait(group)
}

func (g *generation) wait(group *errgroup.Group) {
	defer close(g.done)
	group.Wait() //nolint:errcheck // These Runs end by their context alone.
}

// end ends the generation's own work. Requests that it serves go on.
func (g *generation) end() {
	g.stop()
	<-g.done
}

// closeIdle closes the connections to backends that a generation which ended does
// not use. Those in use are closed when they have been idle for their time.
func (g *generation) closeIdle() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, pool := range g.pools {
		pool.Retire(ended) //nolint:errcheck // Idle connections close now, the others by their idle timeout.
	}
}
