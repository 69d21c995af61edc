package main

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/proxy"
)

// serveHTTP gives a request to the generation in force, so that connections
// that live through a reload follow it.
func (p *program) serveHTTP(w http.ResponseWriter, r *http.Request) {
	info := front.FromContext(r.Context())
	p.generation.Load().handler(info.Listener).ServeHTTP(w, r)
}

// servePlain is the plain HTTP listener: ACME challenges, the responder of the
// development CA, and redirects.
func (p *program) servePlain(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == localResponderPath || strings.HasPrefix(r.URL.Path, localResponderPath+"/") {
		if responder := p.currentResponder(); responder != nil {
			http.StripPrefix(localResponderPath, responder.handler).ServeHTTP(w, r)
			return
		}
	}
	p.certs.HTTPChallenge(p.generation.Load().redirect).ServeHTTP(w, r)
}

func (p *program) serveAdmin(w http.ResponseWriter, r *http.Request) {
	p.generation.Load().admin.ServeHTTP(w, r)
}

func (p *program) handlerOptions(g *generation, sites []proxy.Site, trusted []netip.Prefix) proxy.Options {
	return proxy.Options{
		Sites:              sites,
		TrustedProxies:     trusted,
		ConnInfo:           connInfo,
		Observer:           requestObservers{p.metrics, p.access},
		Upgrades:           &p.upgrades,
		UpgradeIdleTimeout: g.cfg.Timeouts.Upgraded,
		MaxBodyBytes:       int64(g.cfg.Limits.Body),
		ReadTimeout:        g.cfg.Timeouts.Read,
		WriteTimeout:       -1, // front bounds each write to the socket
		StreamWriteTimeout: g.cfg.Timeouts.Write,
		Closing:            func() bool { return p.web.closing.Load() },
		IdentityHeaders:    identityHeaders(g.cfg),
		Logger:             p.log,
	}
}

// requestObservers tells several observers of each request.
type requestObservers []proxy.Observer

func (os requestObservers) Request(r *proxy.Record) {
	for _, o := range os {
		o.Request(r)
	}
}

// connInfo tells proxy what front knows of a request's connection.
func connInfo(ctx context.Context) *proxy.Conn {
	info := front.FromContext(ctx)
	if info == nil {
		return nil
	}
	conn := &proxy.Conn{
		PolicyID: info.PolicyID, TLS: true, SNI: info.ServerName, Version: info.Version,
		CipherSuite: info.CipherSuite, Resumed: info.Resumed, Client: info.Client,
	}
	if len(info.VerifiedChains) > 0 {
		conn.ClientChain = info.VerifiedChains[0]
	}
	return conn
}

// localResponderPath is where the plain listener answers for the OCSP
// responder of the development CA.
const localResponderPath = "/.well-known/tlsproxy/ocsp"

// localResponderURL is the responder that certificates of the development CA
// name. The stapler asks within the process; the URL is for everybody else.
func localResponderURL(cfg *config.Config) string {
	host := dialable(cfg.HTTP.Address)
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = "localhost" // a name must be there for the stapler to look for a staple
	}
	return (&url.URL{Scheme: "http", Host: host, Path: localResponderPath}).String()
}
