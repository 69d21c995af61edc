// Package config is the schema of tlsproxy's configuration file.
//
//	cfg, err := config.Load("config.yaml")
//	if err != nil {
//		for _, line := range strings.Split(err.Error(), "\n") {
//			fmt.Fprintln(os.Stderr, line) // config.yaml:7: sites[0].hosts[0]: …
//		}
//	}
//
// A file goes through three steps. Parsing is strict: an unknown or duplicate
// key, a wrong type or a second document is an error. Defaulting fills every
// field that is absent or zero. Validation looks at the whole: names that
// point nowhere, hosts that overlap, combinations that would be insecure. Each
// step reports everything it finds, with file and line, so that one run shows
// all there is to mend.
//
// Names of files are absolute when a file is loaded: relative ones begin at the
// working directory.
//
// The conventions hold everywhere. Zero or absent means the documented
// default. Off is a word, never a zero; in the Go fields it is a negative
// number. Secrets are named by file, never written into the configuration.
//
// The package reads one file and nothing else: certificates, keys, CRLs and
// the like are opened by whoever uses them, and [Config.At] gives their errors
// the place in the configuration that named the file.
package config

import (
	"net/netip"
	"time"
)

// Config is a whole configuration file. What [Load] and [Parse] return is
// complete: every field holds its value or its default. It is not changed
// afterwards, so it may be shared.
type Config struct {
	// Listeners are the addresses on which TLS is terminated. At least one.
	Listeners []Listener `yaml:"listeners"`

	// HTTP is the plain listener that redirects to https and answers ACME
	// HTTP-01 challenges. None if its address is absent.
	HTTP HTTP `yaml:"http"`

	// Certificates are where certificates come from. At least one. The first
	// answers clients that send no server name or an unknown one, unless
	// another says default: true.
	Certificates []Certificate `yaml:"certificates"`

	// RejectUnknownSNI refuses handshakes for names without a certificate,
	// instead of answering with the default one. Clients that send no name get
	// the default one all the same.
	RejectUnknownSNI bool `yaml:"reject_unknown_sni"`

	// TLS is the policy of connections that no site claims, and what a site's
	// own tls section starts from, field by field.
	TLS TLS `yaml:"tls"`

	// Sessions sets the cache of TLS sessions.
	Sessions Sessions `yaml:"sessions"`

	// OCSP sets the cache of OCSP responses and how they are fetched.
	OCSP OCSP `yaml:"ocsp"`

	// Store is what replicas share: sessions, staples and ACME. None if absent.
	Store Store `yaml:"store"`

	// Sites say which hosts are served and where their requests go. At least one.
	Sites []Site `yaml:"sites"`

	// Upstreams are the pools of backends, by the name that routes use.
	Upstreams map[string]Upstream `yaml:"upstreams"`

	// Timeouts bound what a client may make the proxy wait for.
	Timeouts Timeouts `yaml:"timeouts"`

	// Limits bound what clients may use.
	Limits Limits `yaml:"limits"`

	// Shutdown sets how a drain goes.
	Shutdown Shutdown `yaml:"shutdown"`

	// Admin is the listener for health, metrics, dashboard and controls.
	Admin Admin `yaml:"admin"`

	// Log is the program's own log, on standard error.
	Log Log `yaml:"log"`

	// AccessLog is one record for each request.
	AccessLog AccessLog `yaml:"access_log"`

	// StateDir is the directory for what survives a restart: the development
	// CA, ACME accounts and certificates, OCSP responses, revocations. Default:
	// $STATE_DIRECTORY; else /var/lib/tlsproxy as root; else tlsproxy below the
	// user's state directory ($XDG_STATE_HOME or ~/.local/state).
	StateDir string `yaml:"state_dir"`

	file  string         // as named in errors
	lines map[string]int // path of every value in the file → its line
}

// Listener is an address on which TLS is terminated.
type Listener struct {
	// Address is host:port (":8443" means every address), systemd:NAME for a
	// socket passed by systemd under that name, or fd:N for an inherited file
	// descriptor.
	Address string `yaml:"address"`

	// ProxyProtocol says whether connections begin with a PROXY protocol header
	// (version 1 or 2): off, optional or required. A header counts only when
	// the connection comes from TrustedProxies, so the other two need them.
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol" default:"off"`

	// TrustedProxies are the networks whose word is taken for who the client
	// is: in PROXY headers, X-Forwarded-* and Forwarded. A single address is
	// a network of its own.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
}

// Port is the port of the address, 0 for a socket that was passed.
func (l Listener) Port() int {
	s, _ := parseSocket(l.Address) // validated
	return s.port
}

// HTTP is the plain HTTP listener.
type HTTP struct {
	// Address is as in [Listener.Address]. Absent: no plain listener.
	Address string `yaml:"address"`

	// RedirectPort is the port in the https URLs redirected to. Zero: for each
	// host the port of the first listener that serves it and has a port in its
	// address, else 443.
	RedirectPort int `yaml:"redirect_port" min:"1" max:"65535"`

	// ProxyProtocol is as in [Listener.ProxyProtocol].
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol" default:"off"`

	// TrustedProxies is as in [Listener.TrustedProxies].
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
}

