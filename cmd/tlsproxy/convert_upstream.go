package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// builtinEcho is the backend that needs no server: it answers with what it
// received.
const builtinEcho = "builtin:echo"

// buildPools makes the upstreams of a configuration, in the order of their
// names, which go on with what the ledger has of their backends. It reads the
// files that they name and connects to nothing.
func buildPools(cfg *config.Config, ledger *upstream.Ledger, log *slog.Logger) (map[string]*upstream.Pool, error) {
	echo := proxy.NewEcho(proxy.EchoOptions{ConnInfo: connInfo})
	pools := make(map[string]*upstream.Pool, len(cfg.Upstreams))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Upstreams)) {
		path := "upstreams." + name
		options, err := poolOptions(cfg, path, cfg.Upstreams[name], echo)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		options.Name, options.Ledger, options.Logger = name, ledger, log
		pool, err := upstream.New(options)
		if err != nil {
			errs = append(errs, cfg.At(path, err))
			continue
		}
		pools[name] = pool
	}
	return pools, errors.Join(errs...)
}

func poolOptions(cfg *config.Config, path string, u config.Upstream, echo http.RoundTripper) (upstream.Options, error) {
	client, err := clientTLS(cfg, path+".tls", &u.TLS)
	if err != nil {
		return upstream.Options{}, err
	}
	options := upstream.Options{
		Balance:               balances[u.Balance],
		TLS:                   upstream.TLS{ServerName: client.ServerName, RootCAs: client.RootCAs, Certificates: client.Certificates},
		DialTimeout:           u.DialTimeout,
		ResponseHeaderTimeout: u.ResponseTimeout,
		IdleTimeout:           u.IdleTimeout,
		MaxIdle:               u.MaxIdle,
		MaxRequests:           max(u.MaxRequests, 0),
		Retries:               u.Retries,
		EjectAfter:            u.EjectAfter,
		EjectFor:              u.EjectFor,
		Health: upstream.Health{
			Path: u.Health.Path, Host: u.Health.Host, Interval: u.Health.Interval, Timeout: u.Health.Timeout,
			Rise: u.Health.Rise, Fall: u.Health.Fall, StatusMin: u.Health.Status.Min, StatusMax: u.Health.Status.Max,
		},
	}
	for _, url := range u.Backends {
		backend := upstream.Backend{URL: url}
		if url == builtinEcho {
			backend.Transport = echo
		}
		options.Backends = append(options.Backends, backend)
	}
	return options, nil
}

var balances = map[config.Balance]upstream.Balance{
	config.BalanceRoundRobin: upstream.RoundRobin,
	config.BalanceLeastConn:  upstream.LeastConn,
	config.BalanceRandomTwo:  upstream.RandomTwo,
}

// clientTLS is how tlsproxy itself connects to a TLS server, with the files of
// the section at path read. Nil and the zero value verify against the system's
// roots.
func clientTLS(cfg *config.Config, path string, c *config.ClientTLS) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c == nil {
		return out, nil
	}
	out.ServerName = c.ServerName
	var errs []error
	if c.CAFile != "" {
		roots, err := loadRoots(c.CAFile)
		out.RootCAs = roots
		errs = append(errs, cfg.At(path+".ca_file", err))
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		out.Certificates = []tls.Certificate{pair}
		errs = append(errs, cfg.At(path+".cert", err))
	}
	return out, errors.Join(errs...)
}

// loadRoots reads a PEM file of CA certificates; one without any is an error,
// since an empty pool must not come to mean the system's roots.
func loadRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no CA certificate in PEM found", path)
	}
	return roots, nil
}
