package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
)

// webSettings are what http.Server takes for its life. Where a reload changes
// them, new connections go to a new server.
type webSettings struct {
	readHeader, idle, write time.Duration
	maxHeader               int
	maxStreams              int
}

func webSettingsOf(cfg *config.Config) webSettings {
	return webSettings{
		readHeader: cfg.Timeouts.RequestHeader,
		idle:       cfg.Timeouts.Idle,
		write:      max(cfg.Timeouts.Write, 0),
		maxHeader:  int(cfg.Limits.Header),
		maxStreams: cfg.Limits.HTTP2Streams,
	}
}

func (s webSettings) server(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.readHeader,
		IdleTimeout:       s.idle,
		MaxHeaderBytes:    s.maxHeader,
		// OPTIONS * is for a host too, and has its record.
		DisableGeneralOptionsHandler: true,
		// A slow stream may be slow: each write has its time, the response has
		// not. front bounds the writes of HTTP/1, and proxy those that wait for
		// the window of an HTTP/2 stream.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.maxStreams, WriteByteTimeout: s.write, MaxReadFrameSize: maxReadFrame,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
		ConnContext: connContext,
		ErrorLog:    httpLog(log),
	}
}

// connContext gives requests what front knows of their connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if watched, ok := c.(*watchedConn); ok {
		c = watched.Conn
	}
	return front.ConnContext(ctx, c)
}

// The time for idle connections does not run while a stream is open, and a
// stream may be silent. A client who is gone for good is found by a ping.
const (
	pingAfter   = time.Minute // without a frame from the client
	pingTimeout = 30 * time.Second
)

// maxReadFrame is the least that RFC 9113 (section 4.2) allows, and what other
// servers accept. A frame's buffer is made as soon as its length was read and
// kept with the connection, so net/http's 1 MiB would give that much memory to
// everyone who sends nine bytes.
const maxReadFrame = 16 << 10

// webServer gives finished TLS connections to an http.Server. A change of its
// settings starts another one for new connections; what is open stays with the
// server that it came to, so a reload closes no connection.
type webServer struct {
	conns   net.Listener
	handler http.Handler
	log     *slog.Logger

	closing atomic.Bool   // responses are to say that their connection ends
	handed  chan struct{} // closed when run hands over nothing more

	mu       sync.Mutex
	settings webSettings
	current  *webEntry              // gets new connections
	servers  map[*webEntry]struct{} // that one, and those that have connections left
}

// webEntry is the way in to the server of one protocol each.
type webEntry struct{ http1, http2 *fedServer }

// fedServer is a server with the listener that it gets its connections from.
type fedServer struct {
	*httpServer
	feed *feed
}

func (e *webEntry) each() []*fedServer { return []*fedServer{e.http1, e.http2} }

// of is the server for a connection.
func (e *webEntry) of(c net.Conn) *fedServer {
	if info := front.ConnOf(c); info != nil && info.ALPN == "h2" {
		return e.http2
	}
	return e.http1
}

func newWebServer(conns net.Listener, handler http.Handler, log *slog.Logger) *webServer {
	return &webServer{
		conns: conns, handler: handler, log: log,
		handed: make(chan struct{}), servers: make(map[*webEntry]struct{}),
	}
}

// configure puts settings in force for connections that come from now on.
func (w *webServer) configure(s webSettings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil && w.settings == s {
		return
	}
	next := &webEntry{http1: w.start(s, false), http2: w.start(s, true)}
	if w.current != nil {
		w.current.close()
	}
	w.settings, w.current = s, next
	w.servers[next] = struct{}{}
	go w.forgetUnused(next)
}

func (w *webServer) start(s webSettings, http2 bool) *fedServer {
	server := &fedServer{newHTTPServer(s.server(w.handler, w.log), http2), newFeed(w.conns.Addr())}
	server.serve(server.feed, func(err error) {
		// Serve returns when its feed ends, which is how a server is retired.
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			w.log.Error("http server ended", "err", err)
		}
	})
	return server
}

// close lets no connection in any more.
func (e *webEntry) close() {
	for _, server := range e.each() {
		server.feed.Close()
	}
}

// forgetUnused drops servers when they were retired and their last connection
// has gone.
func (w *webServer) forgetUnused(e *webEntry) {
	for _, server := range e.each() {
		server.wait()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.servers, e)
}

// run hands connections to the current server until the listener that they
// come from is closed.
func (w *webServer) run() error {
	defer close(w.handed)
	for {
		conn, err := w.conns.Accept()
		if err != nil {
			return nil //nolint:nilerr // The listener ends when front does.
		}
		if !w.hand(conn) {
			conn.Close()
			return nil
		}
	}
}

// hand gives a connection to the current server, or to its successor when it
// was retired meanwhile; false means that nobody takes connections any more.
func (w *webServer) hand(conn net.Conn) bool {
	for last := (*webEntry)(nil); ; {
		next := w.entry()
		if next == last {
			return false
		}
		if next.of(conn).feed.put(conn) {
			return true
		}
		last = next
	}
}

func (w *webServer) entry() *webEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// announceClose makes each response tell its client that the connection ends.
func (w *webServer) announceClose() { w.closing.Store(true) }

// shutdown lets requests in flight and on their way end, telling clients to go
// (GOAWAY, Connection: close), and closes what is left when ctx is done.
func (w *webServer) shutdown(ctx context.Context) error {
	w.announceClose()
	w.conns.Close()
	<-w.handed // what was accepted has its server now
	var all sync.WaitGroup
	var cut atomic.Bool
	for _, server := range w.retireAll() {
		all.Go(func() {
			if server.shutdown(ctx) != nil {
				cut.Store(true)
			}
		})
	}
	all.Wait()
	if cut.Load() {
		return ctx.Err()
	}
	return nil
}

// retireAll closes every feed and returns the servers.
func (w *webServer) retireAll() []*fedServer {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*fedServer
	for entry := range w.servers {
		entry.close()
		all = append(all, entry.each()...)
	}
	return all
}

// feed is a listener that is handed its connections.
type feed struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newFeed(addr net.Addr) *feed {
	return &feed{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

// put hands over a connection; false means that the feed is closed and the
// connection still the caller's.
func (f *feed) put(c net.Conn) bool {
	select {
	case f.conns <- c:
		return true
	case <-f.closed:
		return false
	}
}

// Accept returns the next connection.
func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the feed; connections that were handed over live on.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Addr is that of the listener that the connections came from.
func (f *feed) Addr() net.Addr { return f.addr }
