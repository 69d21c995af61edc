package probe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/idna"
)

const (
	defaultTimeout = 5 * time.Second
	defaultCount   = 5
	maxCount       = 100
	defaultPort    = "443"
)

// options is a parsed command line.
type options struct {
	target   target
	also     []target
	roots    *x509.CertPool // nil: the system's
	cert     *tls.Certificate
	insecure bool
	json     bool
	timeout  time.Duration
	count    int
	require  []string
}

// target is where to connect and which name to ask for.
type target struct {
	given      string // as it was given, with a port
	address    string // host:port to dial
	serverName string // SNI; empty: none
}

// verifyName is the name that the certificate must be valid for.
func (t target) verifyName() string {
	if t.serverName != "" {
		return t.serverName
	}
	host, _, _ := net.SplitHostPort(t.address)
	return host
}

const usageText = `usage: tlsproxy probe [flags] HOST[:PORT]

Reports on any TLS server: protocol versions, session resumption in TLS 1.2 and
1.3, handshake times, OCSP staple, certificate chain, ALPN and key exchange.
Exit status: 0 reached and everything required holds, 1 not so, 2 usage.

`

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// raw is the command line before it is checked.
type raw struct {
	serverName, caFile, cert, key, require string
	also                                   list
}

// parseFlags parses and checks args. Flags may stand before and after the
// target.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	var r raw
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&r.serverName, "servername", "", "server `name` to ask for and to verify (default: HOST)")
	flags.StringVar(&r.caFile, "cafile", "", "PEM `file` of CA certificates to trust instead of the system's")
	flags.BoolVar(&o.insecure, "insecure", false, "an untrusted certificate does not fail the probe")
	flags.StringVar(&r.cert, "cert", "", "PEM `file` of a client certificate and its chain")
	flags.StringVar(&r.key, "key", "", "PEM `file` of the client certificate's key")
	flags.DurationVar(&o.timeout, "timeout", defaultTimeout, "limit for each connection; the whole probe ends after twenty times that")
	flags.IntVar(&o.count, "count", defaultCount, "handshakes to measure of each kind, at most "+strconv.Itoa(maxCount))
	flags.BoolVar(&o.json, "json", false, "print the report as JSON")
	flags.StringVar(&r.require, "require", "", "comma-separated `list` that decides the exit status, of: "+strings.Join(requirementNames(), ", "))
	flags.Var(&r.also, "also", "also offer the sessions at `HOST:PORT`, under another NAME at the target, or as NAME@HOST:PORT (repeatable)")

	var positional []string
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stderr, usageText)
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		if err != nil {
			return options{}, err
		}
		if flags.NArg() == 0 {
			break
		}
		positional = append(positional, flags.Arg(0))
		args = flags.Args()[1:]
	}
	if len(positional) != 1 {
		return options{}, fmt.Errorf("one HOST:PORT is needed, got %d (see tlsproxy probe -h)", len(positional))
	}
	return o, o.check(positional[0], r)
}

// check turns the words of the command line into what they stand for.
func (o *options) check(hostPort string, r raw) error {
	var err error
	if o.timeout <= 0 {
		return fmt.Errorf("-timeout %s: must be more than zero", o.timeout)
	}
	if o.count < 1 || o.count > maxCount {
		return fmt.Errorf("-count %d: must be from 1 to %d", o.count, maxCount)
	}
	if o.target, err = parseTarget(hostPort, r.serverName); err != nil {
		return err
	}
	for _, a := range r.also {
		t, err := parseAlso(a, o.target)
		if err != nil {
			return err
		}
		o.also = append(o.also, t)
	}
	if o.require, err = parseRequirements(r.require, len(o.also) > 0); err != nil {
		return err
	}
	return o.loadFiles(r)
}

// loadFiles reads the CA file and the client certificate.
func (o *options) loadFiles(r raw) error {
	if r.caFile != "" {
		pem, err := os.ReadFile(r.caFile)
		if err != nil {
			return fmt.Errorf("-cafile: %w", err)
		}
		o.roots = x509.NewCertPool()
		if !o.roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("-cafile %q: no PEM certificate in it", r.caFile)
		}
	}
	if (r.cert == "") != (r.key == "") {
		return errors.New("-cert and -key belong together")
	}
	if r.cert != "" {
		pair, err := tls.LoadX509KeyPair(r.cert, r.key)
		if err != nil {
			return fmt.Errorf("-cert %q, -key %q: %w", r.cert, r.key, err)
		}
		o.cert = &pair
	}
	return nil
}

// parseTarget reads HOST:PORT, with port 443 where none is given.
func parseTarget(s, serverName string) (target, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return target{}, fmt.Errorf("%q is not HOST:PORT", s)
		}
	}
	if host == "" {
		return target{}, fmt.Errorf("%q names no host", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return target{}, fmt.Errorf("%q: port %q is not a number from 1 to 65535", s, port)
	}
	t := target{given: net.JoinHostPort(host, port), address: net.JoinHostPort(host, port)}
	err = nil
	switch {
	case serverName != "":
		t.serverName, err = canonicalName(serverName)
	case net.ParseIP(host) == nil:
		t.serverName, err = canonicalName(host)
	}
	return t, err
}

// parseAlso reads HOST:PORT (another address, same name), NAME (another name,
// same address) or NAME@HOST:PORT (both).
func parseAlso(s string, base target) (target, error) {
	name, address, both := strings.Cut(s, "@")
	switch {
	case both:
		if name == "" {
			return target{}, fmt.Errorf("-also %q: no name before the @", s)
		}
		t, err := parseTarget(address, name)
		return t, wrapAlso(s, err)
	case strings.Contains(s, ":"):
		t, err := parseTarget(s, "")
		t.serverName = base.serverName
		return t, wrapAlso(s, err)
	case net.ParseIP(s) != nil:
		return target{}, fmt.Errorf("-also %q: an address needs a port", s)
	default:
		t := base
		var err error
		t.serverName, err = canonicalName(s)
		return t, wrapAlso(s, err)
	}
}

func wrapAlso(s string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("-also %q: %w", s, err)
}

// canonicalName gives the form of a host name that goes on the wire.
func canonicalName(s string) (string, error) {
	name, err := idna.Lookup.ToASCII(strings.TrimSuffix(s, "."))
	if err != nil {
		// Names with an underscore are no host names but are used as such.
		name = strings.ToLower(strings.TrimSuffix(s, "."))
	}
	if !isPlainName(name) {
		return "", fmt.Errorf("%q is not a host name", s)
	}
	return name, nil
}

// isPlainName reports whether s is made of labels of letters, digits, hyphens
// and underscores.
func isPlainName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z')
	})
}

// parseRequirements reads the list of -require.
func parseRequirements(s string, also bool) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if !slices.Contains(requirementNames(), name) {
			return nil, fmt.Errorf("-require %q: unknown; known are %s", name, strings.Join(requirementNames(), ", "))
		}
		if !also && (name == "also" || name == "not-also") {
			return nil, fmt.Errorf("-require %s: needs -also", name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if s != "" && len(names) == 0 {
		return nil, fmt.Errorf("-require %q: names nothing; known are %s", s, strings.Join(requirementNames(), ", "))
	}
	return names, nil
}
