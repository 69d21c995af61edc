package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tlsproxy/tlsproxy/upstream"
)

// exchange is one request and its response. It is the context of the request on
// its way through httputil, and the response writer that httputil writes to.
type exchange struct {
	context.Context
	cancel  context.CancelFunc // makes httputil let go of the backend; nil unless an upgrade is asked for
	handler *Handler
	rw      http.ResponseWriter
	request *http.Request
	conn    *Conn
	origin  origin
	target  target
	site    *site
	route   *route
	body    *requestBody
	trace   upstream.Trace
	record  Record

	upgraded *upgradedConn // nil before the switch
	wrote    bool          // the final response has begun
	done     bool          // nothing cut the handler short
	leave    bool          // the client should come back on another connection
	deadline time.Time     // of writes over HTTP/1
	stream   streamWrite   // bounds writes over HTTP/2
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange)
}

// Value answers for the exchange itself and for the upstream's trace.
func (ex *exchange) Value(key any) any {
	switch key.(type) {
	case exchangeKey:
		return ex
	case upstream.TraceKey:
		return &ex.trace
	}
	return ex.Context.Value(key)
}

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request) *exchange {
	ex := &exchange{Context: r.Context(), handler: h, rw: w, request: r}
	ex.record.Start = time.Now()
	if r.ProtoMajor == 2 {
		ex.stream.rw, ex.stream.timeout = w, h.opts.StreamWriteTimeout
	}
	ex.conn = h.connOf(r)
	ex.origin = h.trust.originOf(r, ex.conn)
	ex.record.RequestID = requestID(r.Header, ex.origin.trusted)
	ex.extendWrite()
	return ex
}

// connOf returns what is known of the connection of a request.
func (h *Handler) connOf(r *http.Request) *Conn {
	if h.opts.ConnInfo != nil {
		if c := h.opts.ConnInfo(r.Context()); c != nil {
			return c
		}
	}
	addr, _ := netip.ParseAddrPort(r.RemoteAddr) // zero if unknown
	return &Conn{Client: addr}
}

// takeBody puts the counting, bounded body into the request that is forwarded.
func (ex *exchange) takeBody(out *http.Request) {
	r := ex.request
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	ex.body = newRequestBody(ex, r)
	out.Body = ex.body
	if r.ProtoMajor == 1 {
		// Backends may answer before they have read everything. Recorders do not know
		// full duplex and do not need it.
		_ = http.NewResponseController(ex.rw).EnableFullDuplex()
	}
}

// takeTrailer gives the request that is forwarded the trailer of the client's: the very
// map, which fills when the body has been read, and is cleaned then as well as now.
func (ex *exchange) takeTrailer(out *http.Request, trailer http.Header) {
	if out.Trailer = trailer; trailer == nil {
		return
	}
	clean := func() {
		ex.handler.classes.stripTrailer(trailer)
		ex.site.request.stripTrailer(trailer)
	}
	clean()
	if ex.body != nil {
		ex.body.atEnd = clean
	}
}

// extendWrite moves the deadline of writes to an HTTP/1 client ahead. It is called
// for every write, so it skips most of the work.
func (ex *exchange) extendWrite() {
	timeout := ex.handler.opts.WriteTimeout
	if timeout < 0 || ex.request.ProtoMajor != 1 {
		return
	}
	now := time.Now()
	if ex.deadline.Sub(now) > timeout*7/8 {
		return
	}
	ex.deadline = now.Add(timeout)
	_ = http.NewResponseController(ex.rw).SetWriteDeadline(ex.deadline) // recorders have none
}

// Header, WriteHeader and Write make ex an [http.ResponseWriter].
func (ex *exchange) Header() http.Header { return ex.rw.Header() }

func (ex *exchange) WriteHeader(status int) {
	if status >= 200 && !ex.wrote {
		ex.wrote = true
		ex.record.Status = status
		ex.body.responding()
		if closing := ex.handler.opts.Closing; closing != nil && closing() {
			ex.Header().Set("Connection", "close") // net/http makes a GOAWAY of it over HTTP/2
		}
	}
	ex.extendWrite()
	ex.rw.WriteHeader(status)
}

func (ex *exchange) Write(p []byte) (int, error) {
	if !ex.wrote {
		ex.WriteHeader(http.StatusOK)
	}
	ex.extendWrite()
	ex.stream.begin(len(p), false)
	n, err := ex.rw.Write(p)
	ex.stream.end(false)
	ex.record.BytesOut += int64(n)
	return n, err
}

// FlushError sends what was written, for [http.ResponseController].
func (ex *exchange) FlushError() error {
	ex.extendWrite()
	ex.stream.begin(0, true)
	err := http.NewResponseController(ex.rw).Flush()
	ex.stream.end(err == nil)
	return err
}

