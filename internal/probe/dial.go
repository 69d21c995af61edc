package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// hello is the shape of one handshake.
type hello struct {
	version  uint16 // the only one offered; 0: any
	alpn     []string
	groups   []tls.CurveID // nil: the default list
	sessions *sessions     // nil: no tickets at all
	noTicket bool          // do not wait for a ticket
	ask      bool          // send an HTTP request to draw a ticket out
	recordTo *recorder     // nil: record nothing
}

// shaken is what one finished handshake showed.
type shaken struct {
	state     tls.ConnectionState
	remote    string
	connect   time.Duration
	handshake time.Duration
	requested bool // the server asked for a client certificate
}

// sessions is a client session cache for one session, under whatever name: the
// probe itself decides where a session is offered.
type sessions struct {
	held *tls.ClientSessionState
	put  func() // called for each session that arrives; may be nil
}

func (s *sessions) Get(string) (*tls.ClientSessionState, bool) { return s.held, s.held != nil }

func (s *sessions) Put(_ string, state *tls.ClientSessionState) {
	if state == nil { // crypto/tls found it to be of no use
		return
	}
	s.held = state
	if s.put != nil {
		s.put()
	}
}

// shake opens a connection to t, makes one handshake on it, waits for what the
// server sends of itself, and closes it in an orderly way. The last two make
// sure that the server is done with this connection before the next begins: a
// ticket used while the server still finishes the handshake that made it may
// not be known yet.
func (p *prober) shake(ctx context.Context, t target, h hello) (shaken, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.timeout)
	defer cancel()
	began := time.Now()
	raw, err := p.dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return shaken{}, err
	}
	defer raw.Close()
	s := shaken{remote: raw.RemoteAddr().String(), connect: time.Since(began)}
	if h.recordTo != nil {
		h.recordTo.Conn = raw
		raw = h.recordTo
	}
	conn := tls.Client(raw, p.config(t, h, &s))
	began = time.Now()
	if err := conn.HandshakeContext(ctx); err != nil {
		return shaken{}, err
	}
	s.handshake = time.Since(began)
	s.state = conn.ConnectionState()
	if err := p.settle(ctx, conn, h, s); err != nil {
		return shaken{}, err
	}
	return s, nil
}

// config makes the client configuration of one handshake. It verifies nothing:
// the probe verifies the chain itself, so that it can report on servers whose
// chain is not trusted.
func (p *prober) config(t target, h hello, s *shaken) *tls.Config {
	cfg := &tls.Config{
		ServerName:             t.serverName,
		InsecureSkipVerify:     true, // see describeChain
		MinVersion:             tls.VersionTLS10,
		MaxVersion:             tls.VersionTLS13,
		NextProtos:             h.alpn,
		CurvePreferences:       h.groups,
		CipherSuites:           p.suites,
		SessionTicketsDisabled: h.sessions == nil,
		Time:                   p.handshakeTime,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			s.requested = true
			if p.opts.cert != nil {
				return p.opts.cert, nil
			}
			return new(tls.Certificate), nil
		},
	}
	if h.version != 0 {
		cfg.MinVersion, cfg.MaxVersion = h.version, h.version
	}
	if h.sessions != nil {
		cfg.ClientSessionCache = h.sessions
	}
	return cfg
}

// settle waits for what a server sends after the handshake: in TLS 1.3 that is
// the ticket, and the alert of a server that was not content with the client's
// certificate. Then it closes the connection from this side and waits, not
// long, for the server to do the same.
func (p *prober) settle(ctx context.Context, conn *tls.Conn, h hello, s shaken) error {
	quiet := min(max(4*s.handshake, 200*time.Millisecond), 2*time.Second)
	tls13 := s.state.Version == tls.VersionTLS13
	if tls13 && (s.requested || h.sessions != nil && !h.noTicket) {
		got, err := p.await(ctx, conn, h, quiet)
		if err != nil && s.requested {
			return err
		}
		if !got && h.ask && err == nil && s.state.NegotiatedProtocol == "http/1.1" {
			// Some servers keep the ticket back until they have data to send.
			fmt.Fprintf(conn, "HEAD / HTTP/1.1\r\nHost: %s\r\nUser-Agent: tlsproxy-probe\r\n\r\n", s.state.ServerName)
			p.await(ctx, conn, h, quiet)
		}
	}
	if conn.CloseWrite() == nil {
		_, _ = p.await(ctx, conn, hello{}, quiet)
	}
	return nil
}

// await reads until a ticket arrives (true), nothing has come for so long
// (false), or the connection ends (an error, [io.EOF] among them).
func (p *prober) await(ctx context.Context, conn *tls.Conn, h hello, quiet time.Duration) (bool, error) {
	raw := conn.NetConn()
	deadline := time.Now().Add(quiet)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := raw.SetReadDeadline(deadline); err != nil {
		return false, nil
	}
	// A cancelled context ends the wait, as does the ticket waited for: it is
	// put while Read runs, which a deadline in the past then ends.
	stop := context.AfterFunc(ctx, func() { raw.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	got := false
	if h.sessions != nil {
		h.sessions.put = func() { got = true; raw.SetReadDeadline(time.Unix(1, 0)) }
		defer func() { h.sessions.put = nil }()
	}
	_, err := io.CopyN(io.Discard, conn, 1<<20)
	var silence net.Error
	if got || err == nil || errors.As(err, &silence) && silence.Timeout() {
		return got, nil
	}
	return false, err
}

// reason puts an error of a handshake into words for the report.
func reason(err error, timeout time.Duration) string {
	var op *net.OpError
	var netErr net.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &op) && op.Op == "remote error":
		return "alert from the server: " + trimTLS(op.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed by the server during the handshake"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by the server"
	}
	return trimTLS(err)
}
