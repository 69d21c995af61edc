// Command proxybench measures the CPU time that tlsproxy and other TLS-terminating
// proxies use for each handshake, request and MiB, and prints a table; with -docs it
// writes the section "Proxies" of performance.md.
//
// It needs nginx-light, haproxy, hitch and nghttp2-client of Debian, and builds
// tlsproxy, and once Caddy. A full run takes about ten minutes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/tlsproxy/tlsproxy/bench/proxybench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "proxybench:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 && (os.Args[1] == "plain" || os.Args[1] == "floor") {
		return proxybench.Role(os.Args[1], os.Args[2:])
	}
	var o proxybench.Options
	flag.BoolVar(&o.Quick, "quick", false, "one round, and short ones")
	flag.IntVar(&o.Rounds, "rounds", 0, "how many `rounds`; 0: three, with -quick one")
	docs := flag.String("docs", "", "write performance.md in this `directory`")
	list(&o.Servers, "servers", "measure only these `servers`, separated by commas: "+strings.Join(proxybench.ServerNames(), ", "))
	list(&o.Rows, "rows", "measure only these `rows`, separated by commas: "+strings.Join(proxybench.RowNames(), ", "))
	flag.Func("binary", "measure another build of tlsproxy, too, `name=path`; may be repeated", func(s string) error {
		name, path, ok := strings.Cut(s, "=")
		if !ok || name == "" || path == "" {
			return errors.New("want name=path")
		}
		o.Extra = append(o.Extra, proxybench.Binary{Name: name, Path: path})
		return nil
	})
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o.Log = os.Stderr
	b, err := proxybench.New(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	report, err := b.Run()
	if err != nil {
		return err
	}
	if err := report.Print(os.Stdout); err != nil {
		return err
	}
	if *docs == "" {
		return nil
	}
	return report.WriteDocs(*docs)
}

func list(to *[]string, name, usage string) {
	flag.Func(name, usage, func(s string) error {
		*to = append(*to, strings.Split(s, ",")...)
		return nil
	})
}
