package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// httpServer is an http.Server that ends without losing a request. Alone,
// http.Server.Shutdown drops each request of HTTP/1 that it has not read to the
// end of its header, and closes new and kept connections under clients that
// just send one.
type httpServer struct {
	server  *http.Server
	http2   bool // it speaks nothing else; otherwise HTTP/1 alone
	open    openConns
	serving sync.WaitGroup // calls of Serve
	ending  atomic.Bool    // shutdown has begun
}

// newHTTPServer makes server speak one version of HTTP, since they end in
// different ways.
func newHTTPServer(server *http.Server, http2 bool) *httpServer {
	s := &httpServer{server: server, http2: http2}
	server.ConnState = s.open.note
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(!http2)
	server.Protocols.SetHTTP2(http2)
	return s
}

// serve serves a listener until that is closed, and tells failed why it ended.
func (s *httpServer) serve(ln net.Listener, failed func(error)) {
	if !s.http2 {
		ln = watchedListener{ln}
	}
	s.serving.Go(func() { failed(s.server.Serve(ln)) })
}

// wait returns when the listeners have ended and the last connection has gone.
func (s *httpServer) wait() {
	s.serving.Wait()
	if empty := s.open.waiter(); empty != nil {
		<-empty
	}
}

// shutdown lets requests end that are in flight or on their way, and closes
// what is left when ctx is done. The listeners must be closed, and responses
// must tell clients of HTTP/1 that the connection ends.
func (s *httpServer) shutdown(ctx context.Context) error {
	s.ending.Store(true)
	s.serving.Wait()
	if s.http2 {
		s.awaitFirst(ctx)
	} else {
		s.awaitEmpty(ctx)
	}
	err := s.server.Shutdown(ctx)
	if err != nil {
		s.server.Close()
	}
	return err
}

// awaitEmpty waits until no HTTP/1 connection is left: clients close those that
// they were told of, and we those that are quiet.
func (s *httpServer) awaitEmpty(ctx context.Context) {
	for {
		empty := s.open.waiter()
		if empty == nil {
			return
		}
		s.open.closeQuiet()
		select {
		case <-empty:
			return
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// awaitFirst waits a moment for the first request of new connections. After it
// HTTP/2 needs no care: GOAWAY names the requests that were not taken.
func (s *httpServer) awaitFirst(ctx context.Context) {
	for ctx.Err() == nil && s.open.expectFirst() {
		wait(ctx, lookEvery)
	}
}
