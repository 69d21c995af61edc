package config

import (
	"net/netip"
	"slices"
	"strings"
)

func (v *validator) certificates() {
	if len(v.c.Certificates) == 0 {
		v.add("certificates", "none: give at least one, such as {cert: /etc/tls/tls.crt, key: /etc/tls/tls.key} or {local: {hosts: [localhost]}}")
	}
	preset := -1
	made := make(map[string]string) // host → path of the acme or local source that makes its certificate
	for i := range v.c.Certificates {
		c, path := &v.c.Certificates[i], idx("certificates", i)
		v.source(path, c)
		if c.Default && preset >= 0 {
			v.add(path+".default", "only one certificate can be the default: certificates[%d] already is", preset)
		} else if c.Default {
			preset = i
		}
		if c.Local != nil {
			v.local(path+".local", c.Local, made)
		}
		if c.ACME != nil {
			v.acme(path+".acme", c.ACME, made)
		}
	}
}

// source checks that c is exactly one kind of source.
func (v *validator) source(path string, c *Certificate) {
	var kinds []string
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"cert", c.Cert != "" || c.Key != ""},
		{"pkcs12", c.PKCS12 != ""},
		{"directory", c.Directory != ""},
		{"acme", c.ACME != nil},
		{"local", c.Local != nil},
	} {
		if k.set || v.unread(path+"."+k.name) {
			kinds = append(kinds, k.name)
		}
	}
	switch {
	case len(kinds) == 0:
		v.add(path, "names no certificate: give cert and key, pkcs12, directory, acme or local")
	case len(kinds) > 1:
		v.add(path, "one source each: %s are separate entries of the list", strings.Join(kinds, " and "))
	}
	if c.Cert != "" && c.Key == "" && !v.unread(path+".key") {
		v.add(path+".cert", "needs key: the file with its private key, which may be the same file")
	}
	if c.Key != "" && c.Cert == "" && !v.unread(path+".cert") {
		v.add(path+".key", "needs cert: the file with its certificate")
	}
	if c.Key == "" && c.PKCS12 == "" && c.Directory == "" {
		v.needless(path, "key", "without key, pkcs12 or directory", "passphrase_file")
	}
}

// hosts checks the hosts that a source makes certificates for.
func (v *validator) hosts(path string, hosts []string, made map[string]string) {
	for i, h := range hosts {
		at := idx(path, i)
		if err := checkHost(h); err != nil {
			v.add(at, "%w", err)
			continue
		}
		if first, ok := made[h]; ok {
			v.add(at, "%q has its certificate from %s already (line %d)", h, first, v.c.line(first))
			continue
		}
		made[h] = at
	}
}

func (v *validator) local(path string, l *Local, made map[string]string) {
	if len(l.Hosts) == 0 {
		v.add(path+".hosts", "none: give at least one, such as localhost")
	}
	v.hosts(path+".hosts", l.Hosts, made)
}

func (v *validator) acme(path string, a *ACME, made map[string]string) {
	if len(a.Hosts) == 0 && a.OnDemand == nil {
		v.add(path+".hosts", "none: give the names to obtain certificates for, or on_demand")
	}
	v.hosts(path+".hosts", a.Hosts, made)
	if a.Email != "" && (!strings.Contains(a.Email, "@") || strings.ContainsAny(a.Email, " <>,:")) {
		v.add(path+".email", "%q is not a mail address", clip(a.Email))
	}
	v.issuers(path, a)
	v.challenges(path, a)
	if a.DNS != nil {
		v.rfc2136(path+".dns.rfc2136", &a.DNS.RFC2136)
	}
	if a.OnDemand != nil {
		v.onDemand(path+".on_demand", a.OnDemand)
	}
}

