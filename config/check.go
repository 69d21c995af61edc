package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// socket is an address to listen on.
type socket struct {
	path string // where it stands in the file
	name string // systemd:NAME or fd:N; then host and port are empty
	host string // "" stands for every address
	port int
}

// parseSocket parses host:port, systemd:NAME or fd:N.
func parseSocket(address string) (socket, error) {
	if name, ok := strings.CutPrefix(address, "systemd:"); ok {
		if name == "" || strings.ContainsAny(name, ": /") {
			return socket{}, fmt.Errorf("%q: expected systemd:NAME, where NAME is the FileDescriptorName= of the socket unit", clip(address))
		}
		return socket{name: address}, nil
	}
	if number, ok := strings.CutPrefix(address, "fd:"); ok {
		if n, err := strconv.Atoi(number); err != nil || n < 3 || n > 1<<20 {
			return socket{}, fmt.Errorf("%q: expected fd:N with the number of an inherited file descriptor, 3 or more", clip(address))
		}
		return socket{name: address}, nil
	}
	host, port, err := splitHostPort(address)
	if err != nil {
		return socket{}, err
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = ""
	}
	return socket{host: strings.ToLower(host), port: port}, nil
}

// overlaps reports whether the two cannot both be bound.
func (s socket) overlaps(t socket) bool {
	if s.name != "" || t.name != "" {
		return s.name == t.name
	}
	return s.port == t.port && (s.host == t.host || s.host == "" || t.host == "")
}

// loopback reports whether only this machine can connect.
func (s socket) loopback() bool {
	if s.host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(s.host)
	return err == nil && ip.IsLoopback()
}

// splitHostPort splits an address and checks both parts; the host may be empty.
func splitHostPort(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		if ip, perr := netip.ParseAddr(address); perr == nil && ip.Is6() {
			return "", 0, fmt.Errorf("%q lacks a port: write it like [%s]:8443", address, ip)
		}
		if _, perr := strconv.Atoi(address); perr == nil {
			return "", 0, fmt.Errorf("%q lacks a colon: write it like \":%s\" for every address", clip(address), clip(address))
		}
		return "", 0, fmt.Errorf("%q is not host:port", clip(address))
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q: the port must be a number from 1 to 65535", clip(address))
	}
	if host == "" {
		return "", port, nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host, port, nil
	}
	if err := checkName(host); err != nil {
		return "", 0, err
	}
	return host, port, nil
}

// canonicalHost returns a host name, a host pattern or an address as it is
// compared: in lower case, without final dot, in its ASCII form.
func canonicalHost(host string) string {
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.Unmap().String()
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	rest, wild := strings.CutPrefix(host, "*.")
	if ascii, err := idna.Lookup.ToASCII(rest); err == nil && rest != "" {
		rest = ascii
	}
	if wild {
		return "*." + rest
	}
	return rest
}

// checkHost checks a canonical host: a name, "*." and a name, or an address.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	rest, wild := strings.CutPrefix(host, "*.")
	if wild && !strings.Contains(rest, ".") {
		return fmt.Errorf("%q would stand for all of %s: a wildcard needs a name of two labels or more after it", clip(host), clip(rest))
	}
	if strings.Contains(rest, "*") {
		return fmt.Errorf("%q: a wildcard is the whole first label, as in *.example.com", clip(host))
	}
	return checkName(rest)
}

// checkName checks a host name without wildcard, or an address.
func checkName(name string) error {
	if name == "" {
		return errors.New("empty host name")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if strings.Contains(name, "://") {
		return fmt.Errorf("%q is a URL: write the host name alone", clip(name))
	}
	if host, port, err := net.SplitHostPort(name); err == nil && host != "" && port != "" {
		return fmt.Errorf("%q has a port: write the host name alone", clip(name))
	}
	if len(name) > 253 {
		return fmt.Errorf("%q is longer than 253 bytes", clip(name))
	}
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil {
		ascii = strings.ToLower(name) // names with underscores are in use
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(ascii, "."), ".") {
		if err := checkLabel(label); err != nil {
			return fmt.Errorf("host name %q: %w", clip(name), err)
		}
	}
	return nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("empty label")
	case len(label) > 63:
		return errors.New("a label longer than 63 bytes")
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Errorf("label %q begins or ends with a hyphen", label)
	}
	for _, r := range label {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_", r) {
			return fmt.Errorf("invalid character %q", r)
		}
	}
	return nil
}

// checkURL checks an absolute URL with one of the schemes.
func checkURL(raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Host == "", u.Hostname() == "":
		return fmt.Errorf("%q is not a URL: write it like %s://host/path", clip(raw), schemes[0])
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("%q: the scheme must be %s", clip(raw), strings.Join(schemes, " or "))
	case u.Fragment != "":
		return fmt.Errorf("%q has a fragment (#), which is never sent", clip(raw))
	}
	return checkURLHost(u)
}

// checkURLHost checks host and port of a URL.
func checkURLHost(u *url.URL) error {
	if err := checkName(u.Hostname()); err != nil {
		return err
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%q: the port must be a number from 1 to 65535", clip(u.Host))
		}
	}
	return nil
}

// isLoopbackURL reports whether a URL's host is this machine.
func isLoopbackURL(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	return socket{host: strings.ToLower(u.Hostname())}.loopback()
}
