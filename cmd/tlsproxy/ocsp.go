package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"
)

const ocspUsage = `usage: tlsproxy ocsp fetch [-issuer FILE] [-url URL] [-out FILE] [-json] CERTIFICATE
       tlsproxy ocsp show [-issuer FILE] [-servername NAME] [-json] RESPONSE|HOST:PORT
       tlsproxy ocsp verify -cert FILE [-issuer FILE] [-at TIME] [-json] RESPONSE

fetch asks the responder of a certificate and verifies the answer.
show prints a response as it is, or verifies the staple of a running server.
verify decides whether a response would be stapled for a certificate.

Certificates are PEM or DER files; the issuer may follow in the same file.
Responses are DER files; "-" is standard input or output. The exit status is
0 if the certificate is good (show of a file: if it is a response), else 1.
`

// ocspFlags are the flags of all three commands; each defines its own.
type ocspFlags struct {
	*flag.FlagSet
	json       bool
	cert       string
	issuer     string
	url        string
	out        string
	at         string
	serverName string
	timeout    time.Duration
}

// runOCSP looks at OCSP responses with the verifier that decides on staples.
func runOCSP(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return ocspCommand(ctx, args, stdout, stderr)
}

// ocspCommand is runOCSP under a context.
func ocspCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]struct {
		define func(*ocspFlags)
		run    func(context.Context, *ocspFlags, string) (*ocspReport, error)
	}{
		"fetch":  {defineOCSPFetch, ocspFetch},
		"show":   {defineOCSPShow, ocspShow},
		"verify": {defineOCSPVerify, ocspVerify},
	}
	if len(args) == 0 {
		fmt.Fprint(stderr, ocspUsage)
		return exitUsage
	}
	command, ok := commands[args[0]]
	if !ok {
		return ocspHelp(args[0], stdout, stderr)
	}
	f := &ocspFlags{FlagSet: flag.NewFlagSet("ocsp "+args[0], flag.ContinueOnError)}
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, ocspUsage, "\n")
		f.PrintDefaults()
	}
	f.BoolVar(&f.json, "json", false, "print JSON")
	f.StringVar(&f.issuer, "issuer", "", "the issuer's certificate is in `FILE`, if it is not beside the certificate")
	command.define(f)
	if err := f.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}
	if f.NArg() != 1 {
		fmt.Fprintf(stderr, "tlsproxy: ocsp %s takes one argument after the flags, not %d\n", args[0], f.NArg())
		f.Usage()
		return exitUsage
	}
	report, err := command.run(ctx, f, f.Arg(0))
	if err != nil {
		fmt.Fprintln(stderr, "tlsproxy:", err)
		return exitFailure
	}
	return report.print(f, stdout, stderr)
}

func ocspHelp(word string, stdout, stderr io.Writer) int {
	switch word {
	case "-h", "-help", "--help", "help":
		fmt.Fprint(stdout, ocspUsage)
		return exitOK
	}
	fmt.Fprintf(stderr, "tlsproxy: unknown command %q of ocsp\n%s", word, ocspUsage)
	return exitUsage
}
