package certs

import (
	"context"
	"strings"

	"github.com/caddyserver/certmagic"
	"github.com/libdns/libdns"
	"github.com/libdns/rfc2136"
	"go.uber.org/zap"
)

// dnsProvider sends dynamic updates, for one zone if that is configured.
type dnsProvider struct {
	rfc2136.Provider
	config *RFC2136
}

func newDNSProvider(c *RFC2136, secret string) *dnsProvider {
	return &dnsProvider{
		Provider: rfc2136.Provider{KeyName: c.KeyName, KeyAlg: c.Algorithm, Key: secret, Server: c.Server},
		config:   c,
	}
}

// solver makes what solves dns-01 challenges. The server that takes the
// updates is asked about them too: other servers of the zone may be hidden
// from us, or be a little behind.
func (p *dnsProvider) solver(log *zap.Logger) *certmagic.DNS01Solver {
	timeout := p.config.PropagationTimeout
	if timeout < 0 {
		timeout = -1 // what the library takes for "do not wait"
	}
	return &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{
		DNSProvider:        p,
		Resolvers:          []string{p.config.Server},
		PropagationTimeout: timeout,
		Logger:             log,
	}}
}

// AppendRecords adds records to the configured zone instead of the one found.
func (p *dnsProvider) AppendRecords(ctx context.Context, zone string, recs []libdns.Record) ([]libdns.Record, error) {
	target, moved := p.move(zone, recs)
	if _, err := p.Provider.AppendRecords(ctx, target, moved); err != nil {
		return nil, err
	}
	return recs, nil
}

// DeleteRecords undoes AppendRecords.
func (p *dnsProvider) DeleteRecords(ctx context.Context, zone string, recs []libdns.Record) ([]libdns.Record, error) {
	target, moved := p.move(zone, recs)
	if _, err := p.Provider.DeleteRecords(ctx, target, moved); err != nil {
		return nil, err
	}
	return recs, nil
}

// move makes records of one zone records of the configured one.
func (p *dnsProvider) move(zone string, recs []libdns.Record) (string, []libdns.Record) {
	if p.config.Zone == "" {
		return zone, recs
	}
	target := strings.TrimSuffix(p.config.Zone, ".") + "."
	moved := make([]libdns.Record, len(recs))
	for i, rec := range recs {
		rr := rec.RR()
		rr.Name = libdns.RelativeName(libdns.AbsoluteName(rr.Name, zone), target)
		moved[i] = rr
	}
	return target, moved
}
