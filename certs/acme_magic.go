package certs

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// What the ACME library is given to obtain one certificate.
const (
	obtainTimeout = 10 * time.Minute // for one attempt with all issuers, waiting for other replicas included
	pollTimeout   = 90 * time.Second // for one order at the CA
	// libraryTick is how often the library looks at its own cache, which is
	// empty. It also keeps the library's idea of "expires soon", a multiple of
	// it, below ours.
	libraryTick = 10 * time.Second
)

// magic is a source in the terms of the ACME library.
type magic struct {
	config *certmagic.Config
	// fresh is config with new keys always: a revoked certificate's key may
	// be why it was revoked.
	fresh  *certmagic.Config
	issuer *certmagic.ACMEIssuer // the first one, for HTTP challenges
}

// newMagic makes what obtains a source's certificates. certmagic is used for
// accounts, orders, storage and locks alone: its cache stays empty, so that it
// renews nothing by itself, and its stapling is off.
func newMagic(a *acmeSource, cache *certmagic.Cache, keeper *portKeeper, log *slog.Logger) *magic {
	zl := zap.New(&zapCore{log: log})
	build := func(reuse bool) (*certmagic.Config, *certmagic.ACMEIssuer) {
		cfg := certmagic.New(cache, certmagic.Config{
			Storage:          a.storage,
			Issuers:          []certmagic.Issuer{&certmagic.ACMEIssuer{}}, // replaced below
			KeySource:        certmagic.StandardKeyGenerator{KeyType: certmagicKeyType(a.config.KeyType)},
			ReusePrivateKeys: reuse,
			MustStaple:       a.config.MustStaple,
			DisableARI:       a.config.DisableARI,
			OCSP:             certmagic.OCSPConfig{DisableStapling: true},
			OnEvent:          onEvent,
			Logger:           zl,
		})
		issuers := a.magicIssuers(cfg, keeper, zl)
		cfg.Issuers = cfg.Issuers[:0]
		for _, is := range issuers {
			cfg.Issuers = append(cfg.Issuers, is)
		}
		return cfg, issuers[0]
	}
	m := new(magic)
	m.config, m.issuer = build(a.config.ReuseKey)
	m.fresh, _ = build(false)
	return m
}

func (a *acmeSource) magicIssuers(cfg *certmagic.Config, keeper *portKeeper, log *zap.Logger) []*certmagic.ACMEIssuer {
	var issuers []*certmagic.ACMEIssuer
	for _, is := range a.issuers {
		template := certmagic.ACMEIssuer{
			CA:                      is.directory,
			Email:                   a.config.Email,
			Agreed:                  true,
			ExternalAccount:         is.eab,
			Profile:                 is.profile,
			DisableHTTPChallenge:    !slices.Contains(a.config.Challenges, HTTP01),
			DisableTLSALPNChallenge: !slices.Contains(a.config.Challenges, TLSALPN01),
			ListenHost:              keeper.host,
			AltHTTPPort:             keeper.port,
			AltTLSALPNPort:          keeper.port,
			TrustedRoots:            is.roots,
			CertObtainTimeout:       pollTimeout,
			Logger:                  log,
		}
		if a.dns != nil {
			template.DNS01Solver = a.dns.solver(log)
		}
		if a.config.Email == "" {
			// The library would take an address that it saw with another
			// issuer, and so tell one CA what was meant for another.
			template.NewAccountFunc = withoutContact
		}
		issuers = append(issuers, certmagic.NewACMEIssuer(cfg, template))
	}
	return issuers
}

func withoutContact(_ context.Context, _ *certmagic.ACMEIssuer, account acme.Account) (acme.Account, error) {
	account.Contact = nil
	return account, nil
}

func certmagicKeyType(k KeyType) certmagic.KeyType {
	switch k {
	case KeyECDSAP384:
		return certmagic.P384
	case KeyRSA2048:
		return certmagic.RSA2048
	case KeyRSA4096:
		return certmagic.RSA4096
	case KeyEd25519:
		return certmagic.ED25519
	}
	return certmagic.P256
}

