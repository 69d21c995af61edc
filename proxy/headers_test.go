package proxy

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// ask sends the given headers and returns what the backend got.
func (r *rig) ask(sent http.Header) http.Header {
	r.t.Helper()
	req := r.request("GET", "/", nil)
	req.Header = sent
	res, body := r.do(req)
	if res.StatusCode != 200 {
		r.t.Fatalf("status %d: %s", res.StatusCode, body)
	}
	return headerLines(body)
}

func TestForwardingHeaders(t *testing.T) {
	spoof := http.Header{
		"X-Forwarded-For":    {"203.0.113.7, 198.51.100.1", "10.0.0.9"},
		"X-Forwarded-Host":   {"public.test"},
		"X-Forwarded-Proto":  {"http"},
		"X-Forwarded-Port":   {"80"},
		"X-Forwarded-Prefix": {"/admin"},
		"X-Forwarded-Ssl":    {"off"},
		"X-Real-Ip":          {"203.0.113.7"},
		"X-Original-Url":     {"/admin"},
		"Forwarded":          {`for=203.0.113.7;proto=http;host=public.test, for="[2001:db8::1]:80"`},
		"X-Request-Id":       {"from-outside"},
	}
	only := func(names ...string) http.Header {
		h := http.Header{}
		for _, n := range names {
			h[n] = spoof[n]
		}
		return h
	}
	fresh := map[string]string{
		"X-Forwarded-For":    "127.0.0.1",
		"X-Forwarded-Host":   "app.test",
		"X-Forwarded-Proto":  "https",
		"Forwarded":          "for=127.0.0.1;host=app.test;proto=https",
		"X-Forwarded-Port":   "",
		"X-Forwarded-Prefix": "",
		"X-Forwarded-Ssl":    "",
		"X-Real-Ip":          "",
		"X-Original-Url":     "",
	}
	tests := []struct {
		name    string
		trusted bool
		sent    http.Header
		want    map[string]string // "" means absent
		client  string
	}{
		{"nothing sent", false, http.Header{}, fresh, "127.0.0.1"},
		{"nothing sent, trusted", true, http.Header{}, fresh, "127.0.0.1"},
		{"spoofed", false, spoof, fresh, "127.0.0.1"},
		{"trusted", true, spoof, map[string]string{
			"X-Forwarded-For":    "203.0.113.7, 198.51.100.1, 10.0.0.9, 127.0.0.1",
			"X-Forwarded-Host":   "public.test",
			"X-Forwarded-Proto":  "http",
			"X-Forwarded-Port":   "80",
			"X-Forwarded-Prefix": "/admin",
			"X-Real-Ip":          "203.0.113.7",
			"X-Request-Id":       "from-outside",
			"Forwarded":          `for=203.0.113.7;host=public.test;proto=http, for=198.51.100.1, for=10.0.0.9, for=127.0.0.1`,
		}, "10.0.0.9"},
		{"trusted, X-Forwarded only", true, only("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"), map[string]string{
			"X-Forwarded-For": "203.0.113.7, 198.51.100.1, 10.0.0.9, 127.0.0.1",
			"Forwarded":       `for=203.0.113.7;host=public.test;proto=http, for=198.51.100.1, for=10.0.0.9, for=127.0.0.1`,
		}, "10.0.0.9"},
		{"trusted, Forwarded only", true, only("Forwarded"), map[string]string{
			"X-Forwarded-For":   "203.0.113.7, [2001:db8::1]:80, 127.0.0.1",
			"X-Forwarded-Host":  "public.test",
			"X-Forwarded-Proto": "http",
			"Forwarded":         `for=203.0.113.7;host=public.test;proto=http, for="[2001:db8::1]:80", for=127.0.0.1`,
		}, "2001:db8::1"},
		{"trusted, malformed", true, http.Header{"Forwarded": {"for=a b"}, "X-Forwarded-Proto": {"gopher"}, "X-Forwarded-Host": {"a b"}}, fresh, "127.0.0.1"},
		{"trusted, no address", true, http.Header{"X-Forwarded-For": {"203.0.113.1, unknown"}}, map[string]string{
			"X-Forwarded-For": "203.0.113.1, unknown, 127.0.0.1",
		}, "127.0.0.1"},
		{"trusted chain", true, http.Header{"X-Forwarded-For": {"192.0.2.66, 203.0.113.1, 127.0.0.2, 127.0.0.3:99"}}, map[string]string{}, "203.0.113.1"},
		// A client must not be able to have the proxy's own headers removed.
		{"named hop-by-hop", false, http.Header{"Connection": {"X-Forwarded-For, Forwarded, X-Forwarded-Proto, X-Request-Id"}}, fresh, "127.0.0.1"},
		// Backends with CGI-like environments take an underscore for a hyphen.
		{"underscores", true, http.Header{"X_Forwarded_For": {"6.6.6.6"}, "X_real_ip": {"6.6.6.6"}, "x_request-id": {"x"}, "My_Header": {"kept"}}, map[string]string{
			"X_forwarded_for": "", "X_real_ip": "", "X_request-Id": "", "My_header": "kept",
		}, "127.0.0.1"},
	}
	eachProtocol(t, func(t *testing.T, proto string) {
		for _, tt := range tests {
			if proto == h2 && tt.sent["Connection"] != nil {
				continue // HTTP/2 has no such header
			}
			t.Run(tt.name, func(t *testing.T) {
				r := startRig(t, proto, headerBackend(t), func(o *Options) {
					if tt.trusted {
						o.TrustedProxies = loopback
					}
				})
				got := r.ask(tt.sent)
				for name, want := range tt.want {
					if g := strings.Join(got[name], " & "); g != want {
						t.Errorf("%s: got %q, want %q", name, g, want)
					}
				}
				if id := got.Get("X-Request-Id"); !tt.trusted && len(id) != 32 {
					t.Errorf("X-Request-Id: got %q, want one of our own", id)
				}
				rec := r.record()
				if rec.Client.String() != tt.client {
					t.Errorf("recorded client %s, want %s", rec.Client, tt.client)
				}
				if rec.RequestID != got.Get("X-Request-Id") {
					t.Errorf("recorded ID %q, sent %q", rec.RequestID, got.Get("X-Request-Id"))
				}
			})
		}
	})
}

