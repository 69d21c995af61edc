package proxy

import (
	"net/netip"
	"time"
)

// Observer is told of finished requests.
type Observer interface {
	// Request is called once per request, upgraded connections included, when it has
	// ended. It must not block and must not keep r.
	Request(r *Record)
}

// Record is what there is to say of one request.
type Record struct {
	Start     time.Time
	Duration  time.Duration // from the request headers to the end of the response
	Connect   time.Duration // opening a connection to the backend; zero if reused
	FirstByte time.Duration // from Start to the response headers of the backend; zero if none came

	RequestID string
	Method    string // as sent; use MethodLabel for metrics
	Host      string // as sent
	Path      string // as sent, without the query
	Query     string // as sent
	Proto     string // "HTTP/1.1", "HTTP/2.0"
	UserAgent string
	Referer   string

	Client     netip.Addr // behind trusted proxies, the client they name
	Peer       netip.AddrPort
	TLSVersion string // "TLS 1.3"; "" without TLS
	Resumed    bool
	SNI        string

	Site     string // "" if there is none for the host
	Route    string // "" if there is none for the path
	Upstream string
	Backend  string // URL; "" if none was chosen
	Tries    int    // backends tried

	Status   int
	BytesIn  int64 // of the request body, or from an upgraded client
	BytesOut int64 // of the response body, or to an upgraded client
	Upgraded bool
	Aborted  bool  // the response was cut short
	Err      error // why the proxy answered itself or cut the response; nil if all went well
}

// MethodLabel returns the method if it is a registered one, else "OTHER", so that
// clients cannot invent label values.
func (r *Record) MethodLabel() string {
	switch r.Method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE":
		return r.Method
	}
	return "OTHER"
}
