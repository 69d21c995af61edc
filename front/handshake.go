package front

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tlsproxy/tlsproxy/session"
)

// handshakeState is what a connection needs until it is handed over.
type handshakeState struct {
	policy  *Policy
	proxy   ProxyMode        // under which the header was read
	attempt *session.Attempt // nil: no session
	acme    bool
	err     error                // of a callback, whose reason crypto/tls would lose
	refused *tls.ConnectionState // when authorisation failed; nil: it did not
}

// serve brings one connection from the kernel to http.Server, or closes it.
func (p *port) serve(raw net.Conn) {
	f := p.front
	c := &conn{Conn: raw, port: p}
	c.release = func() {
		f.gate.leave()
		f.counters.open.Add(-1)
	}
	tlsConn, err := f.finish(c)
	f.shakes.leave()
	f.counters.handshaking.Add(-1)
	f.report(c, err)
	acme := c.handshake.acme
	c.handshake = handshakeState{} // what it holds is not needed any longer
	switch {
	case err != nil:
		drop(c, tlsConn, reasonOf(err))
	case acme:
		_ = tlsConn.Close()
	case !f.ready.put(tlsConn):
		f.counters.failures[ReasonShutdown].Add(1)
		_ = tlsConn.Close()
	}
}

// finish does all that comes before HTTP. The *tls.Conn is nil if TLS never
// began.
func (f *Front) finish(c *conn) (tlsConn *tls.Conn, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			f.log.Error("panic in a handshake", "listener", c.port.address, "panic", fault, "stack", string(debug.Stack()))
			err = fail(ReasonInternal, fmt.Errorf("panic: %v", fault))
		}
		if err != nil && f.shaking.Err() != nil {
			err = fail(ReasonShutdown, err)
		}
		if attempt := c.handshake.attempt; err != nil && attempt != nil {
			if refused := c.handshake.refused; refused != nil {
				attempt.Refuse(*refused)
			}
			attempt.Abandon()
			c.info.Session = attempt.Result()
		}
	}()
	limits := f.limits.Load()
	c.writes.timeout = limits.WriteTimeout
	if err := f.identify(c, limits); err != nil {
		return nil, err
	}
	c.info.Started = time.Now()
	tlsConn = tls.Server(c, f.outer)
	state, err := c.shake(tlsConn, limits.HandshakeTimeout)
	if err == nil && !c.handshake.acme {
		err = c.authorize(state, limits.HandshakeTimeout)
	}
	return tlsConn, err
}

// identify finds out who the client is and whether it may try.
func (f *Front) identify(c *conn, limits *Limits) error {
	c.info.Listener = c.port.address
	c.info.Client, _ = addrPort(c.Conn.RemoteAddr())
	c.info.Local, _ = addrPort(c.Conn.LocalAddr())
	if err := c.proxyHeader(c.port.current.Load(), limits.ProxyHeaderTimeout); err != nil {
		return err
	}
	client := clientKey(c.info.Client.Addr())
	if !f.clients.enter(client, limits.MaxPerClient) {
		return fail(ReasonClientLimit, fmt.Errorf("the client has %d connections open already", limits.MaxPerClient))
	}
	places := c.release
	c.release = func() {
		f.clients.leave(client)
		places()
	}
	if !f.rate.allow(client) {
		return fail(ReasonRateLimited, errors.New("the client makes too many handshakes"))
	}
	return nil
}

// shake does the TLS handshake. The connection's deadline ends a wait for the
// client, the context's one a wait in a callback, say for a certificate.
func (c *conn) shake(t *tls.Conn, timeout time.Duration) (tls.ConnectionState, error) {
	deadline := c.info.Started.Add(timeout)
	ctx, cancel := context.WithDeadline(c.port.front.shaking, deadline)
	defer cancel()
	if err := c.SetDeadline(deadline); err != nil {
		return tls.ConnectionState{}, err
	}
	err := t.HandshakeContext(ctx)
	c.info.Handshake = time.Since(c.info.Started)
	if err != nil {
		return tls.ConnectionState{}, c.explain(err)
	}
	state := t.ConnectionState()
	c.info.fill(state)
	return state, c.SetDeadline(time.Time{})
}

// authorize runs what comes after the handshake, and stores the session last.
func (c *conn) authorize(state tls.ConnectionState, timeout time.Duration) error {
	h := &c.handshake
	if h.policy.clientAuth != nil {
		ctx, cancel := context.WithTimeout(c.port.front.shaking, timeout)
		defer cancel()
		if err := h.policy.clientAuth.Authorize(ctx, state); err != nil {
			h.refused = &state
			return err
		}
	}
	if h.attempt == nil {
		return nil
	}
	err := h.attempt.Commit(state)
	c.info.Session = h.attempt.Result()
	if err != nil {
		return fail(ReasonSessionRevoked, err)
	}
	return nil
}

// configFor picks the config of a connection from its hello.
func (f *Front) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c := hello.Conn.(*conn)
	h, state := &c.handshake, c.port.current.Load()
	name, ok := CanonicalName(hello.ServerName)
	c.info.ServerName = name

	if state.table.acme != nil && acmeOnly(hello.SupportedProtos) {
		h.acme = true
		return state.table.acme, nil
	}
	policy := state.table.Lookup(name)
	switch {
	case !ok:
		policy = state.table.fallback // a name that no host can have
	case name == "":
		policy = state.table.ForAddress(c.info.Local.Addr())
	}
	if policy == nil {
		h.err = fail(ReasonUnknownSNI, fmt.Errorf("server name %q: no site has it, and unknown names are rejected", hello.ServerName))
		return rejectConfig(), nil
	}
	h.policy = policy
	c.info.Site, c.info.PolicyID = policy.site, policy.ID() // before the rules are asked for: they may change at any time
	return f.connConfig(c, hello, ok)
}