// Whatever a trusted peer sends in the two families, the backend gets the same
// from both, and what contradicts X-Forwarded-* comes from neither.
func TestForwardingFamiliesAgree(t *testing.T) {
	const forged = "for=9.9.9.9;proto=http;host=evil.test"
	tests := []struct {
		name      string
		sent      http.Header
		chain     string // X-Forwarded-For
		host      string
		proto     string
		forwarded string
	}{
		{"X-Forwarded-* only", http.Header{"X-Forwarded-For": {"1.2.3.4, 10.0.0.1"}, "X-Forwarded-Host": {"public.test"}, "X-Forwarded-Proto": {"HTTP"}},
			"1.2.3.4, 10.0.0.1, 127.0.0.1", "public.test", "http", "for=1.2.3.4;host=public.test;proto=http, for=10.0.0.1, for=127.0.0.1"},
		{"Forwarded only", http.Header{"Forwarded": {"for=1.2.3.4;host=public.test;proto=http, for=10.0.0.1;host=inner.test;proto=https"}},
			"1.2.3.4, 10.0.0.1, 127.0.0.1", "public.test", "http", "for=1.2.3.4;host=public.test;proto=http, for=10.0.0.1, for=127.0.0.1"},
		{"Forwarded without host and protocol", http.Header{"Forwarded": {"for=1.2.3.4"}},
			"1.2.3.4, 127.0.0.1", "app.test", "https", "for=1.2.3.4;host=app.test;proto=https, for=127.0.0.1"},
		{"Forwarded with nonsense", http.Header{"Forwarded": {`for=1.2.3.4;host="a b";proto=gopher`}},
			"1.2.3.4, 127.0.0.1", "app.test", "https", "for=1.2.3.4;host=app.test;proto=https, for=127.0.0.1"},
		{"equal", http.Header{"X-Forwarded-For": {"1.2.3.4"}, "X-Forwarded-Host": {"public.test"}, "X-Forwarded-Proto": {"http"}, "Forwarded": {"for=1.2.3.4;host=public.test;proto=http"}},
			"1.2.3.4, 127.0.0.1", "public.test", "http", "for=1.2.3.4;host=public.test;proto=http, for=127.0.0.1"},
		{"different", http.Header{"X-Forwarded-For": {"1.2.3.4, 10.0.0.1"}, "Forwarded": {forged}},
			"1.2.3.4, 10.0.0.1, 127.0.0.1", "app.test", "https", "for=1.2.3.4;host=app.test;proto=https, for=10.0.0.1, for=127.0.0.1"},
		// A client knows its own address, so an equal chain proves nothing of the host.
		{"equal chain, forged host", http.Header{"X-Forwarded-For": {"1.2.3.4"}, "Forwarded": {"for=1.2.3.4;proto=http;host=evil.test"}},
			"1.2.3.4, 127.0.0.1", "app.test", "https", "for=1.2.3.4;host=app.test;proto=https, for=127.0.0.1"},
		{"chain in one, host in the other", http.Header{"X-Forwarded-For": {"1.2.3.4"}, "Forwarded": {"host=evil.test"}},
			"1.2.3.4, 127.0.0.1", "app.test", "https", "for=1.2.3.4;host=app.test;proto=https, for=127.0.0.1"},
		{"protocol in one, chain in the other", http.Header{"X-Forwarded-Proto": {"http"}, "Forwarded": {forged}},
			"127.0.0.1", "app.test", "http", "for=127.0.0.1;host=app.test;proto=http"},
		{"host in one, chain in the other", http.Header{"X-Forwarded-Host": {"public.test"}, "Forwarded": {forged}},
			"127.0.0.1", "public.test", "https", "for=127.0.0.1;host=public.test;proto=https"},
		{"empty X-Forwarded-*", http.Header{"X-Forwarded-For": {""}, "X-Forwarded-Host": {" "}, "Forwarded": {"for=1.2.3.4;proto=http"}},
			"1.2.3.4, 127.0.0.1", "app.test", "http", "for=1.2.3.4;host=app.test;proto=http, for=127.0.0.1"},
		{"obfuscated in Forwarded", http.Header{"Forwarded": {`for=_hidden, for="_gate:_x", for=unknown, proto=http`}},
			"_hidden, _gate:_x, unknown, unknown, 127.0.0.1", "app.test", "https",
			`for=_hidden;host=app.test;proto=https, for="_gate:_x", for=unknown, for=unknown, for=127.0.0.1`},
		{"obfuscated in X-Forwarded-For", http.Header{"X-Forwarded-For": {"_hidden, unknown"}, "Forwarded": {forged}},
			"_hidden, unknown, 127.0.0.1", "app.test", "https", "for=_hidden;host=app.test;proto=https, for=unknown, for=127.0.0.1"},
		{"a node that would be two", http.Header{"Forwarded": {`for="9.9.9.9, 127.0.0.1"`}},
			"127.0.0.1", "app.test", "https", "for=127.0.0.1;host=app.test;proto=https"},
		{"IPv6", http.Header{"X-Forwarded-For": {"2001:db8::1, [2001:db8::2]:80"}},
			"2001:db8::1, [2001:db8::2]:80, 127.0.0.1", "app.test", "https",
			`for="[2001:db8::1]";host=app.test;proto=https, for="[2001:db8::2]:80", for=127.0.0.1`},
	}
	trust := unmapped(loopback)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &http.Request{Host: "app.test", Header: tt.sent}
			got := http.Header{}
			trust.originOf(r, &Conn{TLS: true, Client: netip.MustParseAddrPort("127.0.0.1:1")}).set(got)
			for name, want := range map[string]string{
				"X-Forwarded-For": tt.chain, "X-Forwarded-Host": tt.host, "X-Forwarded-Proto": tt.proto, "Forwarded": tt.forwarded,
			} {
				if g := strings.Join(got[name], " & "); g != want {
					t.Errorf("%s: got %q, want %q", name, g, want)
				}
			}
		})
	}
}

