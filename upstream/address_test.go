package upstream

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestSchemes(t *testing.T) {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(pki.Request{Names: []string{"backend.test"}})
	if err != nil {
		t.Fatal(err)
	}
	withTLS := func(protos ...string) func(*httptest.Server) {
		return func(s *httptest.Server) {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: protos}
			s.EnableHTTP2 = protos[0] == "h2"
		}
	}
	h2c := func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	unix := func(path string) func(*httptest.Server) {
		return func(s *httptest.Server) {
			s.Listener.Close()
			if s.Listener, err = net.Listen("unix", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	server(t, named("unix"), unix(filepath.Join(dir, "h1")))
	server(t, named("unix"), unix(filepath.Join(dir, "h2")), h2c)
	tlsOptions := &tls.Config{RootCAs: ca.Pool(), ServerName: "backend.test"}
	tests := []struct {
		name string
		url  string
		tls  *tls.Config
		want string
	}{
		{"http", "http://" + server(t, named("plain")), nil, "plain HTTP/1.1"},
		{"http with a slash", "http://" + server(t, named("plain")) + "/", nil, "plain HTTP/1.1"},
		{"h2c", "h2c://" + server(t, named("h2c"), h2c), nil, "h2c HTTP/2.0"},
		{"https, HTTP/2", "https://" + server(t, named("tls"), withTLS("h2", "http/1.1")), tlsOptions, "tls HTTP/2.0"},
		{"https, HTTP/1.1", "https://" + server(t, named("tls"), withTLS("http/1.1")), tlsOptions, "tls HTTP/1.1"},
		{"h2", "h2://" + server(t, named("tls"), withTLS("h2")), tlsOptions, "tls HTTP/2.0"},
		{"h2 to HTTP/1.1", "h2://" + server(t, named("tls"), withTLS("http/1.1")), tlsOptions, "error: *no application protocol"},
		{"unix", "unix:" + filepath.Join(dir, "h1"), nil, "unix HTTP/1.1"},
		{"unix with slashes", "unix://" + filepath.Join(dir, "h1"), nil, "unix HTTP/1.1"},
		{"unix+h2c", "unix+h2c:" + filepath.Join(dir, "h2"), nil, "unix HTTP/2.0"},
		{"unix, missing", "unix:" + filepath.Join(dir, "none"), nil, "error: *no such file"},
		{"unknown CA", "https://" + server(t, named("tls"), withTLS("http/1.1")), &tls.Config{ServerName: "backend.test"}, "error: *unknown authority"},
		{"wrong name", "https://" + server(t, named("tls"), withTLS("http/1.1")), &tls.Config{RootCAs: ca.Pool()}, "error: *127.0.0.1"},
		{"plain to TLS", "http://" + server(t, named("tls"), withTLS("http/1.1")), nil, "Client sent an HTTP request to an HTTPS server.\n"},
		{"TLS to plain", "https://" + server(t, named("plain")), tlsOptions, "error: *first record does not look like a TLS handshake"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool(t, Options{TLS: always(tt.tls), EjectAfter: -1}, tt.url)
			for range 2 {
				got := get(t, p)
				if text, isErr := strings.CutPrefix(tt.want, "error: *"); isErr {
					if !strings.HasPrefix(got, "error: upstream \"test\": backend \""+tt.url) || !strings.Contains(got, text) {
						t.Errorf("got %q, want an error with %q", got, text)
					}
				} else if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			}
		})
	}
}

// always is a configuration that never changes; nil is none.
func always(cfg *tls.Config) func() *tls.Config {
	if cfg == nil {
		return nil
	}
	return func() *tls.Config { return cfg }
}

// TestClientCertificateChanges: a new certificate is shown at the next connection,
// and no session that began with the old one is resumed. With one that stays,
// sessions are.
func TestClientCertificateChanges(t *testing.T) {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := ca.Issue(pki.Request{Names: []string{"127.0.0.1"}})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		addr := server(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName, " ", r.TLS.DidResume)
		}, func(s *httptest.Server) {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(), MaxVersion: version}
		})
		var current *tls.Config
		p := newPool(t, Options{TLS: func() *tls.Config { return current }}, "https://"+addr)
		for _, name := range []string{"first", "second"} {
			client, err := ca.Issue(pki.Request{CommonName: name, Client: true})
			if err != nil {
				t.Fatal(err)
			}
			current = &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{*client}}
			for _, resumed := range []bool{false, true} {
				if got, want := get(t, p), fmt.Sprint(name, " ", resumed); got != want {
					t.Errorf("TLS %x: got %q, want %q", version, got, want)
				}
				p.CloseIdleConnections()
			}
		}
	}
}

func TestClientCertificate(t *testing.T) {
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := ca.Issue(pki.Request{Names: []string{"127.0.0.1"}})
	client, err := ca.Issue(pki.Request{CommonName: "proxy", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	addr := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	})
	p := newPool(t, Options{TLS: always(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{*client}})}, "https://"+addr)
	if got := get(t, p); got != "proxy" {
		t.Errorf("got %q", got)
	}
	p = newPool(t, Options{TLS: always(&tls.Config{RootCAs: ca.Pool()})}, "https://"+addr)
	if got := get(t, p); !strings.HasPrefix(got, "error: ") {
		t.Errorf("without a certificate: got %q", got)
	}
}

func TestNewErrors(t *testing.T) {
	tests := map[string]Options{
		"no backends":      {},
		"unknown scheme":   {Backends: []Backend{{URL: "ftp://a"}}},
		"no scheme":        {Backends: []Backend{{URL: "localhost"}}},
		"no host":          {Backends: []Backend{{URL: "http://"}}},
		"absolute":         {Backends: []Backend{{URL: "unix:run/x"}}},
		"only scheme":      {Backends: []Backend{{URL: "http://a/base"}}},
		"user information": {Backends: []Backend{{URL: "http://u:secret@a"}}},
		"port":             {Backends: []Backend{{URL: "http://a:0"}}},
		"invalid":          {Backends: []Backend{{URL: "http://a b"}}},
		"listed twice":     {Backends: []Backend{{URL: "http://a"}, {URL: "http://a"}}},
		"begin with":       {Backends: []Backend{{URL: "http://a"}}, Health: Health{Path: "healthz"}},
		"threshold":        {Backends: []Backend{{URL: "http://a"}}, Health: Health{Path: "/", Fall: -1}},
		"no status":        {Backends: []Backend{{URL: "http://a"}}, Health: Health{Path: "/", StatusMin: 500}},
		"unknown balance":  {Backends: []Backend{{URL: "http://a"}}, Balance: 9},
		"negative":         {Backends: []Backend{{URL: "http://a"}}, DialTimeout: -1},
	}
	for want, opts := range tests {
		opts.Name = "web"
		_, err := New(opts)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `upstream "web"`) {
			t.Errorf("%s: got %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells a password: %v", err)
		}
	}
	_, err := New(Options{Backends: []Backend{{URL: "ftp://a"}, {URL: "http://a/b"}}})
	if err == nil || !strings.Contains(err.Error(), "backends[0]") || !strings.Contains(err.Error(), "backends[1]") {
		t.Errorf("not every error is reported: %v", err)
	}
}
