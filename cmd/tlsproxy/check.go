package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

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
	return errors.Join(err, cfg.At("access_log.output", checkAccessLog(cfg.AccessLog)))
}

// checkAccessLog reports what would keep a start from opening the file, as far
// as that can be told without making it: -check may run as another user.
func checkAccessLog(c config.AccessLog) error {
	if !filepath.IsAbs(c.Output) {
		return nil // a word: config knows which
	}
	if info, err := os.Stat(c.Output); err == nil && info.IsDir() {
		return &fs.PathError{Op: "access log: open", Path: c.Output, Err: syscall.EISDIR}
	}
	dir := filepath.Dir(c.Output)
	switch info, err := os.Stat(dir); {
	case err != nil:
		return fmt.Errorf("access log: the directory of the file: %w", err)
	case !info.IsDir():
		return &fs.PathError{Op: "access log: open", Path: c.Output, Err: syscall.ENOTDIR}
	}
	return nil
}
