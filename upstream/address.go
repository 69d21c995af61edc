package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// address is a parsed backend URL.
type address struct {
	scheme     string // of outgoing URLs: http or https
	host       string // of outgoing URLs
	serverName string // to verify, for https
	network    string // tcp or unix
	dial       string // what to dial
	http1      bool   // protocols spoken
	http2      bool
}

func parseAddress(raw string) (address, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return address{}, fmt.Errorf("url %q has no scheme; write for example http://127.0.0.1:8081", raw)
	}
	switch scheme {
	case "unix":
		return unixAddress(raw, rest, address{http1: true})
	case "unix+h2c":
		return unixAddress(raw, rest, address{http2: true})
	case "http":
		return hostAddress(raw, address{scheme: "http", http1: true})
	case "https":
		return hostAddress(raw, address{scheme: "https", http1: true, http2: true})
	case "h2":
		return hostAddress(raw, address{scheme: "https", http2: true})
	case "h2c":
		return hostAddress(raw, address{scheme: "http", http2: true})
	}
	return address{}, fmt.Errorf("url %q: unknown scheme %q; known are http, https, h2, h2c, unix and unix+h2c", raw, scheme)
}

func unixAddress(raw, path string, a address) (address, error) {
	path = strings.TrimPrefix(path, "//")
	if !filepath.IsAbs(path) {
		return address{}, fmt.Errorf("url %q: the path of a unix socket must be absolute, as in unix:/run/app.sock", raw)
	}
	a.scheme, a.host, a.network, a.dial = "http", "localhost", "unix", path
	return a, nil
}

func hostAddress(raw string, a address) (address, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return address{}, errors.Unwrap(err)
	}
	switch {
	case u.Hostname() == "":
		return address{}, fmt.Errorf("url %q has no host", raw)
	case u.User != nil:
		return address{}, fmt.Errorf("url %q: user information is not supported; set an Authorization header", u.Redacted())
	case u.Path != "" && u.Path != "/", u.RawQuery != "" || u.ForceQuery, u.Fragment != "":
		return address{}, fmt.Errorf("url %q: only scheme, host and port are allowed; paths are forwarded as they come", raw)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[a.scheme]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return address{}, fmt.Errorf("url %q: port %q is not between 1 and 65535", raw, port)
	}
	a.host, a.serverName = u.Host, u.Hostname()
	a.network, a.dial = "tcp", net.JoinHostPort(u.Hostname(), port)
	return a, nil
}