func TestRequestIDs(t *testing.T) {
	tests := map[string]bool{"abc-123": true, "a b": false, "": false, strings.Repeat("x", 129): false, `a"b`: false, "caf\xe9": false}
	for id, want := range tests {
		got := requestID(http.Header{"X-Request-Id": {id}}, true)
		if (got == id) != want {
			t.Errorf("ID %q kept: %t, want %t", id, got == id, want)
		}
	}
	if a, b := requestID(nil, false), requestID(nil, false); a == b {
		t.Errorf("two requests got the ID %q", a)
	}
}

// The address of a PROXY header decides on trust, not that of its sender.
func TestTrustFollowsTheClientAddress(t *testing.T) {
	trust := unmapped([]netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("2001:db8::/32")})
	for addr, want := range map[string]bool{
		"10.1.2.3:1": true, "[::ffff:10.1.2.3]:1": true, "11.0.0.1:1": false, "[2001:db8::1]:1": true, "[2001:db9::1]:1": false,
	} {
		o := trust.originOf(&http.Request{Host: "a"}, &Conn{Client: netip.MustParseAddrPort(addr)})
		if o.trusted != want {
			t.Errorf("%s trusted: %t, want %t", addr, o.trusted, want)
		}
	}
	if o := trust.originOf(&http.Request{Host: "a"}, &Conn{}); o.trusted {
		t.Error("an unknown peer is trusted")
	}
}

