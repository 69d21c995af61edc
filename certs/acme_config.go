package certs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

// acmeIssuer is an Issuer with the contents of its files.
type acmeIssuer struct {
	directory string
	profile   string
	roots     *x509.CertPool // nil: the system's
	eab       *acme.EAB
}

// acmeBuilder turns an ACME configuration into a source and notes what is
// wrong with it.
type acmeBuilder struct {
	source *acmeSource
	errs   []*fieldError
	files  [][]byte // contents of all files, for the identity
}

func (b *acmeBuilder) fail(field, format string, args ...any) {
	b.errs = append(b.errs, &fieldError{field: "acme." + field, err: fmt.Errorf(format, args...)})
}

// read reads a file that a field names.
func (b *acmeBuilder) read(field, path string) ([]byte, bool) {
	data, err := readFile(path)
	if err != nil {
		b.errs = append(b.errs, &fieldError{field: "acme." + field, file: path, err: err})
		return nil, false
	}
	b.files = append(b.files, data)
	return data, true
}

// newACMESource validates a source and fills in defaults.
func (s *Store) newACMESource(src *Source) (*acmeSource, []*fieldError) {
	config := *src.ACME
	b := &acmeBuilder{source: &acmeSource{config: &config, def: src.Default}}
	b.hosts()
	b.issuers()
	b.challenges()
	b.onDemand()
	switch config.KeyType = cmp.Or(config.KeyType, KeyECDSAP256); config.KeyType {
	case KeyECDSAP256, KeyECDSAP384, KeyRSA2048, KeyRSA4096, KeyEd25519:
	default:
		b.fail("key_type", "unknown key type %q: it can be ecdsa-p256, ecdsa-p384, rsa-2048, rsa-4096 or ed25519", config.KeyType)
	}
	var files certmagic.Storage
	if s.options.StateDir != "" {
		files = &certmagic.FileStorage{Path: filepath.Join(s.options.StateDir, "acme")}
	}
	switch {
	case s.options.Storage != nil:
		b.source.storage, b.source.local = s.options.Storage, files
	case files != nil:
		b.source.storage = files
	default:
		b.errs = append(b.errs, &fieldError{field: "acme", err: errors.New("a state directory or a shared store is needed to keep certificates in")})
	}
	b.identify()
	return b.source, b.errs
}

func (b *acmeBuilder) hosts() {
	c := b.source.config
	names, errs := canonicalHosts("acme.hosts", c.Hosts)
	b.errs = append(b.errs, errs...)
	if len(c.Hosts) == 0 && c.OnDemand == nil {
		b.fail("hosts", "at least one name is needed, or on_demand")
	}
	c.Hosts = names
}

func (b *acmeBuilder) issuers() {
	c := b.source.config
	if len(c.Issuers) == 0 {
		c.Issuers = []Issuer{{}}
	}
	seen := make(map[string]bool)
	for i := range c.Issuers {
		is := c.Issuers[i] // a copy: the caller's list stays as it is
		field := fmt.Sprintf("issuers[%d]", i)
		is.Directory = cmp.Or(is.Directory, certmagic.LetsEncryptProductionCA)
		b.directory(field+".directory", is.Directory)
		if seen[is.Directory] {
			b.fail(field+".directory", "%q is there twice", is.Directory)
		}
		seen[is.Directory] = true
		b.source.issuers = append(b.source.issuers, acmeIssuer{
			directory: is.Directory,
			profile:   is.Profile,
			roots:     b.roots(field+".ca_file", is.CAFile),
			eab:       b.eab(field+".eab", is.EAB),
		})
	}
}

// directory checks a URL: without TLS a stranger could stand in for the CA.
func (b *acmeBuilder) directory(field, directory string) {
	u, err := url.Parse(directory)
	switch {
	case err != nil:
		b.fail(field, "%w", err)
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		b.fail(field, "%q is not an https URL", directory)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		b.fail(field, "%q: a CA is spoken to by https only, except on this host", directory)
	}
}

