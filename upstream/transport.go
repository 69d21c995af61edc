package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxResponseHeaderBytes bounds the response headers that a backend may send.
const maxResponseHeaderBytes = 1 << 20

// setTransports makes the connection pools of the backend. Requests that upgrade
// and gRPC have their own, because the standard transport takes protocols and
// time-outs per transport; a pool that is not used costs nothing.
func (b *backend) setTransports(o Options) {
	base := newDialer(b, o)
	headers := max(o.ResponseHeaderTimeout, 0)
	b.rt = b.newTransport(o, base, b.addr, headers)
	b.grpc = b.newTransport(o, base, b.addr, 0)
	h1 := b.addr
	if h1.http1 {
		h1.http2 = false
	}
	b.upgrade = b.newTransport(o, base, h1, headers)
	check := b.newTransport(o, newChecker(b, o), b.addr, 0)
	check.DisableKeepAlives = true
	b.checker = check
}

func (b *backend) newTransport(o Options, d *dialer, a address, headers time.Duration) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(a.http1)
	protocols.SetHTTP2(a.http2)
	protocols.SetUnencryptedHTTP2(a.http2 && a.scheme == "http")
	return &http.Transport{
		Protocols:              protocols,
		DialContext:            d.dialPlain,
		DialTLSContext:         d.tlsDialer(a),
		MaxIdleConnsPerHost:    o.MaxIdle,
		IdleConnTimeout:        o.IdleTimeout,
		ResponseHeaderTimeout:  headers,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		DisableCompression:     true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 15 * time.Second, // finds dead connections
			PingTimeout:     10 * time.Second,
		},
	}
}

// dialer opens connections to one backend.
type dialer struct {
	backend *backend
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	timeout time.Duration
	tls     func() *tls.Config
	report  func(error) // learns from every attempt
	resume  bool

	mu       sync.Mutex             // guards the fields below
	source   *tls.Config            // returned by tls at the last connection
	sessions tls.ClientSessionCache // of connections by source
}

func newDialer(b *backend, o Options) *dialer {
	d := newChecker(b, o)
	d.report, d.resume = b.dialed, true
	return d
}

// newChecker returns a dialer for health checks: every handshake is a full one, so
// that a check sees what a new client would.
func newChecker(b *backend, o Options) *dialer {
	return &dialer{backend: b, dial: o.dial, timeout: o.DialTimeout, report: func(error) {}, tls: o.TLS}
}

// config is how to shake hands now, offering the protocols of a.
func (d *dialer) config(a address) *tls.Config {
	source := d.tls()
	cfg := source.Clone()
	cfg.ServerName = cmp.Or(cfg.ServerName, a.serverName)
	cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
	cfg.ClientSessionCache, cfg.NextProtos = d.sessionsOf(source), nil
	if a.http2 {
		cfg.NextProtos = append(cfg.NextProtos, "h2")
	}
	if a.http1 {
		cfg.NextProtos = append(cfg.NextProtos, "http/1.1")
	}
	return cfg
}

// sessionsOf returns the sessions that may be resumed: one that began with another
// certificate would go on with it.
func (d *dialer) sessionsOf(source *tls.Config) tls.ClientSessionCache {
	if !d.resume {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.source != source {
		d.source, d.sessions = source, tls.NewLRUClientSessionCache(0)
	}
	return d.sessions
}

func (d *dialer) dialPlain(ctx context.Context, _, _ string) (net.Conn, error) {
	return d.attempt(ctx, func(ctx context.Context) (net.Conn, error) {
		return d.dial(ctx, d.backend.addr.network, d.backend.addr.dial)
	})
}

// tlsDialer dials and shakes hands, offering the protocols of a.
func (d *dialer) tlsDialer(a address) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.attempt(ctx, func(ctx context.Context) (net.Conn, error) {
			return d.dialTLS(ctx, d.config(a), a)
		})
	}
}

func (d *dialer) dialTLS(ctx context.Context, cfg *tls.Config, a address) (net.Conn, error) {
	raw, err := d.dial(ctx, a.network, a.dial)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	if !a.http1 && conn.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
		return nil, errors.New("backend does not speak HTTP/2 over TLS")
	}
	return conn, nil
}

// attempt bounds one connection attempt and tells what became of it.
func (d *dialer) attempt(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	trace, _ := ctx.Value(TraceKey{}).(*Trace)
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := dial(ctx)
	if trace != nil {
		trace.connect.Store(int64(time.Since(start)))
	}
	d.report(err)
	if err != nil {
		return nil, &connectError{err}
	}
	return conn, nil
}
