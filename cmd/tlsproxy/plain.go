package main

import (
	"context"
	"errors"
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
	readHeader, idle, write time.Duration
	maxHeader               int
	proxyMode               front.ProxyMode
	trusted                 []netip.Prefix
}

func plainSettingsOf(cfg *config.Config) plainSettings {
	return plainSettings{
		readHeader: cfg.Timeouts.RequestHeader,
		idle:       cfg.Timeouts.Idle,
		write:      time.Minute,
		maxHeader:  int(cfg.Limits.Header),
	}
}

// httpSettingsOf are those of the plain HTTP listener, which may stand behind
// a proxy.
func httpSettingsOf(cfg *config.Config) plainSettings {
	settings := plainSettingsOf(cfg)
	settings.proxyMode, _ = front.ParseProxyMode(string(cfg.HTTP.ProxyProtocol)) // config knows the same words
	settings.trusted = cfg.HTTP.TrustedProxies
	return settings
}

// plainServer serves HTTP without TLS on one address, which a reload may
// change: the new address is bound before the old one is given up.
type plainServer struct {
	name    string
	handler http.Handler
	log     *slog.Logger

	mu       sync.Mutex
	address  string // as configured; "" when there is none
	bound    net.Addr
	server   *http.Server
	listener *front.ProxyListener
	next     net.Listener // prepared, not yet installed
	nextAddr string
	running  sync.WaitGroup
}

func newPlainServer(name string, handler http.Handler, log *slog.Logger) *plainServer {
	return &plainServer{name: name, handler: handler, log: log}
}

// prepare binds the address unless it is the present one; "" stands for none.
func (s *plainServer) prepare(address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextAddr = address
	if address == "" || (s.server != nil && address == s.address) {
		return nil
	}
	ln, err := listenPlain(address)
	s.next = ln
	return err
}

// discard gives up what prepare bound.
func (s *plainServer) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.next.Close()
		s.next = nil
	}
}

// install serves on the address that was prepared and retires the one before.
func (s *plainServer) install(settings plainSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil && s.nextAddr == s.address {
		if s.listener != nil {
			s.listener.Configure(settings.proxyMode, settings.trusted)
		}
		return
	}
	if old := s.server; old != nil {
		s.running.Go(func() { s.stop(context.Background(), old) })
	}
	s.address, s.server, s.bound, s.listener = s.nextAddr, nil, nil, nil
	if s.next == nil {
		return
	}
	ln := front.NewProxyListener(s.next)
	ln.Configure(settings.proxyMode, settings.trusted)
	s.next, s.listener = nil, ln
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: settings.readHeader,
		ReadTimeout:       settings.write,
		WriteTimeout:      settings.write,
		IdleTimeout:       settings.idle,
		MaxHeaderBytes:    settings.maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.server, s.bound = server, ln.Addr()
	s.running.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("listener ended", "listener", s.name, "err", err)
		}
	})
}

// plainGrace bounds how long a plain listener that is given up may finish.
const plainGrace = 5 * time.Second

func (s *plainServer) stop(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, plainGrace)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// shutdown stops serving and waits for everything that was started.
func (s *plainServer) shutdown() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server != nil {
		s.stop(context.Background(), server)
	}
	s.running.Wait()
}

// addresses are where it really listens.
func (s *plainServer) addresses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound == nil {
		return nil
	}
	return []string{s.bound.String()}
}
