// Command tlsproxy terminates TLS in front of HTTP backends.
//
//	tlsproxy -config config.yaml          run until SIGTERM or SIGINT
//	tlsproxy -config config.yaml -check   validate what a start would read, and exit
//	tlsproxy -version                     print the version
//	tlsproxy healthcheck                  ask a running tlsproxy whether it is ready
//	tlsproxy probe HOST:PORT              report on any TLS server
//	tlsproxy ocsp fetch|show|verify       look at OCSP responses
//	tlsproxy sessions revoke              end sessions on a running tlsproxy
//
// SIGHUP reloads the configuration and the certificates, and reopens log
// files. SIGTERM and SIGINT drain; a second one stops at once. The exit status
// is 0 for a clean end, 1 for a failure and 2 for wrong usage.
//
// Standard output carries access records where the configuration says so.
// Everything else goes to standard error.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

// Exit statuses that scripts and supervisors may rely on.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// version is set by the linker in releases; else the build information speaks.
var version string

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// subcommands are the words that may stand in place of flags.
var subcommands = map[string]func(args []string, stdout, stderr io.Writer) int{
	"healthcheck": runHealthcheck,
	"ocsp":        runOCSP,
	"probe":       runProbe,
	"sessions":    runSessions,
}

// run is main without the process: it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if command, ok := subcommands[args[0]]; ok {
			return command(args[1:], stdout, stderr)
		}
	}
	flags := flag.NewFlagSet("tlsproxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { usage(flags) }
	path := flags.String("config", "", "run with the configuration in `FILE`")
	check := flags.Bool("check", false, "validate the configuration and all files it names, and exit")
	showVersion := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	switch {
	case *showVersion:
		fmt.Fprintln(stdout, "tlsproxy", versionString(), runtime.Version())
		return exitOK
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "tlsproxy: unknown command %q\n", flags.Arg(0))
		usage(flags)
		return exitUsage
	case *path == "":
		fmt.Fprintln(stderr, "tlsproxy: -config is missing")
		usage(flags)
		return exitUsage
	}
	work := serve
	if *check {
		work = checkFile
	}
	if err := work(*path, stdout, stderr); err != nil {
		printErrors(stderr, err)
		return exitFailure
	}
	return exitOK
}

func usage(flags *flag.FlagSet) {
	fmt.Fprint(flags.Output(), `usage: tlsproxy -config FILE [-check]
       tlsproxy -version
       tlsproxy healthcheck|probe|ocsp|sessions [-h] ...

`)
	flags.PrintDefaults()
}

// printErrors writes one line for each error of a joined tree.
func printErrors(w io.Writer, err error) {
	for _, e := range flatten(err) {
		fmt.Fprintln(w, "tlsproxy:", e)
	}
}

// flatten returns the leaves of a tree made by errors.Join. An error that
// wraps others with words of its own is a leaf.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // Only the join itself is taken apart.
		var leaves []error
		for _, e := range joined.Unwrap() {
			leaves = append(leaves, flatten(e)...)
		}
		return leaves
	}
	return []error{err}
}

// versionString is the release's version, or the revision it was built from.
func versionString() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}

// revision is the source revision the program was built from, "" if unknown.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