func TestUnknownPeer(t *testing.T) {
	h := http.Header{}
	trustList(nil).originOf(&http.Request{Host: "app.test"}, &Conn{TLS: true}).set(h)
	if got := h.Get("X-Forwarded-For"); got != "unknown" {
		t.Errorf("X-Forwarded-For: got %q", got)
	}
	if got := h.Get("Forwarded"); got != "for=unknown;host=app.test;proto=https" {
		t.Errorf("Forwarded: got %q", got)
	}
}

func TestIdentityHeaders(t *testing.T) {
	root, _ := testPKI()
	inter, err := root.NewIntermediate(pki.CAOptions{Name: "client CA"})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := inter.Issue(pki.Request{CommonName: "Ä, b\n", Names: []string{"client.test"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(cert.Leaf.Raw)
	spoof := http.Header{
		"Client-Cert": {":AAAA:"}, "Client-Cert-Chain": {":AAAA:"}, "Client_Cert": {":AAAA:"}, "X-Subject": {"CN=root"}, "X_subject": {"CN=root"},
		"X-Serial": {"1"}, "X-Verify": {"SUCCESS"}, "X-Fingerprint": {"00"}, "X-Elsewhere": {"CN=root"},
		"X-Other-Listener": {"CN=root"},
	}
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, headerBackend(t), func(o *Options) {
			o.TrustedProxies = loopback // even a trusted peer must not claim an identity
			o.Sites[0].Identity = Identity{Cert: true, Chain: true, Subject: "X-Subject", Serial: "X-Serial", Fingerprint: "X-Fingerprint", Verify: "X-Verify"}
			o.IdentityHeaders = []string{"x-other-listener"}
			o.Sites = append(o.Sites, Site{Hosts: []string{"other.test"}, Routes: o.Sites[0].Routes, Identity: Identity{Subject: "x-elsewhere"}})
		})
		got := r.ask(spoof.Clone())
		for name := range spoof {
			want := ""
			if name == "X-Verify" {
				want = "NONE"
			}
			if g := got.Get(name); g != want {
				t.Errorf("without a certificate, %s: got %q, want %q", name, g, want)
			}
		}
		cfg := clientTLS(proto)
		cfg.Certificates = []tls.Certificate{*cert}
		r.client = r.newClient(cfg)
		got = r.ask(spoof.Clone())
		want := map[string]string{
			"Client-Cert":       ":" + base64.StdEncoding.EncodeToString(cert.Leaf.Raw) + ":",
			"Client-Cert-Chain": ":" + base64.StdEncoding.EncodeToString(inter.Certificate.Raw) + ":",
			"X-Subject":         `CN=\C3\84\, b\0A`,
			"X-Serial":          fmt.Sprintf("%X", cert.Leaf.SerialNumber),
			"X-Fingerprint":     hex.EncodeToString(sum[:]),
			"X-Verify":          "SUCCESS",
			"X-Elsewhere":       "",
			"Client_cert":       "",
		}
		for name, w := range want {
			if g := strings.Join(got[name], " & "); g != w {
				t.Errorf("with a certificate, %s: got %q, want %q", name, g, w)
			}
		}
	})
}