func (b *acmeBuilder) roots(field, file string) *x509.CertPool {
	if file == "" {
		return nil
	}
	data, ok := b.read(field, file)
	if !ok {
		return nil
	}
	certs, err := parseCertificates(data)
	if err != nil {
		b.errs = append(b.errs, &fieldError{field: "acme." + field, file: file, err: err})
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

func (b *acmeBuilder) eab(field string, e *EAB) *acme.EAB {
	if e == nil {
		return nil
	}
	if e.KeyID == "" {
		b.fail(field+".key_id", "is missing")
	}
	if e.KeyFile == "" {
		b.fail(field+".key_file", "is missing")
		return nil
	}
	data, ok := b.read(field+".key_file", e.KeyFile)
	if !ok {
		return nil
	}
	key := strings.TrimRight(strings.TrimSpace(string(data)), "=")
	if raw, err := base64.RawURLEncoding.DecodeString(key); err != nil || len(raw) == 0 {
		b.errs = append(b.errs, &fieldError{field: "acme." + field + ".key_file", file: e.KeyFile, err: errors.New("not a key in base64url")})
	}
	return &acme.EAB{KeyID: e.KeyID, MACKey: key}
}

func (b *acmeBuilder) challenges() {
	c := b.source.config
	given := c.Challenges
	switch {
	case len(c.Challenges) > 0:
	case c.DNS != nil:
		c.Challenges = []Challenge{DNS01}
	default:
		c.Challenges = []Challenge{HTTP01, TLSALPN01}
	}
	for i, ch := range given {
		if ch != HTTP01 && ch != TLSALPN01 && ch != DNS01 {
			b.fail(fmt.Sprintf("challenges[%d]", i), "unknown challenge %q: it can be http-01, tls-alpn-01 or dns-01", ch)
		}
	}
	dns := slices.Contains(c.Challenges, DNS01)
	switch {
	case dns && len(c.Challenges) > 1:
		b.fail("challenges", "dns-01 excludes the others")
	case dns && c.DNS == nil:
		b.fail("dns", "dns-01 needs a name server to send updates to")
	case !dns && c.DNS != nil:
		b.fail("challenges", "dns is given but dns-01 is not used")
	}
	if c.DNS != nil {
		b.dns()
	}
	for i, host := range c.Hosts {
		if strings.HasPrefix(host, "*.") && !dns {
			b.fail(fmt.Sprintf("hosts[%d]", i), "the wildcard %q can only be obtained by dns-01", host)
		}
		if isIP(host) && dns {
			b.fail(fmt.Sprintf("hosts[%d]", i), "the address %q cannot be obtained by dns-01", host)
		}
	}
}

func (b *acmeBuilder) dns() {
	d := *b.source.config.DNS
	b.source.config.DNS = &d
	const field = "dns.rfc2136."
	if d.Server == "" {
		b.fail(field+"server", "is missing")
	} else if _, _, err := net.SplitHostPort(d.Server); err != nil {
		d.Server = net.JoinHostPort(strings.Trim(d.Server, "[]"), "53")
	}
	if _, ok := canonicalName(d.KeyName); !ok || d.KeyName == "" {
		b.fail(field+"key_name", "%q is not the name of a key", d.KeyName)
	}
	d.Algorithm = strings.TrimSuffix(strings.ToLower(cmp.Or(d.Algorithm, "hmac-sha256")), ".")
	if !slices.Contains([]string{"hmac-sha256", "hmac-sha512", "hmac-sha384", "hmac-sha224", "hmac-sha1"}, d.Algorithm) {
		b.fail(field+"key_algorithm", "unknown algorithm %q: it can be hmac-sha256, hmac-sha512, hmac-sha384, hmac-sha224 or hmac-sha1", d.Algorithm)
	}
	if d.Zone != "" {
		zone, ok := canonicalName(d.Zone)
		if !ok {
			b.fail(field+"zone", "%q is not a zone", d.Zone)
		}
		d.Zone = zone
	}
	if d.KeyFile == "" {
		b.fail(field+"key_file", "is missing")
		return
	}
	data, ok := b.read(field+"key_file", d.KeyFile)
	if !ok {
		return
	}
	secret := strings.TrimSpace(string(data))
	if raw, err := base64.StdEncoding.DecodeString(secret); err != nil || len(raw) == 0 {
		b.errs = append(b.errs, &fieldError{field: "acme." + field + "key_file", file: d.KeyFile, err: errors.New("not a key in base64")})
	}
	b.source.dns = newDNSProvider(&d, secret)
}

func (b *acmeBuilder) onDemand() {
	if b.source.config.OnDemand == nil {
		return
	}
	o := *b.source.config.OnDemand
	b.source.config.OnDemand = &o
	if o.Ask == "" && len(o.Allow) == 0 {
		b.fail("on_demand", "ask, allow or both are needed: without them everybody could have certificates obtained")
	}
	if o.Ask != "" {
		if u, err := url.Parse(o.Ask); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			b.fail("on_demand.ask", "%q is not an http or https URL", o.Ask)
		}
	}
	allow, errs := canonicalHosts("acme.on_demand.allow", o.Allow)
	b.errs = append(b.errs, errs...)
	o.Allow = allow
	if o.Window < 0 || o.Wait < 0 {
		b.fail("on_demand", "window and wait must not be negative")
	}
	b.source.demand = newOnDemand(&o)
}

// identify makes the identity of the finished configuration.
func (b *acmeBuilder) identify() {
	text, err := json.Marshal(b.source.config)
	if err != nil {
		panic(err) // it consists of strings and numbers
	}
	sum := sha256.Sum256(bytes.Join(b.files, []byte{0}))
	b.source.identity = fmt.Sprintf("%v %s %x", b.source.def, text, sum)
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
