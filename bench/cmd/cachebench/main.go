// Command cachebench measures the cache package: against the JDK's session cache,
// the designs weighed in that one's review, and other Go caches.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/tlsproxy/tlsproxy/bench/cachebench"
)

func main() {
	worker := flag.Bool("worker", false, "serve measurements on standard input (used by the command itself)")
	quick := flag.Bool("quick", false, "smaller caches and fewer rounds")
	names := flag.String("rivals", "jdk-hard,golang-lru", "")
	sizes := flag.String("sizes", "20480,204800", "")
	keys := flag.String("keys", "handle,int", "")
	lifetimes := flag.String("lifetimes", "86400,0", "")
	flag.Parse()
	if *worker {
		if err := cachebench.Worker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "cachebench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := cachebench.New(ctx, cachebench.Options{Log: os.Stderr, Quick: *quick})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	_, err = b.Ops(strings.Split(*names, ","), ints(*sizes), strings.Split(*keys, ","), ints(*lifetimes))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func ints(s string) (out []int) {
	for _, f := range strings.Split(s, ",") {
		n, _ := strconv.Atoi(f)
		out = append(out, n)
	}
	return out
}