func (v *validator) issuers(path string, a *ACME) {
	if !v.c.Has(path + ".issuers") {
		v.issuer(path, &a.Issuers[0])
		return
	}
	v.needless(path, "issuers", "beside issuers: write it into an issuer", "directory", "ca_file", "profile", "eab")
	for i := range a.Issuers {
		at := idx(path+".issuers", i)
		v.issuer(at, &a.Issuers[i])
		for _, other := range a.Issuers[:i] {
			if other.Directory == a.Issuers[i].Directory {
				v.add(at+".directory", "%q is among the issuers already", other.Directory)
				break
			}
		}
	}
}

func (v *validator) issuer(path string, is *Issuer) {
	if err := checkURL(is.Directory, "https"); err != nil {
		v.add(path+".directory", "%w", err)
	}
	if (is.EAB.KeyID == "") != (is.EAB.KeyFile == "") {
		v.add(path+".eab", "needs key_id and key_file, as the CA gave them")
	}
}

func (v *validator) challenges(path string, a *ACME) {
	known := []string{"http-01", "tls-alpn-01", "dns-01"}
	at := path + ".challenges"
	for i, ch := range a.Challenges {
		if !slices.Contains(known, ch) {
			_, hint := suggest(ch, known)
			v.add(idx(at, i), "unknown challenge %q: %s", clip(ch), hint)
		} else if slices.Contains(a.Challenges[:i], ch) {
			v.add(idx(at, i), "duplicate")
		}
	}
	dns := slices.Contains(a.Challenges, "dns-01")
	if dns && len(a.Challenges) > 1 {
		v.add(at, "dns-01 goes alone: remove the others, or write two acme entries")
	}
	if dns && a.DNS == nil {
		v.add(at, "dns-01 needs dns: the name server that takes the updates")
	}
	if !dns {
		v.needless(path, "challenges", "unless challenges has dns-01", "dns")
		v.withoutDNS(path, a)
	}
	if slices.Contains(a.Challenges, "http-01") && v.c.HTTP.Address == "" && !v.unread("http.address") {
		v.add(at, "http-01 needs the http listener: give http.address")
	}
}

// withoutDNS checks that no name needs dns-01.
func (v *validator) withoutDNS(path string, a *ACME) {
	for i, h := range a.Hosts {
		if strings.HasPrefix(h, "*.") {
			v.add(idx(path+".hosts", i), "%q: CAs give wildcards for dns-01 only: give dns", h)
		}
	}
}

func (v *validator) rfc2136(path string, r *RFC2136) {
	if r.Server == "" {
		v.add(path+".server", "missing: the name server that takes the updates, host:port")
	} else if _, err := netip.ParseAddr(r.Server); err != nil && checkName(r.Server) != nil {
		if _, _, err := splitHostPort(r.Server); err != nil {
			v.add(path+".server", "%w", err)
		}
	}
	if r.KeyName == "" {
		v.add(path+".key_name", "missing: the name of the TSIG key, as the server knows it")
	}
	if r.KeyFile == "" {
		v.add(path+".key_file", "missing: the file with the TSIG key in base64")
	}
}

func (v *validator) onDemand(path string, o *OnDemand) {
	if o.Ask == "" && len(o.Allow) == 0 {
		v.add(path, "needs ask or allow: without them everybody who points a name here could have certificates made")
	}
	if o.Ask != "" {
		if err := checkURL(o.Ask, "http", "https"); err != nil {
			v.add(path+".ask", "%w", err)
		} else if strings.HasPrefix(o.Ask, "http:") && !isLoopbackURL(o.Ask) {
			v.add(path+".ask", "%q: over http somebody on the way could approve any name: use https, or a service on this machine", clip(o.Ask))
		}
	}
	for i, h := range o.Allow {
		if err := checkHost(h); err != nil {
			v.add(idx(path+".allow", i), "%w", err)
		}
	}
	if limit := v.c.Timeouts.Handshake; v.c.Has(path+".wait") && o.Wait >= limit && limit > 0 {
		v.add(path+".wait", "%v is not within timeouts.handshake, %v: the handshake would end before", o.Wait, limit)
	}
}
