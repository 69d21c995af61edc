package main

import (
	"github.com/tlsproxy/tlsproxy/admin"
	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/metrics"
)

// clientAuth is the state of every site that asks for client certificates.
func (p *program) clientAuth() []clientauth.Status {
	g := p.generation.Load()
	if g == nil {
		return nil
	}
	var all []clientauth.Status
	for _, verifier := range g.verifiers {
		if verifier != nil {
			all = append(all, verifier.Status())
		}
	}
	return all
}

func (p *program) clientAuthMetrics() []metrics.ClientAuth {
	var all []metrics.ClientAuth
	for _, s := range p.clientAuth() {
		all = append(all, metrics.ClientAuth{
			Site: s.Site, Available: s.Error == "", CRLExpiry: s.CRLExpiry(), SoftFails: s.SoftFailures,
		})
	}
	return all
}

func (p *program) clientAuthStatus() []admin.ClientAuth {
	all := []admin.ClientAuth{}
	for _, s := range p.clientAuth() {
		all = append(all, admin.ClientAuth{
			Site: s.Site, Mode: s.Mode, Available: s.Error == "", Error: s.Error, Loaded: s.Loaded,
			CRLExpiry: s.CRLExpiry(), Details: s,
		})
	}
	return all
}
