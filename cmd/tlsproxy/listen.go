package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
)

// frontConfig turns the listeners and limits of a generation into those of
// front.
func frontConfig(g *generation) front.Config {
	c := front.Config{Limits: frontLimits(g.cfg)}
	for _, l := range g.cfg.Listeners {
		mode, _ := front.ParseProxyMode(string(l.ProxyProtocol)) // config knows the same words
		c.Listeners = append(c.Listeners, front.ListenerOptions{
			Address: l.Address, Table: g.tables[l.Address], ProxyProtocol: mode, TrustedProxies: l.TrustedProxies,
		})
	}
	return c
}

func frontLimits(cfg *config.Config) front.Limits {
	return front.Limits{
		HandshakeTimeout:   cfg.Timeouts.Handshake,
		ProxyHeaderTimeout: cfg.Timeouts.ProxyHeader,
		WriteTimeout:       cfg.Timeouts.Write,
		MaxConnections:     cfg.Limits.Connections,
		MaxHandshakes:      cfg.Limits.Handshakes,
		MaxPerClient:       cfg.Limits.ConnectionsPerClient,
		HandshakeRate:      cfg.Limits.HandshakeRate.PerSecond,
		HandshakeBurst:     cfg.Limits.HandshakeRate.Burst,
	}
}

// listenerErrors gives the errors of preparing listeners their place in the
// configuration.
func (p *program) listenerErrors(cfg *config.Config, err error) error {
	var all []error
	for _, e := range flatten(err) {
		path := "listeners"
		for i, l := range cfg.Listeners {
			if strings.HasPrefix(e.Error(), fmt.Sprintf("listener %q:", l.Address)) {
				path, e = fmt.Sprintf("listeners[%d].address", i), p.explainInUse(l.Address, e)
				break
			}
		}
		all = append(all, cfg.At(path, e))
	}
	return errors.Join(all...)
}

// explainInUse adds to an error who has the address that could not be bound. A
// reload binds what is new before it gives up what is old, so that it can still
// be refused; what overlaps cannot move that way.
func (p *program) explainInUse(address string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if g := p.generation.Load(); g != nil {
		if path, taken := g.cfg.Listening(address); path != "" {
			return fmt.Errorf("%w: by %q, %s of the configuration in force, which is given up only after this one is bound: reload with another port in between, or restart",
				err, taken, path)
		}
	}
	return fmt.Errorf("%w: by another process, or a socket passed to this one", err)
}

// adminListenAddress is the admin listener's address, "" when it is off.
func adminListenAddress(cfg *config.Config) string {
	if cfg.Admin.Address == "off" {
		return ""
	}
	return cfg.Admin.Address
}
