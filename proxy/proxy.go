// Package proxy is the HTTP side of a TLS-terminating reverse proxy: a [Handler]
// finds the site by Host and the route by path, forwards the request, and says
// afterwards what happened in one [Record].
//
//	h, err := proxy.New(proxy.Options{
//		Sites: []proxy.Site{{
//			Hosts:  []string{"app.example.com"},
//			Routes: []proxy.Route{{Path: "/", Upstream: pool}},
//		}},
//		ConnInfo: connInfo,
//	})
//
// A handler is immutable: a new configuration is a new handler. What has to
// outlive a configuration is given to it: the [Upgrades] that a shutdown waits
// for, and the [Observer].
//
// # Routing
//
// The most specific host wins (exact, then "*.example.com" for exactly one label,
// then "*"), then the longest path on segment boundaries: /api is the route of
// /api and /api/x, not of /apix. Path and query reach the backend byte for byte.
// Because backends differ in how they read encoded slashes, dot segments, empty
// segments, backslashes and path parameters, the route is looked up for every
// reading of the path, and a path whose readings belong to different routes is
// refused with 400: no spelling reaches the backend of another route.
//
// # Trust
//
// X-Forwarded-*, Forwarded, X-Real-IP, X-Request-ID and their like are believed
// and appended to if the client's address is in TrustedProxies, and replaced or
// removed otherwise. Headers that carry the identity of a client certificate are
// always removed before the proxy sets its own.
//
// The package does not terminate TLS, keep responses, compress, or rewrite paths.
package proxy

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"time"
)

// Conn is what the proxy has to know of the connection that a request came on.
// It is not changed after it was handed over.
type Conn struct {
	// PolicyID names the TLS policy that the connection was accepted under. Requests
	// for a site with another PolicyID are answered with 421 (Misdirected Request).
	PolicyID string
	// TLS says that the connection is encrypted; the fields below it are zero if not.
	TLS bool
	// SNI is the server name of the handshake, "" if there was none.
	SNI string
	// Version and CipherSuite are those of crypto/tls.
	Version     uint16
	CipherSuite uint16
	// Resumed says that the handshake resumed a session.
	Resumed bool
	// ClientChain is the verified chain of the client's certificate, from the leaf to
	// the root. It must be nil for a certificate that was not verified.
	ClientChain []*x509.Certificate
	// Client is the address of the client: of the PROXY header where there is a
	// trusted one, else of the TCP peer.
	Client netip.AddrPort
}

// Site is a set of hosts with the same routes.
type Site struct {
	// Name labels records; "" means the first host.
	Name string
	// Hosts are names in canonical form: lower case, ASCII, no trailing dot. A first
	// label "*" stands for exactly one label, "*" alone for any host. IP addresses
	// have no brackets. No two sites share a host.
	Hosts []string
	// PolicyID returns the TLS policy that the site has now; see [Conn]. It is
	// asked for each request. Nil stands for the empty one.
	PolicyID func() string
	// Routes are the routes; the longest path wins.
	Routes []Route
	// HSTS is the Strict-Transport-Security header of responses over TLS that do not
	// have one, the proxy's own too; "" sends none.
	HSTS string
	// Identity configures what backends are told of client certificates.
	Identity Identity
	// Request and Response change headers for all routes.
	Request, Response HeaderRules
}

// Route sends the paths below Path to an upstream.
type Route struct {
	// Name labels records and metrics; "" means the site's name followed by Path.
	Name string
	// Path is a prefix on segment boundaries; "/" matches everything, and a slash at
	// the end of a longer path means nothing. It is compared decoded and is
	// case-sensitive.
	Path string
	// Upstream sends the requests, usually an [upstream.Pool].
	Upstream http.RoundTripper
	// UpstreamName labels records.
	UpstreamName string
	// Host replaces the Host sent to the backend; "" leaves it as received.
	Host string
	// MaxBodyBytes bounds request bodies; zero means the handler's, negative no bound.
	MaxBodyBytes int64
}

// HeaderRules change the headers of a message. Remove comes before Set. Framing
// and connection headers, and those the proxy sets itself, cannot be changed.
type HeaderRules struct {
	Set    map[string]string
	Remove []string
}

// Identity says how the backend learns of a verified client certificate. Incoming
// copies of Client-Cert and Client-Cert-Chain, and of every header named here in
// any site of the handler, are removed from all requests.
type Identity struct {
	// Cert sends the certificate as Client-Cert (RFC 9440, section 2.2).
	Cert bool
	// Chain sends the intermediates as Client-Cert-Chain (RFC 9440, section 2.3);
	// the trust anchor is left out.
	Chain bool
	// Subject, Serial, Fingerprint and Verify are names of headers, "" for none, that
	// carry the subject (RFC 2253), the serial number (hexadecimal), the SHA-256 of
	// the certificate (hexadecimal), and the result: SUCCESS or NONE.
	Subject, Serial, Fingerprint, Verify string
}

// Options configures a [Handler]. Only Sites is required.
type Options struct {
	// Sites are the sites.
	Sites []Site
	// IdentityHeaders are names of headers that are removed from all requests, beside
	// those that Sites name: give every handler those of all handlers, since sites of
	// several listeners may share a backend.
	IdentityHeaders []string
	// TrustedProxies are the clients whose forwarding headers are believed.
	TrustedProxies []netip.Prefix
	// ConnInfo finds the connection of a request in its context. Nil, or a nil result,
	// means a plain connection from the request's RemoteAddr with no policy.
	ConnInfo func(context.Context) *Conn
	// Observer is told of every request; nil means nobody.
	Observer Observer
	// Upgrades tracks upgraded connections; nil means an own one.
	Upgrades *Upgrades
	// UpgradeIdleTimeout ends an upgraded connection on which no byte moved in either
	// direction; zero means 10 minutes, negative never.
	UpgradeIdleTimeout time.Duration
	// MaxBodyBytes bounds request bodies (413); zero or negative means no bound.
	MaxBodyBytes int64
	// ReadTimeout bounds the wait for each next part of a request body before the
	// response has begun; zero means 1 minute, negative no bound. It does not apply to
	// gRPC, where a client may stay silent for as long as it likes.
	ReadTimeout time.Duration
	// WriteTimeout bounds each write to an HTTP/1 client, never the response; zero
	// means 1 minute, negative no bound.
	WriteTimeout time.Duration
	// StreamWriteTimeout bounds each write to an HTTP/2 client, whose stream is reset
	// when it does not open its window; zero means 1 minute, negative no bound. What
	// the socket does not take is the server's to bound
	// ([http.HTTP2Config].WriteByteTimeout).
	StreamWriteTimeout time.Duration
	// Closing reports whether connections are to end with the response that begins,
	// which then tells the client so; nil means never.
	Closing func() bool
	// Logger takes what goes wrong, per request at debug level; nil means
	// [slog.Default].
	Logger *slog.Logger
}