// extendedMasterSecret is the number of the extension of RFC 7627.
const extendedMasterSecret = 23

// connConfig makes the config of one connection: its policy's, with hooks that
// know the connection. Sessions are bound to a name, so without a sane one there
// are none.
func (f *Front) connConfig(c *conn, hello *tls.ClientHelloInfo, saneName bool) (*tls.Config, error) {
	h := &c.handshake
	policy := h.policy
	config := policy.base.Clone()
	var auth *[32]byte
	if policy.clientAuth != nil {
		digest, err := policy.clientAuth.Configure(config)
		if err != nil {
			h.err = err
			return nil, err
		}
		auth = &digest
		config.VerifyConnection = h.keepError(config.VerifyConnection)
	}
	config.GetCertificate = c.getCertificate
	if f.sessions == nil || !policy.resume || !saneName {
		config.SessionTicketsDisabled = true
		return config, nil
	}
	h.attempt = f.sessions.Begin(session.Binding{
		Scope:      policy.scope(h.proxy, auth),
		Site:       policy.site,
		ServerName: c.info.ServerName,
		Keys:       policy.keys(c.info.ServerName),
		Client:     c.info.Client.Addr(),
		Started:    c.info.Started,
		ClientAuth: config.ClientAuth != tls.NoClientCert,

		ExtendedMasterSecret: slices.Contains(hello.Extensions, extendedMasterSecret),
	})
	config.WrapSession = h.attempt.Wrap
	config.UnwrapSession = h.attempt.Unwrap
	return config, nil
}

// getCertificate picks the certificate of a full handshake and notes its key.
func (c *conn) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	h := &c.handshake
	cert, err := h.policy.get(withoutACME(hello))
	if err == nil && (cert == nil || len(cert.Certificate) == 0) {
		err = errors.New("there is none")
	}
	if err != nil {
		// Nothing at all makes crypto/tls say unrecognized_name (RFC 6066,
		// section 3); an error would come out as internal_error.
		h.err = fail(ReasonNoCertificate, fmt.Errorf("certificate for server name %q: %w", c.info.ServerName, err))
		return nil, nil
	}
	if h.attempt != nil {
		leaf := cert.Leaf
		if leaf == nil {
			if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
				h.err = fail(ReasonNoCertificate, err)
				return nil, h.err
			}
		}
		h.attempt.Served(sha256.Sum256(leaf.RawSubjectPublicKeyInfo))
	}
	return cert, nil
}

// keepError keeps the error of VerifyConnection, which the client sees as an
// alert without a reason.
func (h *handshakeState) keepError(verify func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	if verify == nil {
		return nil
	}
	return func(state tls.ConnectionState) error {
		err := verify(state)
		if err != nil {
			h.err, h.refused = err, &state
		}
		return err
	}
}

// rejectConfig has no certificate, to which crypto/tls answers with the alert
// unrecognized_name.
func rejectConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
}

// explain gives an error of a handshake its reason.
func (c *conn) explain(err error) error {
	if c.handshake.err != nil {
		return c.handshake.err
	}
	re, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok {
		return err
	}
	switch first := re.RecordHeader[:]; {
	case re.Conn == nil: // not the first record
	case looksLikeProxyHeader(first):
		return fail(ReasonProxyHeader, errors.New("a PROXY header that nobody asked for"))
	case looksLikeHTTP(first):
		return fail(ReasonPlainHTTP, errors.New("plain HTTP on a port of TLS"))
	}
	return err
}

// drop closes a connection that was refused.
func drop(c *conn, t *tls.Conn, reason Reason) {
	switch reason {
	case ReasonTimeout, ReasonEOF, ReasonClientAlert, ReasonRateLimited, ReasonClientLimit, ReasonProxyHeader, ReasonShutdown:
		// There is nothing to say, or nobody to hear it.
		_ = c.Close()
		return
	case ReasonPlainHTTP:
		answerPlainHTTP(c)
	}
	if t != nil && t.ConnectionState().HandshakeComplete {
		_ = t.CloseWrite() // says goodbye in TLS
	}
	lingerClose(c)
	_ = c.Close()
}

// report counts the end of a handshake and tells the observer.
func (f *Front) report(c *conn, err error) {
	var reason Reason
	info := &c.info
	switch {
	case err != nil:
		reason = reasonOf(err)
		f.counters.failures[reason].Add(1)
		if f.log.Enabled(context.Background(), slog.LevelDebug) {
			f.log.Debug("connection refused", "listener", info.Listener, "client", info.Client,
				"server_name", info.ServerName, "reason", reason, "err", err)
		}
	case c.handshake.acme:
		f.counters.challenges.Add(1)
		return // it is counted for itself, not among the handshakes
	default:
		i := 0
		if info.Version == tls.VersionTLS13 {
			i = 1
		}
		f.counters.done[i].Add(1)
		if info.Resumed {
			f.counters.resumed[i].Add(1)
		}
	}
	if f.observer != nil {
		f.observer.Handshake(info.event(reason, err))
	}
}
