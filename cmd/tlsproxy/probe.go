package main

import (
	"context"
	"io"
	"os/signal"
	"syscall"

	"github.com/tlsproxy/tlsproxy/internal/probe"
)

// runProbe reports on any TLS server; see [probe.Run].
func runProbe(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return probe.Run(ctx, args, stdout, stderr)
}
