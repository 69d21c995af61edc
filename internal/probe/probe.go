// Package probe reports on a TLS server as its clients see it, whoever wrote
// the server: the protocol versions it accepts, whether it resumes sessions in
// TLS 1.2 and 1.3 (and whether a session made at one address or under one name
// resumes at another), what full and resumed handshakes cost in time, the OCSP
// staple and its dates, the certificate chain, ALPN protocols and key exchange
// groups.
//
// It is the body of "tlsproxy probe HOST:PORT":
//
//	cmd := probe.Command{VerifyStaple: verify}
//	os.Exit(cmd.Run(ctx, os.Args[2:], os.Stdout, os.Stderr))
//
// Every fact comes from handshakes made for it, each on a connection of its
// own with a deadline of its own, one after the other: a probe makes some
// fifty connections and never two at a time. All of them go through
// crypto/tls except one: resumption by session ID (TLS 1.2 and older), which
// crypto/tls does not offer, is recognised from the server's answer to an
// edited ClientHello (see [SessionIDs]).
//
// It does not look for vulnerabilities, speaks no STARTTLS and no QUIC, and
// lists no cipher suites beyond the one negotiated.
package probe

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// Exit statuses of [Command.Run].
const (
	exitOK     = 0 // the server was reached and everything required holds
	exitFailed = 1 // it was not reached, or something required does not hold
	exitUsage  = 2 // the command line is wrong
)

// Staple is what a verifier read from an OCSP response.
type Staple struct {
	Status     string    // good, revoked or unknown
	ProducedAt time.Time // when the responder signed it
	ThisUpdate time.Time // since when the status is known to be right
	NextUpdate time.Time // when newer information will be there; zero: not said
	Signer     string    // who signed: "issuer", or the delegate's subject
}

// Command is the probe command. Its zero value works but cannot verify
// staples: it reports their presence and size, and -require staple fails.
type Command struct {
	// VerifyStaple verifies an OCSP response for leaf issued by issuer. It
	// returns an error that says what is wrong with it, beside which it may
	// still return what it could read.
	VerifyStaple func(raw []byte, leaf, issuer *x509.Certificate, now time.Time) (Staple, error)
}

// Run parses args (the words after "probe"), probes the server, writes the
// report to stdout and what went wrong to stderr, and returns the exit status:
// 0 when the server was reached and all that was required holds, 1 when not,
// 2 for a command line that is wrong. It returns soon after ctx is done.
func (c Command) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "tlsproxy probe: %v\n", err)
		return exitUsage
	}
	begin := time.Now()
	report, err := newProber(opts, c.VerifyStaple).run(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "tlsproxy probe: %v\n", err)
		if opts.json {
			_ = encode(stdout, Failure{Target: opts.target.given, Time: begin.UTC(), Error: err.Error()}) // it has failed anyway
		}
		return exitFailed
	}
	report.Required = checkRequirements(opts.require, report)
	if err := write(stdout, report, opts.json); err != nil {
		fmt.Fprintf(stderr, "tlsproxy probe: %v\n", err)
		return exitFailed
	}
	return exitStatus(report, opts.insecure, stderr)
}

// write writes the report as JSON for programs or as text for people.
func write(w io.Writer, r *Report, asJSON bool) error {
	if !asJSON {
		return writeText(w, r)
	}
	return encode(w, r)
}

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// exitStatus says on stderr what does not hold and turns it into the status.
func exitStatus(r *Report, insecure bool, stderr io.Writer) int {
	status := exitOK
	if !r.Chain.Trusted && !insecure {
		fmt.Fprintf(stderr, "tlsproxy probe: certificate not trusted: %s (use -cafile for a CA of your own, -insecure to accept it)\n", r.Chain.Error)
		status = exitFailed
	}
	for _, req := range r.Required {
		if !req.Holds {
			fmt.Fprintf(stderr, "tlsproxy probe: required %s does not hold: %s\n", req.Name, req.Reason)
			status = exitFailed
		}
	}
	return status
}
