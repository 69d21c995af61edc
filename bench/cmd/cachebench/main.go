// Command cachebench measures the cache package: against the JDK's session cache,
// the designs weighed in that one's review, and other Go caches. It prints tables, and
// a full run writes the cache's section of ../docs/performance.md and its charts.
//
// It needs Java 17 with a compiler (Debian package openjdk-17-jdk-headless) and some
// 8 GB of memory; a full run takes about a quarter of an hour.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/tlsproxy/tlsproxy/bench/cachebench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cachebench:", err)
		os.Exit(1)
	}
}

func run() error {
	worker := flag.Bool("worker", false, "serve measurements on standard input (the command starts itself so)")
	quick := flag.Bool("quick", false, "smaller caches and fewer rounds: a minute or two")
	docs := flag.String("docs", "", "write performance.md and its charts in this `directory` (default ../docs for a full run, none for a part)")
	only := flag.String("only", "", "measure only these `steps`, separated by commas: "+strings.Join(cachebench.Steps(), ", "))
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *worker {
		return cachebench.Worker(os.Stdin, os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := cachebench.New(ctx, cachebench.Options{Log: os.Stderr, Quick: *quick})
	if err != nil {
		return err
	}
	defer b.Close()
	var steps []string
	if *only != "" {
		steps = strings.Split(*only, ",")
	}
	report, err := b.Run(steps)
	if err != nil {
		return err
	}
	if err := report.Print(os.Stdout); err != nil {
		return err
	}
	if *docs == "" {
		if *quick || *only != "" {
			return nil
		}
		*docs = filepath.Join("..", "docs")
	}
	return report.WriteDocs(*docs)
}
