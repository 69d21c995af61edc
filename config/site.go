package config

import "time"

// Site says which hosts are served, under which TLS policy, and where their
// requests go.
type Site struct {
	// Name is the site's name in status, metrics and revocations. Default: the
	// first of Hosts.
	Name string `yaml:"name"`

	// Hosts are host names; "*.example.com" stands for one label, "*" for
	// any host; the most exact wins. IP addresses serve clients that connect
	// by address.
	Hosts []string `yaml:"hosts"`

	// Listeners are the addresses of the listeners that serve the site.
	// Default: all.
	Listeners []string `yaml:"listeners"`

	// TLS is the site's policy.
	TLS SiteTLS `yaml:"tls"`

	// HSTS is the Strict-Transport-Security header of responses that have none,
	// such as "max-age=31536000; includeSubDomains". Absent: not sent.
	HSTS string `yaml:"hsts"`

	// Request changes the headers of requests on their way to the backend.
	Request Headers `yaml:"request_headers"`

	// Response changes the headers of responses on their way to the client.
	Response Headers `yaml:"response_headers"`

	// Routes say where requests go. At least one.
	Routes []Route `yaml:"routes"`
}

// Headers changes headers: what is removed first, then what is set.
type Headers struct {
	// Set are headers with their value, in place of what was there.
	Set map[string]string `yaml:"set"`

	// Remove are the names of headers.
	Remove []string `yaml:"remove"`
}

// Route sends the requests below a path to an upstream. The longest path that
// matches wins.
type Route struct {
	// Path is a prefix on segment boundaries: /api and /api/ match /api and
	// /api/x, not /apix.
	Path string `yaml:"path" default:"/"`

	// Upstream is the name of the pool.
	Upstream string `yaml:"upstream"`

	// Name is the route's name in metrics and the access log. Default: the
	// site's name followed by Path.
	Name string `yaml:"name"`

	// Host is the Host sent to the backend. Default: as received.
	Host string `yaml:"host"`

	// Body is the greatest size of a request's body. Default: limits.body.
	Body Size `yaml:"body" min:"1B" words:"off"`
}

// Upstream is a pool of backends that answer alike.
type Upstream struct {
	// Backends are at least one of http://host:port (HTTP/1.1),
	// https://host:port (HTTP/2 or HTTP/1.1, as the backend chooses),
	// h2://host:port (HTTP/2 over TLS only), h2c://host:port (HTTP/2 without
	// TLS), unix:/path (HTTP/1.1), unix+h2c:/path; or builtin:echo, which
	// answers with what it received.
	Backends []string `yaml:"backends"`

	// Balance is round_robin, least_conn, or random_two (the one with fewer
	// requests in flight of two drawn at random).
	Balance Balance `yaml:"balance" default:"round_robin"`

	// TLS is how https and h2 backends are connected to.
	TLS ClientTLS `yaml:"tls"`

	// Health checks the backends.
	Health Health `yaml:"health"`

	// Retries is how many other backends are tried when nothing was sent yet.
	Retries int `yaml:"retries" default:"2" min:"1" max:"100" words:"off"`

	// DialTimeout is the time in which a connection must be made, TLS included.
	DialTimeout time.Duration `yaml:"dial_timeout" default:"5s" max:"10m"`

	// ResponseTimeout is the time in which a response must begin once the
	// request was sent; not for gRPC, whose servers may be silent for long.
	ResponseTimeout time.Duration `yaml:"response_timeout" default:"60s" words:"off"`

	// IdleTimeout is how long an unused connection is kept.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"60s" min:"1ms" max:"24h"`

	// MaxIdle is how many unused connections to one backend are kept.
	MaxIdle int `yaml:"max_idle" default:"256" min:"1" words:"off"`

	// MaxRequests is how many requests one backend has in flight at most,
	// upgraded connections included; beyond, 503 is answered. Default: off.
	MaxRequests int `yaml:"max_requests" default:"off" min:"1" words:"off"`

	// EjectAfter is how many connection attempts in a row must fail for a
	// backend to be left alone for EjectFor.
	EjectAfter int `yaml:"eject_after" default:"3" min:"1" words:"off"`

	// EjectFor is how long an ejected backend is left alone.
	EjectFor time.Duration `yaml:"eject_for" default:"10s" min:"1ms" max:"1h"`
}

// Health checks backends by requests of its own.
type Health struct {
	// Path is the path and query asked for. Absent: no checks.
	Path string `yaml:"path"`

	// Interval is the time between two checks.
	Interval time.Duration `yaml:"interval" default:"5s" min:"100ms" max:"24h"`

	// Timeout is the time in which the answer must have come.
	Timeout time.Duration `yaml:"timeout" default:"2s" min:"10ms" max:"10m"`

	// Rise is how many good answers in a row make a backend healthy.
	Rise int `yaml:"rise" default:"1" min:"1" max:"1000"`

	// Fall is how many bad ones in a row make it unhealthy. The first check after
	// the start decides alone.
	Fall int `yaml:"fall" default:"2" min:"1" max:"1000"`

	// Status is the status, or the range of them, of a good answer.
	Status StatusRange `yaml:"status" default:"200-399"`

	// Host is the Host header sent. Default: the backend's host.
	Host string `yaml:"host"`
}
