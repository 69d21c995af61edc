package main

import (
	"context"
	"crypto/x509"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/probe"
	"github.com/tlsproxy/tlsproxy/ocsp"
)

// runProbe reports on any TLS server, with the proxy's own verifier of staples.
func runProbe(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return probe.Command{VerifyStaple: verifyStaple}.Run(ctx, args, stdout, stderr)
}

func verifyStaple(raw []byte, leaf, issuer *x509.Certificate, now time.Time) (probe.Staple, error) {
	r, err := ocsp.Verify(raw, leaf, issuer, now)
	if err != nil {
		return probe.Staple{}, err
	}
	signer := "issuer"
	if r.Signer != nil {
		signer = r.Signer.Subject.String()
	}
	return probe.Staple{
		Status: r.Status.String(), ProducedAt: r.ProducedAt, ThisUpdate: r.ThisUpdate, NextUpdate: r.NextUpdate, Signer: signer,
	}, nil
}