// The same identity reaches the backend whether the session is resumed or not.
func TestIdentityOfResumedSession(t *testing.T) {
	cert, _ := clientCertificate(t, pki.Request{Names: []string{"client.test"}})
	r := startRig(t, h1, headerBackend(t), func(o *Options) { o.Sites[0].Identity = Identity{Cert: true} })
	cfg := clientTLS(h1)
	cfg.Certificates = []tls.Certificate{cert}
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	var got [2]string
	var resumed [2]bool
	for i := range got {
		r.client = r.newClient(cfg)
		got[i] = r.ask(http.Header{}).Get("Client-Cert")
		resumed[i] = r.record().Resumed
		r.client.CloseIdleConnections()
	}
	if resumed != [2]bool{false, true} {
		t.Fatalf("resumed: %v, want false and true", resumed)
	}
	if got[0] == "" || got[0] != got[1] {
		t.Errorf("Client-Cert: full %.40q, resumed %.40q", got[0], got[1])
	}
}

func TestIdentityWithoutIntermediates(t *testing.T) {
	_, leaf := clientCertificate(t, pki.Request{Names: []string{"client.test"}})
	ca, _ := testPKI()
	h := http.Header{}
	Identity{Cert: true, Chain: true}.set(h, []*x509.Certificate{leaf, ca.Certificate})
	if h["Client-Cert"] == nil || h["Client-Cert-Chain"] != nil {
		t.Errorf("got %v, want a certificate and no chain", h)
	}
}

func TestHeaderRules(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server", "secret/1.0")
			w.Header().Set("X-Powered-By", "magic")
			fmt.Fprint(w, r.Header.Get("X-Env"), "|", r.Header.Get("Cookie"), "|", r.Host)
		})
		r := startRig(t, proto, up, func(o *Options) {
			s := &o.Sites[0]
			s.Request = HeaderRules{Set: map[string]string{"x-env": "prod"}, Remove: []string{"cookie"}}
			s.Response = HeaderRules{Set: map[string]string{"Server": "proxy"}, Remove: []string{"X-Powered-By"}}
			s.HSTS = "max-age=31536000"
			s.Routes[0].Host = "internal.test"
		})
		req := r.request("GET", "/", nil)
		req.Header.Set("Cookie", "a=b")
		req.Header.Set("X-Env", "client")
		res, body := r.do(req)
		if body != "prod||internal.test" {
			t.Errorf("the backend got %q", body)
		}
		for name, want := range map[string]string{"Server": "proxy", "X-Powered-By": "", "Strict-Transport-Security": "max-age=31536000"} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	})
}

// A response without a type gets none: to guess HTML would make a script of text.
func TestContentTypeIsNotGuessed(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, "<html>")
		})
		res, body := startRig(t, proto, up, nil).get("/")
		if got, there := res.Header["Content-Type"]; there || body != "<html>" {
			t.Errorf("got %q with type %q, want it without", body, got)
		}
	})
}

