package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
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
		// A slow stream may be slow: each write has its time, the response has
		// not (front bounds the writes of HTTP/1).
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.maxStreams, WriteByteTimeout: s.write, MaxReadFrameSize: maxReadFrame,
		},
		ConnContext: front.ConnContext,
		ErrorLog:    httpLog(log),
	}
}

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

	mu       sync.Mutex
	settings webSettings
	feed     *feed          // of the server that gets new connections
	servers  []*http.Server // that one last
	running  sync.WaitGroup
}

func newWebServer(conns net.Listener, handler http.Handler, log *slog.Logger) *webServer {
	return &webServer{conns: conns, handler: handler, log: log}
}

// configure puts settings in force for connections that come from now on.
func (w *webServer) configure(s webSettings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.feed != nil && w.settings == s {
		return
	}
	server, next := s.server(w.handler, w.log), newFeed(w.conns.Addr())
	w.running.Go(func() {
		// Serve returns when its feed ends, which is how a server is retired.
		if err := server.Serve(next); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			w.log.Error("http server ended", "err", err)
		}
	})
	if w.feed != nil {
		w.feed.Close()
	}
	w.settings, w.feed, w.servers = s, next, append(w.servers, server)
}

// run hands connections to the current server until the listener that they
// come from is closed.
func (w *webServer) run() error {
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
	for last := (*feed)(nil); ; {
		next := w.current()
		if next == last {
			return false
		}
		if next.put(conn) {
			return true
		}
		last = next
	}
}

func (w *webServer) current() *feed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.feed
}

// shutdown lets requests in flight end, telling clients to go (GOAWAY,
// Connection: close), and closes what is left when ctx is done.
func (w *webServer) shutdown(ctx context.Context) error {
	w.mu.Lock()
	servers := w.servers
	w.mu.Unlock()
	w.conns.Close()
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() {
			if errs[i] = server.Shutdown(ctx); errs[i] != nil {
				server.Close()
			}
		})
	}
	all.Wait()
	w.running.Wait()
	return errors.Join(errs...)
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
