package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/metrics"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/store"
)

// program is what lives from start to exit: caches, listeners and everything
// else that a reload must not lose. What a reload replaces is its generation.
type program struct {
	path    string // of the configuration file
	started time.Time
	stderr  io.Writer
	logs    *logHandler
	log     *slog.Logger

	certs       *certs.Store
	stapler     *ocsp.Stapler // nil: stapling is off
	checker     *ocsp.ClientChecker
	resumer     *session.Resumer
	memory      *memwatch.Watcher
	shared      *store.Store  // nil: no store is configured
	storeClient *certs.Client // how it connects; nil: without TLS
	front       *front.Front
	web         *webServer
	plain       *plainServer // redirects and ACME HTTP-01
	admin       *plainServer
	access      *accessLog
	metrics     *metrics.Metrics

	upgrades  proxy.Upgrades
	responder atomic.Pointer[localResponder]

	generation atomic.Pointer[generation]
	reloading  sync.Mutex
	reloads    reloadHistory
	reloadable context.Context // ends with endReloads: the drain has begun
	endReloads context.CancelFunc

	draining atomic.Bool
	quit     chan struct{} // takes one request to drain
}

// newProgram makes every part once and connects them. It opens nothing but
// files; [program.start] does the rest.
func newProgram(cfg *config.Config, path string, stdout, stderr io.Writer) (*program, error) {
	p := &program{path: path, started: time.Now(), stderr: stderr, quit: make(chan struct{}, 1)}
	p.reloadable, p.endReloads = context.WithCancel(context.Background())
	p.logs = newLogHandler(stderr, cfg.Log)
	p.log = slog.New(p.logs)
	p.access = newAccessLog(stdout, stderr, p.log)
	for _, build := range []func(*config.Config) error{
		p.buildStore, p.buildCerts, p.buildStapler, p.buildChecker, p.buildResumer, p.buildMemory, p.buildMetrics, p.buildFront,
	} {
		if err := build(cfg); err != nil {
			return nil, err
		}
	}
	p.web = newWebServer(p.front.Listener(), http.HandlerFunc(p.serveHTTP), p.log)
	p.plain = newPlainServer("http", p.front, http.HandlerFunc(p.servePlain), p.log)
	p.admin = newPlainServer("admin", p.front, http.HandlerFunc(p.serveAdmin), p.log)
	return p, nil
}

func (p *program) buildCerts(cfg *config.Config) error {
	options := certs.Options{
		StateDir: cfg.StateDir, LocalResponder: localResponderURL(cfg), Logger: p.log,
		Prepare: p.prepare, Release: p.release,
	}
	if p.shared != nil {
		options.Storage = p.shared.Certificates()
	}
	store, err := certs.New(options)
	p.certs = store
	return cfg.At("certificates", err)
}

func (p *program) buildStapler(cfg *config.Config) error {
	if !cfg.OCSP.Stapling.On() {
		return nil
	}
	httpProxy, err := ocspProxy(cfg.OCSP.Proxy)
	if err != nil {
		return cfg.At("ocsp.proxy", err)
	}
	options := ocsp.Options{
		Capacity: cfg.OCSP.Capacity, Timeout: cfg.OCSP.Timeout, PrepareTimeout: cfg.OCSP.PrepareTimeout,
		Overrides: ocspOverrides(cfg.OCSP.Overrides), Proxy: httpProxy,
		Local: p.localOCSP, Issuer: p.certs.Issuer, StateDir: cfg.StateDir,
		OnRevoked: p.onRevoked, Logger: p.log,
	}
	if p.shared != nil {
		options.Store = p.shared.Staples()
	}
	p.stapler, err = ocsp.New(options)
	return cfg.At("ocsp", err)
}

func (p *program) buildChecker(cfg *config.Config) error {
	httpProxy, err := ocspProxy(cfg.OCSP.Proxy)
	if err != nil {
		return cfg.At("ocsp.proxy", err)
	}
	p.checker, err = ocsp.NewClientChecker(ocsp.CheckerOptions{
		Capacity: cfg.OCSP.Client.Capacity, Timeout: cfg.OCSP.Client.Timeout,
		Overrides: ocspOverrides(cfg.OCSP.Overrides), Proxy: httpProxy, Local: p.localOCSP, Logger: p.log,
	})
	return cfg.At("ocsp.client", err)
}

func (p *program) buildResumer(cfg *config.Config) error {
	options := session.Options{
		Limits: sessionLimits(cfg.Sessions), MaxBytes: int64(cfg.Sessions.MaxBytes),
		StateDir: cfg.StateDir, StoreTimeout: cfg.Store.Timeout, StoreQueue: cfg.Store.Queue, Logger: p.log,
	}
	if p.shared != nil {
		options.Store = p.shared.Sessions()
	}
	resumer, err := session.New(options)
	p.resumer = resumer
	return cfg.At("sessions", err)
}

func (p *program) buildFront(cfg *config.Config) error {
	f, err := front.New(front.Options{Sessions: p.resumer, Observer: p.metrics, Logger: p.log})
	p.front = f
	return cfg.At("listeners", err)
}

// prepare and release tell the stapler which certificates are in use.
func (p *program) prepare(ctx context.Context, cert *tls.Certificate) error {
	if p.stapler == nil {
		return nil
	}
	return p.stapler.Prepare(ctx, cert)
}

func (p *program) release(cert *tls.Certificate) {
	if p.stapler != nil {
		p.stapler.Release(cert)
	}
}

// getCertificate is the end of every full handshake: the certificate for a
// hello, with its staple where there is one.
func (p *program) getCertificate() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p.stapler == nil {
		return p.certs.GetCertificate
	}
	return p.stapler.GetCertificate(p.certs.GetCertificate)
}

// onRevoked has a revoked certificate replaced where that is ours to do.
func (p *program) onRevoked(leaf *x509.Certificate) {
	if err := p.certs.Renew(leaf); err != nil && !errors.Is(err, certs.ErrNotACME) {
		p.log.Error("revoked certificate not replaced", "serial", fmt.Sprintf("%x", leaf.SerialNumber), "err", err)
	}
}

// localResponder is the OCSP responder of the development CA.
type localResponder struct {
	ca      *pki.CA
	handler *pki.Responder
}

// localOCSP answers for certificates of the development CA, within this
// process.
func (p *program) localOCSP(issuer *x509.Certificate) http.Handler {
	r := p.currentResponder()
	if r == nil || issuer == nil || !issuer.Equal(r.ca.Certificate) {
		return nil
	}
	return r.handler
}

// currentResponder returns the responder of the development CA, made when the
// CA first is; nil without one.
func (p *program) currentResponder() *localResponder {
	ca := p.certs.LocalCA()
	if ca == nil {
		return nil
	}
	if r := p.responder.Load(); r != nil && r.ca == ca {
		return r
	}
	r := &localResponder{ca, pki.NewResponder(ca, pki.ResponderOptions{Validity: 24 * time.Hour})}
	p.responder.Store(r)
	return r
}
