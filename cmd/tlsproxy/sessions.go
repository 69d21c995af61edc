package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tlsproxy/tlsproxy/session"
)

const sessionsUsage = `usage: tlsproxy sessions revoke [-admin ADDRESS | -config FILE] WHAT

WHAT is one of
  all                        every session
  site NAME                  sessions made under a site
  sni NAME                   sessions made under a server name
  certificate ISSUER SERIAL  sessions of a client certificate: the issuer as an
                             RFC 2253 string, the serial number in hexadecimal

The exit status is 0 if they are revoked everywhere and for good. It is 1, with a
message, if nothing was revoked, but also if the store or the disk does not know of it
yet, or no site has that name.

`

// runSessions ends sessions on a running tlsproxy, on every replica that
// shares its store.
func runSessions(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] != "revoke" {
		fmt.Fprint(stderr, sessionsUsage)
		if len(args) > 0 && (args[0] == "-h" || args[0] == "-help" || args[0] == "--help") {
			return exitOK
		}
		return exitUsage
	}
	flags := flag.NewFlagSet("tlsproxy sessions revoke", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, sessionsUsage); flags.PrintDefaults() }
	admin := flags.String("admin", "", "`ADDRESS` of the admin listener (default: from -config, else 127.0.0.1:9090)")
	path := flags.String("config", "", "read the admin listener's address from `FILE`")
	timeout := flags.Duration("timeout", 5*time.Second, "give up after this time")
	if status, done := parseFlags(flags, args[1:], -1); done {
		return status
	}
	subject, err := revocationSubject(flags.Args())
	if err != nil {
		fmt.Fprintln(stderr, "tlsproxy sessions revoke:", err)
		flags.Usage()
		return exitUsage
	}
	address, err := adminAddress(*admin, *path)
	if err != nil {
		printErrors(stderr, err)
		return exitFailure
	}
	body, err := json.Marshal(subject)
	if err != nil {
		printErrors(stderr, err)
		return exitFailure
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	answer, err := adminRequest(ctx, address, "/api/sessions/revoke", string(body))
	if err != nil {
		fmt.Fprintln(stderr, "tlsproxy sessions revoke:", err)
		return exitFailure
	}
	fmt.Fprintln(stdout, strings.TrimSpace(answer))
	var done struct {
		Warning string `json:"warning"`
	}
	if err := json.Unmarshal([]byte(answer), &done); err != nil {
		fmt.Fprintln(stderr, "tlsproxy sessions revoke: the answer:", err)
		return exitFailure
	}
	if done.Warning != "" {
		fmt.Fprintln(stderr, "tlsproxy sessions revoke: revoked, but:", done.Warning)
		return exitFailure
	}
	return exitOK
}

// revocationSubject reads what to revoke from a command's arguments.
func revocationSubject(args []string) (session.Subject, error) {
	if len(args) == 0 {
		return session.Subject{}, errors.New("nothing named: want all, site, sni or certificate")
	}
	subject := session.Subject{Kind: session.Kind(args[0])}
	names := args[1:]
	switch subject.Kind {
	case session.KindAll:
		if len(names) != 0 {
			return subject, fmt.Errorf("%q takes no name", args[0])
		}
	case session.KindSite, session.KindServerName:
		if len(names) != 1 {
			return subject, fmt.Errorf("%q takes one name", args[0])
		}
		subject.Value = names[0]
	case session.KindCertificate:
		if len(names) != 2 {
			return subject, fmt.Errorf("%q takes an issuer and a serial number", args[0])
		}
		subject.Issuer, subject.Serial = names[0], names[1]
	default:
		return subject, fmt.Errorf("%q is none of all, site, sni and certificate", args[0])
	}
	return subject, nil
}
