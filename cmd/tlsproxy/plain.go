package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/front"
)

// plainSettings bound what a client of a plain listener may take.
type plainSettings struct {
	plainBounds
	proxyMode front.ProxyMode
	trusted   []netip.Prefix
}

// plainBounds are what http.Server takes for its life.
type plainBounds struct {
	readHeader, idle, write time.Duration
	maxHeader               int
}

func plainSettingsOf(cfg *config.Config) plainSettings {
	return plainSettings{plainBounds: plainBounds{
		readHeader: cfg.Timeouts.RequestHeader,
		idle:       cfg.Timeouts.Idle,
		write:      time.Minute,
		maxHeader:  int(cfg.Limits.Header),
	}}
}

// httpSettingsOf are those of the plain HTTP listener, which may stand behind
// a proxy.
func httpSettingsOf(cfg *config.Config) plainSettings {
	settings := plainSettingsOf(cfg)
	settings.proxyMode, _ = front.ParseProxyMode(string(cfg.HTTP.ProxyProtocol)) // config knows the same words
	settings.trusted = cfg.HTTP.TrustedProxies
	return settings
}

func (s plainBounds) server(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.readHeader,
		ReadTimeout:       s.write,
		WriteTimeout:      s.write,
		IdleTimeout:       s.idle,
		MaxHeaderBytes:    s.maxHeader,
		// OPTIONS * is for a host too.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     httpLog(log),
	}
}

// plainServer serves HTTP without TLS on one address, which a reload may
// change: the new address is bound before the old one is given up. A reload
// that changes the bounds alone goes on with the same sockets under a new
// http.Server.
type plainServer struct {
	name    string
	open    func(address string) ([]net.Listener, error)
	handler http.Handler
	log     *slog.Logger

	mu        sync.Mutex
	address   string // as configured; "" when there is none
	server    *httpServer
	bounds    plainBounds            // of server
	sockets   []net.Listener         // of server; systemd may pass several
	listeners []*front.ProxyListener // on the sockets
	next      []net.Listener         // prepared, not yet installed
	nextAddr  string
	running   sync.WaitGroup // ends of servers before
}

func newPlainServer(name string, f *front.Front, handler http.Handler, log *slog.Logger) *plainServer {
	return &plainServer{name: name, open: f.Open, handler: handler, log: log}
}

// prepare binds the address unless it is the present one; "" stands for none.
func (s *plainServer) prepare(address string, settings plainSettings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextAddr = address
	var err error
	switch present := s.server != nil && address == s.address; {
	case address == "", present && settings.plainBounds == s.bounds:
	case present:
		s.next, err = duplicate(s.sockets)
	default:
		s.next, err = s.open(address)
	}
	return err
}

// duplicate gives listeners of their own on sockets that others listen on too.
// The others may close; no client notices.
func duplicate(sockets []net.Listener) ([]net.Listener, error) {
	var all []net.Listener
	for _, ln := range sockets {
		again, err := duplicateOne(ln)
		if err != nil {
			for _, opened := range all {
				opened.Close()
			}
			return nil, err
		}
		all = append(all, again)
	}
	return all, nil
}

func duplicateOne(ln net.Listener) (net.Listener, error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listener %s is not TCP", ln.Addr())
	}
	file, err := tcp.File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileListener(file)
}

// discard gives up what prepare bound.
func (s *plainServer) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.next {
		ln.Close()
	}
	s.next = nil
}

// install serves on the address that was prepared and retires the one before.
func (s *plainServer) install(settings plainSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil && s.nextAddr == s.address {
		for _, ln := range s.listeners {
			ln.Configure(settings.proxyMode, settings.trusted)
		}
		return
	}
	if old := s.server; old != nil {
		for _, ln := range s.listeners {
			ln.Close() // at once: the next reload may want the address again
		}
		s.running.Go(func() { stop(context.Background(), old) })
	}
	s.address, s.server, s.sockets, s.listeners = s.nextAddr, nil, s.next, nil
	if s.next == nil {
		return
	}
	s.server, s.bounds = s.newServer(settings), settings.plainBounds
	for _, ln := range s.next {
		s.serve(s.server, front.NewProxyListener(ln), settings)
	}
	s.next = nil
}

// newServer makes a server whose responses say that the connection ends when the
// server does.
func (s *plainServer) newServer(settings plainSettings) *httpServer {
	var server *httpServer
	server = newHTTPServer(settings.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if server.ending.Load() {
			w.Header().Set("Connection", "close")
		}
		s.handler.ServeHTTP(w, r)
	}), s.log), false)
	return server
}

func (s *plainServer) serve(server *httpServer, ln *front.ProxyListener, settings plainSettings) {
	ln.Configure(settings.proxyMode, settings.trusted)
	s.listeners = append(s.listeners, ln)
	server.serve(ln, func(err error) {
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.Error("listener ended", "listener", s.name, "err", err)
		}
	})
}

// plainGrace bounds how long a plain listener that is given up may finish.
const plainGrace = 5 * time.Second

// stop ends a server whose listeners are closed.
func stop(now context.Context, server *httpServer) {
	ctx, cancel := context.WithTimeout(now, plainGrace)
	defer cancel()
	_ = server.shutdown(ctx) // what the grace was too short for is closed
}

// shutdown stops serving and waits for everything that was started, at the
// latest until now ends.
func (s *plainServer) shutdown(now context.Context) {
	s.mu.Lock()
	server := s.server
	for _, ln := range s.listeners {
		ln.Close()
	}
	s.mu.Unlock()
	if server != nil {
		stop(now, server)
	}
	s.running.Wait()
}

// addresses are where it really listens.
func (s *plainServer) addresses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, ln := range s.listeners {
		all = append(all, ln.Addr().String())
	}
	return all
}
