package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// validator looks at a configuration as a whole.
type validator struct {
	*problems
	c *Config
}

// validate reports everything in c that cannot work or must not. It opens
// nothing.
func validate(c *Config, p *problems) {
	v := &validator{problems: p, c: c}
	v.listeners()
	v.certificates()
	v.policy("tls", &c.TLS)
	v.sessions()
	v.ocsp()
	v.store()
	v.sites()
	v.upstreams()
	v.limits()
	v.admin()
	v.logs()
	v.stateDir()
}

// idx is the path of an element of a list.
func idx(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// needless reports fields that the file gives under path but that have no
// effect, which is more likely a mistake than a wish. The decider is the field
// whose value makes it so; if that could not be read nothing is known.
func (v *validator) needless(path, decider, why string, fields ...string) {
	if v.unread(path + "." + decider) {
		return
	}
	for _, f := range fields {
		if at := path + "." + f; v.c.Has(at) {
			v.add(at, "has no effect %s", why)
		}
	}
}

func (v *validator) listeners() {
	if len(v.c.Listeners) == 0 {
		v.add("listeners", `none: give at least one, such as {address: ":8443"}`)
	}
	var taken []socket
	for _, p := range v.c.sockets() {
		taken = v.address(p.path, p.address, taken)
	}
	for i, l := range v.c.Listeners {
		v.proxyProtocol(idx("listeners", i), l.ProxyProtocol, l.TrustedProxies)
	}
	if h := v.c.HTTP; h.Address != "" {
		v.proxyProtocol("http", h.ProxyProtocol, h.TrustedProxies)
	} else {
		v.needless("http", "address", "without address", "redirect_port", "proxy_protocol", "trusted_proxies")
	}
}

// address checks an address to listen on and that it is not among those taken,
// to which it is then added.
func (v *validator) address(path, address string, taken []socket) []socket {
	if address == "" {
		v.add(path, `missing: write it like ":8443", "127.0.0.1:8443", systemd:NAME or fd:3`)
		return taken
	}
	s, err := parseSocket(address)
	if err != nil {
		v.add(path, "%w", err)
		return taken
	}
	s.path = path
	for _, t := range taken {
		if s.overlaps(t) {
			v.add(path, "%q cannot be bound beside %s on line %d: give each a port of its own", address, t.path, v.c.line(t.path))
			break
		}
	}
	return append(taken, s)
}

func (v *validator) proxyProtocol(path string, mode ProxyProtocol, trusted []netip.Prefix) {
	if (mode == ProxyOptional || mode == ProxyRequired) && len(trusted) == 0 && !v.unread(path+".trusted_proxies") {
		v.add(path+".proxy_protocol", "%s needs trusted_proxies: list the networks of your balancers", mode)
	}
	for i, p := range trusted {
		if p.IsValid() && p.Bits() == 0 {
			v.add(idx(path+".trusted_proxies", i), "%s trusts everybody, who could then claim any client address: list the networks of your balancers", p)
		}
	}
}

func (v *validator) sessions() {
	s := &v.c.Sessions
	if s.ClientAuthLifetime > s.Lifetime {
		v.add("sessions.client_auth_lifetime", "%s is longer than lifetime %s", s.ClientAuthLifetime, s.Lifetime)
	}
	if w := time.Duration(s.ReuseWindow); w > s.Lifetime {
		v.add("sessions.reuse_window", "%s is longer than lifetime %s: write unlimited if that is meant", w, s.Lifetime)
	}
}

func (v *validator) ocsp() {
	o := &v.c.OCSP
	for _, from := range sortedKeys(o.Overrides) {
		to, path := o.Overrides[from], join("ocsp.overrides", from)
		if err := checkURL(from, "http", "https"); err != nil {
			v.add(path, "%w", err)
		}
		if to == "off" {
			continue
		}
		if err := checkURL(to, "http", "https"); err != nil {
			v.add(path, "%w (or off)", err)
		}
	}
	if o.Proxy != "" && o.Proxy != "off" {
		if err := checkURL(o.Proxy, "http", "https", "socks5"); err != nil {
			v.add("ocsp.proxy", "%w (or off)", err)
		}
	}
}

func (v *validator) store() {
	s := &v.c.Store
	r := s.Redis
	if r == nil {
		v.needless("store", "redis", "without redis", "key_file", "timeout", "queue")
		return
	}
	if s.KeyFile == "" {
		v.add("store.key_file", "missing: whoever reads the store could take over sessions; name a file with a key (openssl rand -hex 32)")
	}
	v.redis(r)
	v.redisMode(r)
}

func (v *validator) redis(r *Redis) {
	const path = "store.redis"
	if len(r.Addresses) == 0 {
		v.add(path+".addresses", "none: give host:port")
	}
	for i, a := range r.Addresses {
		at := idx(path+".addresses", i)
		if sock, ok := strings.CutPrefix(a, "unix:"); ok {
			if !filepath.IsAbs(sock) {
				v.add(at, "%q: the path of a unix socket is absolute: unix:/run/redis.sock", a)
			}
			continue
		}
		if _, _, err := splitHostPort(a); err != nil {
			v.add(at, "%w", err)
		}
		if slices.Contains(r.Addresses[:i], a) {
			v.add(at, "duplicate")
		}
	}
	if r.Username != "" && r.PasswordFile == "" {
		v.add(path+".username", "needs password_file")
	}
	if r.TLS != nil {
		v.clientTLS(path+".tls", r.TLS)
	}
}

// redisMode checks what depends on the mode.
func (v *validator) redisMode(r *Redis) {
	const path = "store.redis"
	switch r.Mode {
	case RedisSentinel:
		if r.MasterName == "" {
			v.add(path+".master_name", "missing: the name that the Sentinels know the master by")
		}
		if r.SentinelUsername != "" && r.SentinelPasswordFile == "" {
			v.add(path+".sentinel_username", "needs sentinel_password_file")
		}
		return
	case RedisCluster:
		v.needless(path, "mode", "in mode cluster", "db")
	case RedisSingle:
		if len(r.Addresses) > 1 {
			v.add(path+".addresses", "%d addresses in mode single: name one, or say mode: sentinel or mode: cluster", len(r.Addresses))
		}
	}
	v.needless(path, "mode", "unless mode is sentinel", "master_name", "sentinel_username", "sentinel_password_file")
}

// clientTLS checks how tlsproxy itself connects to a TLS server.
func (v *validator) clientTLS(path string, t *ClientTLS) {
	if t.Cert != "" && t.Key == "" {
		v.add(path+".cert", "needs key")
	}
	if t.Key != "" && t.Cert == "" {
		v.add(path+".key", "needs cert")
	}
	if t.ServerName != "" {
		if err := checkName(t.ServerName); err != nil {
			v.add(path+".server_name", "%w", err)
		}
	}
}

func (v *validator) limits() {
	l := &v.c.Limits
	if l.HandshakeRate.PerSecond == 0 {
		v.needless("limits.handshake_rate", "per_second", "without per_second", "burst")
	}
	if l.Connections > 0 && l.ConnectionsPerClient > l.Connections {
		v.add("limits.connections_per_client", "%d is more than connections %d", l.ConnectionsPerClient, l.Connections)
	}
}

func (v *validator) admin() {
	a := &v.c.Admin
	for i, h := range a.Hosts {
		if err := checkName(h); err != nil {
			v.add(idx("admin.hosts", i), "%w", err)
		}
	}
	s, err := parseSocket(a.Address)
	if a.Address == "off" || err != nil || s.name != "" {
		return
	}
	if !s.loopback() && !a.AllowRemote {
		v.add("admin.address", "%q can be reached from other machines, and with it the status and the controls: use 127.0.0.1, or say allow_remote: true where the network keeps others out", a.Address)
	}
}

func (v *validator) logs() {
	switch out := v.c.AccessLog.Output; {
	case out == "stdout", out == "stderr", out == "off", filepath.IsAbs(out):
	default:
		_, hint := suggest(out, []string{"stdout", "stderr", "off"})
		v.add("access_log.output", "%q is neither known nor an absolute path: %s", clip(out), hint)
	}
}

func (v *validator) stateDir() {
	dir := v.c.StateDir
	switch {
	case dir == "":
		if v.needsState() {
			v.add("state_dir", "missing, and neither $STATE_DIRECTORY, $XDG_STATE_HOME nor $HOME says where state may be kept")
		}
	case !filepath.IsAbs(dir):
		v.add("state_dir", "%q is not an absolute path", clip(dir))
	}
}

// needsState reports whether a source of certificates keeps state on disk.
func (v *validator) needsState() bool {
	return slices.ContainsFunc(v.c.Certificates, func(c Certificate) bool {
		return c.Local != nil || c.ACME != nil && v.c.Store.Redis == nil
	})
}
