package config

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// letsEncrypt is the default of [ACME.Directory].
const letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// setDefaults fills every field that is zero with its documented default.
func setDefaults(c *Config) {
	fillTags(reflect.ValueOf(&c.TLS).Elem())
	for i := range c.Sites {
		inheritTLS(&c.Sites[i].TLS.TLS, &c.TLS)
	}
	fillTags(reflect.ValueOf(c).Elem())
	absoluteFiles(reflect.ValueOf(c).Elem(), "")
	canonicalHosts(c)

	for i := range c.Sites {
		defaultSite(&c.Sites[i])
	}
	for i := range c.Certificates {
		if a := c.Certificates[i].ACME; a != nil {
			defaultACME(a, c.HTTP.Address != "")
		}
	}
	if r := &c.Limits.HandshakeRate; r.PerSecond > 0 && r.Burst == 0 {
		r.Burst = max(1, int(math.Ceil(r.PerSecond)))
	}
	if c.Sessions.ClientAuthLifetime == 0 {
		c.Sessions.ClientAuthLifetime = min(time.Hour, c.Sessions.Lifetime)
	}
	if c.StateDir == "" {
		c.StateDir = defaultStateDir(os.Getenv, os.Geteuid())
	}
}

// inheritTLS fills the zero fields of a site's policy from the one at the top.
func inheritTLS(site, top *TLS) {
	s, t := reflect.ValueOf(site).Elem(), reflect.ValueOf(top).Elem()
	for i := range s.NumField() {
		if s.Field(i).IsZero() {
			s.Field(i).Set(t.Field(i))
		}
	}
}

// fillTags gives every zero field below v the default of its tag.
func fillTags(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillTags(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			fillTags(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(k))
			fillTags(elem)
			v.SetMapIndex(k, elem)
		}
	case reflect.Struct:
		if isScalar(v.Type()) {
			return
		}
		for _, f := range fieldsOf(v.Type()) {
			fillField(v.FieldByIndex(f.index), f.tag)
		}
	}
}

func fillField(v reflect.Value, tag reflect.StructTag) {
	text := tag.Get("default")
	if text == "" || !v.IsZero() {
		fillTags(v)
		return
	}
	if err := setScalar(v, text, tag); err != nil {
		panic("config: default " + strconv.Quote(text) + ": " + err.Error()) // a mistake in the schema
	}
}

// canonicalHosts brings every host into the form in which hosts are compared.
func canonicalHosts(c *Config) {
	canonical := func(hosts []string) {
		for i, h := range hosts {
			hosts[i] = canonicalHost(h)
		}
	}
	for i := range c.Sites {
		canonical(c.Sites[i].Hosts)
	}
	canonical(c.Admin.Hosts)
	for i := range c.Certificates {
		if l := c.Certificates[i].Local; l != nil {
			canonical(l.Hosts)
		}
		if a := c.Certificates[i].ACME; a != nil {
			canonical(a.Hosts)
			if a.OnDemand != nil {
				canonical(a.OnDemand.Allow)
			}
		}
	}
}

func defaultSite(s *Site) {
	if s.Name == "" && len(s.Hosts) > 0 {
		s.Name = s.Hosts[0]
	}
	for i := range s.Routes {
		if s.Routes[i].Name == "" {
			s.Routes[i].Name = s.Name + s.Routes[i].Path
		}
	}
}

func defaultACME(a *ACME, plainHTTP bool) {
	if len(a.Issuers) == 0 {
		a.Issuers = []Issuer{{Directory: a.Directory, CAFile: a.CAFile, Profile: a.Profile, EAB: a.EAB}}
	}
	for i := range a.Issuers {
		if a.Issuers[i].Directory == "" {
			a.Issuers[i].Directory = letsEncrypt
		}
	}
	if len(a.Challenges) > 0 {
		return
	}
	a.Challenges = []string{"tls-alpn-01"}
	if plainHTTP {
		a.Challenges = append(a.Challenges, "http-01")
	}
	if a.DNS != nil {
		a.Challenges = []string{"dns-01"}
	}
}

func defaultStateDir(getenv func(string) string, euid int) string {
	if dir := getenv("STATE_DIRECTORY"); dir != "" {
		first, _, _ := strings.Cut(dir, ":") // systemd lists several with colons
		return first
	}
	if euid == 0 {
		return "/var/lib/tlsproxy"
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tlsproxy")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "tlsproxy")
	}
	return ""
}
