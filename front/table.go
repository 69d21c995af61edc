package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Site maps host patterns to a policy.
type Site struct {
	// Hosts are names such as "app.example.com" or "*.example.com"; the star
	// stands for exactly one label. An address is the host of clients that send
	// no name and connect to it.
	Hosts []string
	// Policy is what connections for these names get.
	Policy *Policy
}

// TableOptions describe the sites of one listener.
type TableOptions struct {
	// Sites are looked up by server name: exact names first, then wildcards.
	// Without one, by the address that the client connected to.
	Sites []Site
	// Default is the policy of connections for which no site is found. Required unless RejectUnknownSNI, and then for those
	// without a name alone.
	Default *Policy
	// RejectUnknownSNI refuses names that no site has, and what is no name, with
	// the alert unrecognized_name, RFC 6066, section 3.
	RejectUnknownSNI bool
	// ACMECertificate answers handshakes that offer the protocol acme-tls/1
	// alone, RFC 8737. Such a connection gets a config of its own, with neither
	// client authentication nor sessions, and is closed after the handshake.
	// Nil treats them as any other.
	ACMECertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

// Table picks the policy of a connection. It is immutable; make one with
// [NewTable].
type Table struct {
	exact    map[string]*Policy
	wildcard map[string]*Policy // by what follows the star and its dot
	nameless *Policy            // of connections without a name; nil: they are refused
	fallback *Policy            // nil: unknown names are refused
	acme     *tls.Config        // nil: no challenges answered here
}

// NewTable checks the options and makes a table of them.
func NewTable(o TableOptions) (*Table, error) {
	t := &Table{exact: make(map[string]*Policy), wildcard: make(map[string]*Policy)}
	var errs []error
	for _, site := range o.Sites {
		if site.Policy == nil {
			errs = append(errs, fmt.Errorf("sites of hosts %q: no policy", site.Hosts))
			continue
		}
		for _, host := range site.Hosts {
			if err := t.add(host, site.Policy); err != nil {
				errs = append(errs, fmt.Errorf("site %q: host %q: %w", site.Policy.site, host, err))
			}
		}
	}
	t.nameless = o.Default
	if !o.RejectUnknownSNI {
		t.fallback = o.Default
		if o.Default == nil {
			errs = append(errs, errors.New("no default policy, and unknown server names are not rejected"))
		}
	}
	if o.ACMECertificate != nil {
		t.acme = acmeConfig(o.ACMECertificate)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Table) add(host string, p *Policy) error {
	names := t.exact
	name, wild := strings.CutPrefix(host, "*.")
	if wild {
		names = t.wildcard
	}
	name, ok := CanonicalName(name)
	if !ok || name == "" || strings.Contains(name, "*") {
		return errors.New("must be a host name, or *. and one")
	}
	if other, taken := names[name]; taken {
		return fmt.Errorf("is also a host of site %q", other.site)
	}
	names[name] = p
	return nil
}

// Lookup finds the policy of a canonical name (see [CanonicalName]); nil: the
// name is refused.
func (t *Table) Lookup(name string) *Policy {
	if p, ok := t.exact[name]; ok {
		return p
	}
	if label, domain, ok := strings.Cut(name, "."); ok && label != "" {
		if p, ok := t.wildcard[domain]; ok {
			return p
		}
	}
	if name == "" {
		return t.nameless
	}
	return t.fallback
}

// ForAddress finds the policy of a connection without a server name to the address
// local: that of the site which has the address as a host, else the default; nil:
// the connection is refused. Clients send no address as a server name (RFC 6066,
// section 3).
func (t *Table) ForAddress(local netip.Addr) *Policy {
	if p, ok := t.exact[local.Unmap().String()]; ok {
		return p
	}
	return t.nameless
}

// sites are the names of the sites with their policies' IDs.
func (t *Table) sites() map[string]string {
	sites := make(map[string]string)
	for _, names := range []map[string]*Policy{t.exact, t.wildcard} {
		for _, p := range names {
			sites[p.site] = p.ID()
		}
	}
	for _, p := range []*Policy{t.nameless, t.fallback} {
		if p != nil {
			sites[p.site] = p.ID()
		}
	}
	return sites
}