// Timeouts bound what a client may make the proxy wait for.
type Timeouts struct {
	// Handshake is the time a TLS handshake may take, from accept on, or from
	// the end of the PROXY header.
	Handshake time.Duration `yaml:"handshake" default:"10s" max:"10m"`

	// ProxyHeader is the time in which a PROXY protocol header must arrive.
	ProxyHeader time.Duration `yaml:"proxy_header" default:"5s" max:"10m"`

	// RequestHeader is the time in which a request's header must arrive.
	RequestHeader time.Duration `yaml:"request_header" default:"10s" max:"1h"`

	// Read is the time that one read of a request body may wait for the client.
	Read time.Duration `yaml:"read" default:"60s" words:"off"`

	// Write is the time that one write to the client may wait: per write, never
	// per response, so that long streams live.
	Write time.Duration `yaml:"write" default:"60s" words:"off"`

	// Idle is how long a kept connection may be without a request.
	Idle time.Duration `yaml:"idle" default:"2m" words:"off"`

	// Upgraded is how long an upgraded connection such as WebSocket may be
	// without a byte in either direction.
	Upgraded time.Duration `yaml:"upgraded" default:"10m" words:"off"`
}

// Limits bound what clients may use.
type Limits struct {
	// Connections is how many connections all listeners together hold at once;
	// more wait to be accepted.
	Connections int `yaml:"connections" default:"20000" min:"1" words:"off"`

	// ConnectionsPerClient is how many of them one client address (IPv6: /64)
	// may have; more are closed. Default: off.
	ConnectionsPerClient int `yaml:"connections_per_client" default:"off" min:"1" words:"off"`

	// Handshakes is how many TLS handshakes are under way at once; more wait.
	Handshakes int `yaml:"handshakes" default:"8192" min:"1" words:"off"`

	// HandshakeRate limits the handshakes of one client address. Default: none.
	HandshakeRate Rate `yaml:"handshake_rate"`

	// Header is the greatest size of a request's header.
	Header Size `yaml:"header" default:"64KiB" min:"4KiB" max:"16MiB"`

	// Body is the greatest size of a request's body. Default: off.
	Body Size `yaml:"body" default:"off" min:"1B" words:"off"`

	// HTTP2Streams is how many requests one HTTP/2 connection may have at once.
	HTTP2Streams int `yaml:"http2_streams" default:"250" min:"1" max:"100000"`
}

// Rate is a token bucket. Zero: no limit.
type Rate struct {
	// PerSecond is the rate at which tokens return; fractions are fine.
	PerSecond float64 `yaml:"per_second" min:"0.001" max:"1000000"`

	// Burst is the size of the bucket. Default: PerSecond rounded
	// up.
	Burst int `yaml:"burst" min:"1" max:"10000000"`
}

// Shutdown sets how a drain goes: not ready, then Delay, then no new
// connections, then Grace for what is in flight.
type Shutdown struct {
	// Delay is how long connections are still accepted after /readyz has
	// begun to say no, so that balancers notice. Default: none.
	Delay time.Duration `yaml:"delay" max:"1h"`

	// Grace is how long requests in flight or on their way may still take.
	Grace time.Duration `yaml:"grace" default:"30s" max:"24h"`

	// UpgradedGrace is the same for upgraded connections such as WebSocket.
	UpgradedGrace time.Duration `yaml:"upgraded_grace" default:"30s" max:"24h"`
}

// DefaultAdminAddress is the default of [Admin.Address].
const DefaultAdminAddress = "127.0.0.1:9090"

// Admin is the listener for health, metrics, dashboard and controls.
type Admin struct {
	// Address is host:port, or off.
	Address string `yaml:"address" default:"127.0.0.1:9090"`

	// Hosts are names, beside localhost and addresses, under which browsers
	// reach it. Requests under others are refused, since they may come from
	// another site's page.
	Hosts []string `yaml:"hosts"`

	// AllowRemote permits an address that others than this machine can reach.
	// Whoever reaches it can read status and metrics, and use the controls.
	AllowRemote bool `yaml:"allow_remote"`

	// Ready adds conditions to /readyz.
	Ready Ready `yaml:"ready"`
}

// Ready adds conditions to /readyz, which otherwise says yes once the
// listeners serve and no again when a drain begins.
type Ready struct {
	// MustStaple makes it say no while a must-staple certificate is without a
	// valid staple.
	MustStaple bool `yaml:"must_staple"`

	// CertificateExpiry makes it say no when a served certificate has less
	// than this left. Default: off.
	CertificateExpiry time.Duration `yaml:"certificate_expiry" default:"off" words:"off"`
}

// Log is the program's own log, on standard error.
type Log struct {
	// Level is debug, info, warn or error.
	Level LogLevel `yaml:"level" default:"info"`

	// Format is json or text.
	Format LogFormat `yaml:"format" default:"json"`
}

// AccessLog is one record for each request.
type AccessLog struct {
	// Format is json: one object a line.
	Format AccessLogFormat `yaml:"format" default:"json"`

	// Query writes the query of requests too. Queries carry secrets.
	Query bool `yaml:"query"`

	// Output is stdout, stderr, off, or an absolute path of a file to append
	// to; SIGHUP opens it anew.
	Output string `yaml:"output" default:"stdout"`
}
