// Package upstream sends requests to a pool of backends.
//
// A [Pool] is an [http.RoundTripper]: it chooses a backend, sends the request,
// and tries another backend when nothing of the request was sent.
//
//	pool, err := upstream.New(upstream.Options{
//		Name:     "web",
//		Backends: []upstream.Backend{{URL: "http://127.0.0.1:8081"}},
//	})
//	go pool.Run(ctx) // health checks
//	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: pool}
//
// A backend is out of the choice while its health check says that it is down,
// while it is ejected after failed connection attempts, and while it has as many
// requests in flight as it may have. Requests are never queued: when no backend
// is left the request fails at once.
//
// The package does not rewrite requests beyond the scheme and the address they
// are sent to: path, query, Host and headers leave as they came in. It does not
// cache, compress or follow redirects.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Errors that [Pool.RoundTrip] returns, wrapped. A caller maps them to a status.
var (
	// ErrUnavailable says that every backend is down.
	ErrUnavailable = errors.New("no backend is up")
	// ErrBusy says that every backend that is up has reached MaxRequests.
	ErrBusy = errors.New("every backend is at its limit of requests")
	// ErrTimeout says that a backend did not accept the connection, or did not
	// begin its response, in time.
	ErrTimeout = errors.New("backend did not answer in time")
)

// Balance is the way in which a pool chooses among the backends that are up.
type Balance int

const (
	// RoundRobin takes the backends in turn.
	RoundRobin Balance = iota
	// LeastConn takes the backend with the fewest requests in flight, upgraded
	// connections included; in turn among equals.
	LeastConn
	// RandomTwo draws two backends and takes the one with fewer in flight.
	RandomTwo
)

// Backend is one server that requests can be sent to.
type Backend struct {
	// URL says where the backend is and what it speaks:
	//
	//	http://host:port   HTTP/1.1
	//	https://host:port  HTTP/2 or HTTP/1.1 over TLS, as the backend chooses (ALPN)
	//	h2://host:port     HTTP/2 over TLS only
	//	h2c://host:port    HTTP/2 without TLS, with prior knowledge
	//	unix:/path         HTTP/1.1 over a unix socket
	//	unix+h2c:/path     HTTP/2 without TLS over a unix socket
	//
	// The port defaults to 80 or 443. A path, a query and user information are
	// errors for the schemes with a host. Names are resolved at each new connection.
	URL string
	// Transport, if not nil, is used in place of the network; URL is then only a
	// name. It is never health checked.
	Transport http.RoundTripper
}

// Health configures active health checks: GET requests made by [Pool.Run].
type Health struct {
	// Path is the path and query asked for; "" switches the checks off.
	Path string
	// Host is the Host sent; "" means the host of the backend's URL.
	Host string
	// Interval is the time from one check to the next, give or take a tenth so that
	// checks do not march in step; zero means 5 s.
	Interval time.Duration
	// Timeout bounds one check, from dialing to the end of the response headers;
	// zero means 2 s.
	Timeout time.Duration
	// Rise is how many checks in a row must pass to bring a backend up; zero means 1.
	Rise int
	// Fall is how many checks in a row must fail to take a backend down; zero means 2.
	// The first check of a new backend, or with another Path, Host or status, decides
	// alone.
	Fall int
	// StatusMin and StatusMax bound the statuses that pass, inclusively; zero means
	// 200 and 399.
	StatusMin, StatusMax int
}

// Options configures a [Pool]. Only Backends is required.
type Options struct {
	// Name is the name of the pool in errors, logs and [Status].
	Name string
	// Backends are the servers; at least one, all different.
	Backends []Backend
	// Balance chooses among the backends that are up.
	Balance Balance
	// TLS returns how to connect to https and h2 backends; nil, and an empty
	// configuration, verify against the system's roots. A ServerName takes the place
	// of the host of the URL. It is asked at each connection; what it returns is not
	// modified, and sessions of one pointer are not resumed with another.
	TLS func() *tls.Config
	// Health configures active checks; off when its Path is empty.
	Health Health

	// DialTimeout bounds one connection attempt including the TLS handshake; zero
	// means 5 s.
	DialTimeout time.Duration
	// ResponseHeaderTimeout bounds the wait for the response headers once the
	// request has been sent; zero means 60 s, negative no bound. It does not apply to
	// gRPC, whose servers may stay silent until they have a message.
	ResponseHeaderTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept; zero means 60 s.
	IdleTimeout time.Duration
	// MaxIdle is how many unused connections are kept per backend; zero means 256,
	// negative none.
	MaxIdle int
	// MaxRequests bounds the requests in flight at one backend, upgraded connections
	// included; over HTTP/1.1 that bounds its connections. Zero means no bound.
	MaxRequests int
	// Retries is how many other backends are tried when nothing of a request was
	// sent; zero means 2, negative none.
	Retries int
	// EjectAfter is how many connection attempts in a row must fail to eject a backend;
	// zero means 3, negative switches ejection off. The backends that are left are
	// never all ejected: a pool in which every backend is ejected tries them all.
	EjectAfter int
	// EjectFor is how long an ejected backend is left alone; zero means 10 s.
	EjectFor time.Duration

	// Ledger has what is known of the backends from the pools that this one takes
	// over from; nil means nothing, and that nobody takes over from it.
	Ledger *Ledger
	// Logger takes changes of state; nil means [slog.Default].
	Logger *slog.Logger

	// dial replaces net.Dialer.DialContext in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Trace receives what a [Pool] did with one request whose context has it under
// [TraceKey]. The fields may be read once RoundTrip has returned.
type Trace struct {
	// Upstream is the name of the pool.
	Upstream string
	// Backend is the URL of the last backend tried.
	Backend string
	// Tries is how many backends were tried.
	Tries int

	connect atomic.Int64 // nanoseconds; dialing goroutines may outlive the request
}

// Connect is the time spent opening a connection for the request, zero when one
// was reused.
func (t *Trace) Connect() time.Duration { return time.Duration(t.connect.Load()) }

// TraceKey is the context key under which a *Trace is found.
type TraceKey struct{}
