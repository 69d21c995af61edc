package main

import (
	"errors"
	"log/slog"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/config"
)

// newClient is how tlsproxy itself connects to a TLS server, with the files of the
// section at path read.
func newClient(cfg *config.Config, path string, c config.ClientTLS, log *slog.Logger) (*certs.Client, error) {
	client, err := certs.NewClient(certs.ClientOptions{
		CAFile: c.CAFile, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName, Logger: log,
	})
	var sourceErrors certs.SourceErrors
	if errors.As(err, &sourceErrors) {
		return nil, placed(cfg, sourceErrors, func(*certs.SourceError) string { return path })
	}
	return client, err
}
