package config

import "time"

// Site says which hosts are served, under which TLS policy, and where their
// requests go.
type Site struct {
	// Name is the site's name in status, metrics and revocations. Default: the
	// first of Hosts.
	Name string `yaml:"name"`

	// Hosts are host names; "*.example.com" stands for one label; exact names
	// go first. IP addresses serve clients that connect by address.
	Hosts []string `yaml:"hosts"`

	// Listeners are the addresses of the listeners that serve the site.
	// Default: all.
	Listeners []string `yaml:"listeners"`

	// TLS is the site's policy.
	TLS SiteTLS `yaml:"tls"`

	// Routes say where requests go. At least one.
	Routes []Route `yaml:"routes"`
}

// Route sends the requests below a path to an upstream. The longest path that
// matches wins.
type Route struct {
	// Path is a prefix on segment boundaries: /api and /api/ match /api and
	// /api/x, not /apix.
	Path string `yaml:"path" default:"/"`

	// Upstream is the name of the pool.
	Upstream string `yaml:"upstream"`
}

// Upstream is a pool of backends that answer alike.
type Upstream struct {
	// Backends are URLs without path: http://host:port, https://host:port,
	// h2c://host:port, unix:/path (HTTP/1.1), h2c+unix:/path; or builtin:echo,
	// which answers with what it received. At least one.
	Backends []string `yaml:"backends"`

	// Balance is round_robin or least_conn.
	Balance Balance `yaml:"balance" default:"round_robin"`

	// TLS is how https backends are connected to.
	TLS ClientTLS `yaml:"tls"`

	// Health checks the backends.
	Health Health `yaml:"health"`

	// Retries is how many other backends are tried when nothing was sent yet.
	Retries int `yaml:"retries" default:"2" min:"1" max:"100" words:"off"`

	// DialTimeout is the time in which a connection must be made, TLS included.
	DialTimeout time.Duration `yaml:"dial_timeout" default:"5s" max:"10m"`

	// ResponseTimeout is the time in which a response must begin once the
	// request was sent.
	ResponseTimeout time.Duration `yaml:"response_timeout" default:"60s" words:"off"`

	// IdleTimeout is how long an idle connection is kept.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"90s" words:"off"`

	// MaxIdle is how many idle connections to one backend are kept.
	MaxIdle int `yaml:"max_idle" default:"256" min:"1" words:"off"`
}

// Health checks backends by requests of its own.
type Health struct {
	// Path is what is asked for. Absent: no checks.
	Path string `yaml:"path"`

	// Interval is the time between two checks.
	Interval time.Duration `yaml:"interval" default:"5s" min:"100ms" max:"24h"`

	// Timeout is the time in which the answer must have come.
	Timeout time.Duration `yaml:"timeout" default:"2s" min:"10ms" max:"10m"`

	// Rise is how many good answers in a row make a backend healthy.
	Rise int `yaml:"rise" default:"2" min:"1" max:"1000"`

	// Fall is how many bad ones make it unhealthy.
	Fall int `yaml:"fall" default:"3" min:"1" max:"1000"`

	// Status is the status of a good answer. Default: any of 200 to 399.
	Status int `yaml:"status" min:"100" max:"599"`

	// Host is the Host header sent. Default: the backend's host.
	Host string `yaml:"host"`
}
