package proxybench

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Role runs this program as one of the servers that it measures: "plain" or
// "floor". The arguments are the address to listen on, the backend's, and the
// files of certificate and key.
func Role(role string, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s: want LISTEN BACKEND CERT KEY", role)
	}
	cert, err := tls.LoadX509KeyPair(args[2], args[3])
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, CurvePreferences: []tls.CurveID{tls.X25519}}
	if role == "plain" {
		return servePlain(ln, config, args[1])
	}
	return serveFloor(ln, config, args[1])
}

// servePlain is what the standard library gives for the asking. Its one setting
// is that as many connections to the backend are kept as there are clients, without
// which it would measure dialling.
func servePlain(ln net.Listener, config *tls.Config, backend string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 256
	target := &url.URL{Scheme: "http", Host: backend}
	s := &http.Server{TLSConfig: config, Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: transport,
	}}
	return s.ServeTLS(ln, "", "")
}

// serveFloor terminates TLS and copies bytes, a connection to the backend for each
// of a client: less than that no Go program can do with crypto/tls.
func serveFloor(ln net.Listener, config *tls.Config, backend string) error {
	for {
		raw, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := relay(tls.Server(raw, config), backend); err != nil {
				log.Print(err)
			}
		}()
	}
}

func relay(client *tls.Conn, backend string) error {
	defer client.Close()
	if err := client.Handshake(); err != nil {
		return err
	}
	server, err := net.Dial("tcp", backend)
	if err != nil {
		return err
	}
	defer server.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(server, client) // ends with the client
		server.Close()
	}()
	_, _ = io.Copy(client, server) // ends with the backend, or with the client
	client.Close()
	<-ended
	return nil
}
