package main

import (
	"errors"
	"fmt"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/config"
)

// certSources turns the certificates section into what certs loads.
func certSources(cfg *config.Config) []certs.Source {
	sources := make([]certs.Source, len(cfg.Certificates))
	for i, c := range cfg.Certificates {
		sources[i] = certSource(c)
	}
	return sources
}

func certSource(c config.Certificate) certs.Source {
	source := certs.Source{Default: c.Default}
	switch {
	case c.ACME != nil:
		source.ACME = acmeSource(c.ACME)
	case c.Local != nil:
		source.Local = &certs.Local{Hosts: c.Local.Hosts}
	case c.Directory != "":
		source.Directory = &certs.Directory{Path: c.Directory, PassphraseFile: c.PassphraseFile}
	default:
		source.Files = &certs.Files{Cert: c.Cert, Key: c.Key, PKCS12: c.PKCS12, PassphraseFile: c.PassphraseFile}
	}
	return source
}

func acmeSource(a *config.ACME) *certs.ACME {
	source := &certs.ACME{
		Hosts: a.Hosts, Email: a.Email, KeyType: certs.KeyType(a.KeyType), ReuseKey: a.ReuseKey,
		MustStaple: a.MustStaple, DisableARI: !a.ARI.On(),
	}
	for _, issuer := range a.Issuers {
		source.Issuers = append(source.Issuers, certs.Issuer{
			Directory: issuer.Directory, CAFile: issuer.CAFile, Profile: issuer.Profile, EAB: acmeEAB(issuer.EAB),
		})
	}
	for _, challenge := range a.Challenges {
		source.Challenges = append(source.Challenges, certs.Challenge(challenge))
	}
	if a.DNS != nil {
		server := a.DNS.RFC2136
		source.DNS = &certs.RFC2136{
			Server: server.Server, Zone: server.Zone, KeyName: server.KeyName, KeyFile: server.KeyFile,
			Algorithm: string(server.KeyAlgorithm), PropagationTimeout: a.DNS.PropagationTimeout,
		}
	}
	if o := a.OnDemand; o != nil {
		source.OnDemand = &certs.OnDemand{Ask: o.Ask, Allow: o.Allow, Rate: o.Rate, Window: o.Window, Wait: o.Wait}
	}
	return source
}

func acmeEAB(e config.EAB) *certs.EAB {
	if e == (config.EAB{}) {
		return nil
	}
	return &certs.EAB{KeyID: e.KeyID, KeyFile: e.KeyFile}
}

// certErrors gives the errors of loading certificates their place in the
// configuration.
func certErrors(cfg *config.Config, err error) error {
	var sourceErrors certs.SourceErrors
	if !errors.As(err, &sourceErrors) {
		return cfg.At("certificates", err)
	}
	return placed(cfg, sourceErrors, func(e *certs.SourceError) string { return fmt.Sprintf("certificates[%d]", e.Source) })
}

// placed gives each error its place, by the section that it is about.
func placed(cfg *config.Config, sourceErrors certs.SourceErrors, section func(*certs.SourceError) string) error {
	var all []error
	for _, e := range sourceErrors {
		path := section(e)
		if e.Field != "" {
			path += "." + e.Field
		}
		all = append(all, cfg.At(path, errors.New(e.Reason())))
	}
	return errors.Join(all...)
}
