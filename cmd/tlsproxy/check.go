package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tlsproxy/tlsproxy/config"
)

// checkFile is -check.
func checkFile(path string, stdout, _ io.Writer) error {
	cfg, err := config.Load(path)
	if err == nil {
		err = checkConfig(context.Background(), cfg)
	}
	if err == nil {
		fmt.Fprintf(stdout, "%s: ok\n", path)
	}
	return err
}

// checkConfig validates all that a start would read: certificates, keys, CA
// and CRL files, the shared store's keys. It binds, writes and contacts
// nothing.
func checkConfig(ctx context.Context, cfg *config.Config) error {
	p, err := newProgram(cfg, "", io.Discard, io.Discard)
	if err != nil {
		return err
	}
	defer p.close()
	_, err = p.buildParts(cfg)
	if certErr := p.certs.Check(ctx, certSources(cfg)); certErr != nil {
		err = errors.Join(certErrors(cfg, certErr), err)
	}
	return err
}