// attempt is one try to obtain a certificate. The library tries again for 30
// days unless it is stopped; when to try again is for us to decide, and to
// show.
type attempt struct {
	cancel context.CancelFunc
	err    error // why it failed
}

// fail ends the attempt. The library calls it, by its event or its log, on the
// goroutine of the attempt.
func (at *attempt) fail(err error) {
	if at.err == nil {
		at.err = err
	}
	at.cancel()
}

type attemptKey struct{}

// onEvent ends an attempt when all issuers have failed.
func onEvent(ctx context.Context, event string, data map[string]any) error {
	if event != "cert_failed" {
		return nil
	}
	if at, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		if err, ok := data["error"].(error); ok {
			at.fail(err)
		}
	}
	return nil
}

// try makes one attempt with a config.
func try(ctx context.Context, config *certmagic.Config, obtain func(context.Context, *certmagic.Config) error) error {
	ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
	defer cancel()
	at := &attempt{cancel: cancel}
	err := obtain(context.WithValue(ctx, attemptKey{}, at), at.config(config))
	if at.err != nil {
		return at.err
	}
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("not done after %v: %w", obtainTimeout, err)
	}
	return err
}

// config returns a config whose log ends the attempt. For what fails beside the
// issuers, as reading what is to be renewed and saving what was issued, the
// library has no event, only the entry that it will try again.
func (at *attempt) config(c *certmagic.Config) *certmagic.Config {
	own := *c
	own.Logger = c.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return &attemptCore{core, at}
	}))
	return &own
}

// attemptCore is the log of one attempt.
type attemptCore struct {
	zapcore.Core
	attempt *attempt
}

// Enabled lets the entry through whatever is logged.
func (c *attemptCore) Enabled(l zapcore.Level) bool {
	return l >= zapcore.ErrorLevel || c.Core.Enabled(l)
}

// With keeps the attempt.
func (c *attemptCore) With(fields []zapcore.Field) zapcore.Core {
	return &attemptCore{c.Core.With(fields), c.attempt}
}

// Check takes the entry out of the log: an attempt is stopped before the library
// tries again.
func (c *attemptCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Message == "will retry" {
		return ce.AddCore(e, c)
	}
	return c.Core.Check(e, ce)
}

// Write ends the attempt with the error in the entry.
func (c *attemptCore) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			c.attempt.fail(err)
		}
	}
	return nil
}

// portKeeper holds a port on the loopback interface. For every challenge the
// library listens on a port of its own, 80 or 443 unless told otherwise, but
// leaves that be when the port is taken. Ours are answered on the program's
// listeners, so it is given one that is.
type portKeeper struct {
	listener net.Listener
	host     string
	port     int
}

func newPortKeeper() (*portKeeper, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().(*net.TCPAddr)
	return &portKeeper{ln, addr.IP.String(), addr.Port}, nil
}

// run closes the connections by which the library finds the port taken.
func (k *portKeeper) run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { k.listener.Close() })()
	for {
		conn, err := k.listener.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

// zapCore hands the library's log on. What it calls information is detail
// here, as the outcome of every attempt is logged by us.
type zapCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

func (c *zapCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), slogLevel(l))
}

func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{c.log, append(slices.Clip(c.fields), fields...)}
}

func (c *zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range append(slices.Clip(c.fields), fields...) {
		f.AddTo(enc)
	}
	attrs := make([]slog.Attr, 0, len(enc.Fields))
	for key, value := range enc.Fields {
		attrs = append(attrs, slog.Any(key, value))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	c.log.LogAttrs(context.Background(), slogLevel(e.Level), "acme library: "+e.Message, attrs...)
	return nil
}

func (c *zapCore) Sync() error { return nil }

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelWarn
	case l >= zapcore.WarnLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
