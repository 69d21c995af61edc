package main

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// builtinEcho is the backend that needs no server: it answers with what it
// received.
const builtinEcho = "builtin:echo"

// buildPools makes the upstreams of a configuration, in the order of their
// names, which go on with what the ledger of the generation has of their backends.
// It reads the files that they name and connects to nothing.
func (p *program) buildPools(g *generation) error {
	echo := proxy.NewEcho(proxy.EchoOptions{ConnInfo: connInfo})
	g.pools = make(map[string]*upstream.Pool, len(g.cfg.Upstreams))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(g.cfg.Upstreams)) {
		path, u := "upstreams."+name, g.cfg.Upstreams[name]
		client, err := newClient(g.cfg, path+".tls", u.TLS, p.log)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		options := poolOptions(u, echo)
		options.Name, options.TLS, options.Ledger, options.Logger = name, client.Config, g.ledger, p.log
		pool, err := upstream.New(options)
		if err != nil {
			errs = append(errs, g.cfg.At(path, err))
			continue
		}
		g.pools[name], g.clients = pool, append(g.clients, client)
	}
	return errors.Join(errs...)
}

func poolOptions(u config.Upstream, echo http.RoundTripper) upstream.Options {
	options := upstream.Options{
		Balance:               balances[u.Balance],
		DialTimeout:           u.DialTimeout,
		ResponseHeaderTimeout: u.ResponseTimeout,
		IdleTimeout:           u.IdleTimeout,
		MaxIdle:               u.MaxIdle,
		MaxRequests:           max(u.MaxRequests, 0),
		Retries:               u.Retries,
		EjectAfter:            u.EjectAfter,
		EjectFor:              u.EjectFor,
		Health: upstream.Health{
			Path: u.Health.Path, Host: u.Health.Host, Interval: u.Health.Interval, Timeout: u.Health.Timeout,
			Rise: u.Health.Rise, Fall: u.Health.Fall, StatusMin: u.Health.Status.Min, StatusMax: u.Health.Status.Max,
		},
	}
	for _, url := range u.Backends {
		backend := upstream.Backend{URL: url}
		if url == builtinEcho {
			backend.Transport = echo
		}
		options.Backends = append(options.Backends, backend)
	}
	return options
}

var balances = map[config.Balance]upstream.Balance{
	config.BalanceRoundRobin: upstream.RoundRobin,
	config.BalanceLeastConn:  upstream.LeastConn,
	config.BalanceRandomTwo:  upstream.RandomTwo,
}
