package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Record and handshake message types of RFC 5246 that are looked for.
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	msgClientHello         = 1
	msgServerHello         = 2
	msgCertificate         = 11

	// maxRecorded bounds what is kept of a server's first flight; the
	// ServerHello is at its very beginning.
	maxRecorded = 16 << 10
)

// recorder keeps the first bytes that a connection reads.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if room := maxRecorded - len(r.read); room > 0 {
		r.read = append(r.read, b[:min(n, room)]...)
	}
	return n, err
}

// probeSessionIDs finds out whether TLS 1.2 sessions resume without tickets.
func (p *prober) probeSessionIDs(ctx context.Context, r *Report) {
	if !accepted(r, tls.VersionTLS12) {
		return
	}
	r.SessionIDs = &SessionIDs{}
	if err := p.sessionIDs(ctx, r.SessionIDs); err != nil {
		r.SessionIDs.Error = reason(err, p.opts.timeout)
	}
}

func (p *prober) sessionIDs(ctx context.Context, out *SessionIDs) error {
	rec := &recorder{}
	h := hello{version: tls.VersionTLS12, alpn: p.alpn, recordTo: rec}
	if _, err := p.handshake(ctx, h); err != nil {
		return err
	}
	first, err := newFlight(bytes.NewReader(rec.read)).serverHello()
	if err != nil {
		return err
	}
	out.Issued = len(first.sessionID) > 0
	if !out.Issued {
		return nil
	}
	took, resumed, err := p.offerSessionID(ctx, h, first.sessionID)
	if resumed {
		out.Resumes, out.ResumedSeconds = true, took.Seconds()
	}
	return err
}

// offerSessionID sends a ClientHello with the session ID and reads the server's
// flight as far as needed to know whether it resumes: an abbreviated flight
// goes from ServerHello to ChangeCipherSpec, a full one to Certificate.
func (p *prober) offerSessionID(ctx context.Context, h hello, id []byte) (time.Duration, bool, error) {
	msg, err := p.clientHello(h, id)
	if err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.timeout)
	defer cancel()
	conn, err := p.dialer.DialContext(ctx, "tcp", p.opts.target.address)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	began := time.Now()
	if _, err := conn.Write(msg); err != nil {
		return 0, false, err
	}
	flight := newFlight(conn)
	answer, err := flight.serverHello()
	if err != nil {
		return 0, false, err
	}
	if !bytes.Equal(answer.sessionID, id) {
		return 0, false, nil
	}
	abbreviated, err := flight.abbreviated()
	return time.Since(began), abbreviated, err
}

// clientHello has crypto/tls make a ClientHello and puts the session ID in.
func (p *prober) clientHello(h hello, id []byte) ([]byte, error) {
	var s shaken
	capture := &captureConn{}
	err := tls.Client(capture, p.config(p.opts.target, h, &s)).Handshake()
	if len(capture.written) == 0 {
		return nil, fmt.Errorf("making a client hello: %w", err)
	}
	return withSessionID(capture.written, id)
}

// captureConn is a connection on which the first write fails after being kept.
type captureConn struct {
	net.Conn // nil: crypto/tls calls nothing else before the first write fails
	written  []byte
}

var errCaptured = errors.New("captured")

func (c *captureConn) Write(b []byte) (int, error) {
	c.written = append(c.written, b...)
	return 0, errCaptured
}

func (c *captureConn) Close() error                     { return nil }
func (c *captureConn) SetWriteDeadline(time.Time) error { return nil }

// withSessionID replaces the session ID of a ClientHello in its record.
func withSessionID(record, id []byte) ([]byte, error) {
	const (
		recordHeader = 5
		msgHeader    = 4
		idAt         = recordHeader + msgHeader + 2 + 32 // after version and random
	)
	if len(id) > 32 || len(record) <= idAt || record[0] != recordHandshake || record[recordHeader] != msgClientHello {
		return nil, errors.New("client hello of an unknown form")
	}
	end := idAt + 1 + int(record[idAt])
	if end > len(record) {
		return nil, errors.New("client hello of an unknown form")
	}
	out := append([]byte{}, record[:idAt]...)
	out = append(out, byte(len(id)))
	out = append(out, id...)
	out = append(out, record[end:]...)
	body := len(out) - recordHeader
	out[3], out[4] = byte(body>>8), byte(body)
	body -= msgHeader
	out[6], out[7], out[8] = byte(body>>16), byte(body>>8), byte(body)
	return out, nil
}

// serverHello is what is read of a ServerHello.
type serverHello struct{ sessionID []byte }

// flight reads the unencrypted part of a server's first flight.
type flight struct {
	from    io.Reader
	pending []byte // handshake bytes not consumed yet
	changed bool   // ChangeCipherSpec was read
}

func newFlight(r io.Reader) *flight { return &flight{from: r} }

// next returns the type and body of the next handshake message; ok is false
// when the cipher changes instead.
func (f *flight) next() (typ byte, body []byte, ok bool, err error) {
	for {
		if len(f.pending) >= 4 {
			n := int(f.pending[1])<<16 | int(f.pending[2])<<8 | int(f.pending[3])
			if n > maxRecorded*8 {
				return 0, nil, false, errors.New("handshake message too large")
			}
			if len(f.pending) >= 4+n {
				typ, body = f.pending[0], f.pending[4:4+n]
				f.pending = f.pending[4+n:]
				return typ, body, true, nil
			}
		}
		if f.changed {
			return 0, nil, false, nil
		}
		if err := f.record(); err != nil {
			return 0, nil, false, err
		}
	}
}

// record reads one record.
func (f *flight) record() error {
	var header [5]byte
	if _, err := io.ReadFull(f.from, header[:]); err != nil {
		return err
	}
	body := make([]byte, int(header[3])<<8|int(header[4]))
	if _, err := io.ReadFull(f.from, body); err != nil {
		return err
	}
	switch header[0] {
	case recordHandshake:
		f.pending = append(f.pending, body...)
	case recordChangeCipherSpec:
		f.changed = true
	case recordAlert:
		if len(body) != 2 {
			return errors.New("malformed alert from the server")
		}
		return fmt.Errorf("alert %d from the server", body[1])
	default:
		return fmt.Errorf("unexpected record of type %d", header[0])
	}
	return nil
}

// serverHello reads the first message of the flight.
func (f *flight) serverHello() (serverHello, error) {
	typ, body, ok, err := f.next()
	if err != nil {
		return serverHello{}, err
	}
	const idAt = 2 + 32
	if !ok || typ != msgServerHello || len(body) <= idAt || len(body) < idAt+1+int(body[idAt]) {
		return serverHello{}, errors.New("the server's first message is no ServerHello")
	}
	return serverHello{sessionID: body[idAt+1 : idAt+1+int(body[idAt])]}, nil
}

// abbreviated reads on, after the ServerHello, until it is clear whether the
// session is resumed. For a resumed one it reads the Finished record too, with
// which the client's wait would be over.
func (f *flight) abbreviated() (bool, error) {
	for {
		typ, _, ok, err := f.next()
		switch {
		case err != nil:
			return false, err
		case !ok:
			return true, f.record()
		case typ == msgCertificate:
			return false, nil
		}
	}
}