// Unwrap gives [http.ResponseController] the rest of the methods.
func (ex *exchange) Unwrap() http.ResponseWriter { return ex.rw }

// Hijack hands out the client's connection for an upgrade. httputil calls it only
// after the backend has switched; what the client had sent before is read first.
func (ex *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(ex.rw).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, err
	}
	up, err := newUpgradedConn(conn, buf.Reader, ex.handler.opts, ex.cancel)
	if err != nil {
		ex.wrote = true // there is no connection to answer on
		return nil, nil, err
	}
	ex.upgraded, ex.wrote = up, true
	ex.record.Status, ex.record.Upgraded = http.StatusSwitchingProtocols, true
	return up, buf, nil
}

// fail answers with the status of err, unless the response has begun.
func (ex *exchange) fail(err error) {
	if ex.body != nil {
		if readErr := ex.body.failure(); readErr != nil {
			err = readErr
		}
	}
	ex.record.Err = err
	if ex.wrote {
		return
	}
	status, text := statusOf(ex.Context, err)
	clear(ex.Header())
	ex.setHSTS(ex.Header())
	if ex.leave || ex.request.ProtoMajor == 1 && (status == http.StatusBadRequest || ex.body.unread()) {
		ex.Header().Set("Connection", "close")
	}
	writeError(ex, status, text, ex.record.RequestID)
}

// answerOptions answers OPTIONS *.
func (ex *exchange) answerOptions() {
	ex.setHSTS(ex.Header())
	ex.Header().Set("Allow", allowed)
	ex.WriteHeader(http.StatusNoContent)
	ex.done = true
}

// setHSTS sets the site's Strict-Transport-Security on a response over TLS that
// has none.
func (ex *exchange) setHSTS(h http.Header) {
	if ex.site != nil && ex.site.hsts != nil && ex.conn.TLS && h["Strict-Transport-Security"] == nil {
		h["Strict-Transport-Security"] = ex.site.hsts
	}
}

// finish completes the record, however the handler ended.
func (ex *exchange) finish() {
	if !ex.done || ex.stream.late() {
		ex.record.Aborted = true
		ex.record.Err = cmp.Or(ex.record.Err, ex.cause())
	}
	ex.body.finish(ex.rw)
	if ex.upgraded != nil {
		ex.upgraded.Close()
	} else {
		ex.deadline = time.Time{}
		ex.extendWrite() // for what the server flushes after the handler
		ex.stream.finish()
	}
	ex.fillRecord()
	ex.log()
	if o := ex.handler.opts.Observer; o != nil {
		o.Request(&ex.record)
	}
}

var errCut = errors.New("the response of the backend was cut short")

// cause says why a response was cut short.
func (ex *exchange) cause() error {
	if ex.stream.late() {
		return errStalled
	}
	if err := ex.Context.Err(); err != nil {
		return err
	}
	return errCut
}

func (ex *exchange) fillRecord() {
	rec, r := &ex.record, ex.request
	rec.Duration = time.Since(rec.Start)
	rec.Connect = ex.trace.Connect()
	rec.Method, rec.Host, rec.Proto = r.Method, r.Host, r.Proto
	if rec.Path, rec.Query = ex.target.path, ex.target.query; rec.Path == "" {
		rec.Path, rec.Query, _ = strings.Cut(r.RequestURI, "?") // refused before it was parsed
	}
	rec.UserAgent, rec.Referer = r.UserAgent(), r.Referer()
	rec.Client, rec.Peer = ex.handler.trust.client(ex.origin), ex.conn.Client
	if ex.conn.TLS {
		rec.TLSVersion, rec.Resumed, rec.SNI = tls.VersionName(ex.conn.Version), ex.conn.Resumed, ex.conn.SNI
	}
	if ex.site != nil {
		rec.Site = ex.site.name
	}
	if ex.route != nil {
		rec.Route, rec.Upstream = ex.route.name, cmp.Or(ex.route.upstreamName, ex.trace.Upstream)
	}
	rec.Backend, rec.Tries = ex.trace.Backend, ex.trace.Tries
	if ex.body != nil {
		rec.BytesIn = ex.body.n.Load()
	}
	if ex.upgraded != nil {
		rec.BytesIn, rec.BytesOut = ex.upgraded.in.Load(), ex.upgraded.out.Load()
	}
}

func (ex *exchange) log() {
	rec := &ex.record
	if rec.Err == nil || !ex.handler.opts.Logger.Enabled(ex.Context, slog.LevelDebug) {
		return
	}
	ex.handler.opts.Logger.LogAttrs(ex.Context, slog.LevelDebug, "request not served as asked",
		slog.String("request_id", rec.RequestID), slog.Int("status", rec.Status),
		slog.String("route", rec.Route), slog.Any("err", rec.Err))
}