// What is removed is not put back by net/http, which adds some headers where
// there are none.
func TestRemovedHeadersStayAway(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		up := backend(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
			w.Header().Set("Content-Type", "text/html")
			for _, name := range []string{"User-Agent", "Accept-Encoding"} {
				fmt.Fprintf(w, "<html>%s %q", name, r.Header[name])
			}
		})
		r := startRig(t, proto, up, func(o *Options) {
			o.Sites[0].Request.Remove = []string{"user-agent", "accept-encoding"}
			o.Sites[0].Response.Remove = []string{"date", "content-type"}
		})
		res, body := r.get("/")
		for _, name := range []string{"Date", "Content-Type"} {
			if got, there := res.Header[name]; there {
				t.Errorf("the client got %s %q", name, got)
			}
		}
		if want := "<html>User-Agent []<html>Accept-Encoding []"; body != want {
			t.Errorf("the backend got %q, want %q", body, want)
		}
	})
}

func TestHSTSIsTheBackendsToChange(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=0")
	})
	r := startRig(t, h1, up, func(o *Options) { o.Sites[0].HSTS = "max-age=31536000" })
	res, _ := r.get("/")
	if got := res.Header.Values("Strict-Transport-Security"); !slices.Equal(got, []string{"max-age=0"}) {
		t.Errorf("got %q", got)
	}
}

// gRPC servers insist on TE: trailers.
func TestTETrailers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, proto string) {
		r := startRig(t, proto, headerBackend(t), nil)
		if got := r.ask(http.Header{"Te": {"trailers"}}).Get("Te"); got != "trailers" {
			t.Errorf("TE: got %q, want trailers", got)
		}
	})
}

// Hop-by-hop headers stay on their hop, in both directions.
func TestHopByHop(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Private")
		w.Header().Set("X-Private", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Public", "1")
		r.Header.Write(w)
	})
	r := startRig(t, h1, up, nil)
	req := r.request("GET", "/", nil)
	req.Header = http.Header{
		"Connection": {"X-Secret, Te"}, "X-Secret": {"1"}, "Te": {"trailers, deflate"}, "Keep-Alive": {"timeout=5"},
		"Proxy-Authorization": {"Basic x"}, "X-End": {"1"},
	}
	res, body := r.do(req)
	got := headerLines(body)
	if got.Get("X-Secret") != "" || got.Get("Keep-Alive") != "" || got.Get("Proxy-Authorization") != "" || got.Get("X-End") != "1" || got.Get("Te") != "trailers" {
		t.Errorf("the backend got\n%s", body)
	}
	if res.Header.Get("X-Private") != "" || res.Header.Get("Keep-Alive") != "" || res.Header.Get("X-Public") != "1" {
		t.Errorf("the client got %v", res.Header)
	}
}

// The proxy's own answers carry it as well: a client whose first response is an
// error must not stay on plain HTTP.
func TestHSTSOnOwnAnswers(t *testing.T) {
	for _, proto := range []string{h1, h2} {
		up := roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, errors.New("down") })
		r := startRig(t, proto, up, func(o *Options) { o.Sites[0].HSTS, o.MaxBodyBytes = "max-age=1", 1 })
		for _, c := range []struct {
			req    *http.Request
			status int
			want   string
		}{
			{r.request("GET", "/", nil), 502, "max-age=1"},
			{r.request("POST", "/", strings.NewReader("large")), 413, "max-age=1"},
			{r.request("TRACE", "/", nil), 405, "max-age=1"},
		} {
			if res, _ := r.do(c.req); res.StatusCode != c.status || res.Header.Get("Strict-Transport-Security") != c.want {
				t.Errorf("%s: %s with %q, want %d with %q", proto, res.Status, res.Header["Strict-Transport-Security"], c.status, c.want)
			}
		}
	}
}
