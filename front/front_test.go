package front

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

func wantWords(t *testing.T, body string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(" "+body+" ", " "+w+" ") {
			t.Errorf("answer %q has no %q", body, w)
		}
	}
}

func TestConnectionsReachHTTP(t *testing.T) {
	forVersions(t, func(t *testing.T, version uint16) {
		r := newRig(t, rigOptions{})
		cache := &anyName{}
		state, body := r.mustVisit(r.client("APP.example", version, cache))
		wantWords(t, body, "site=default", "sni=app.example", "resumed=false", "proto=HTTP/1.1", "addr="+clientAddr, "remote="+clientAddr)
		if state.DidResume {
			t.Error("the first visit resumed")
		}
		state, body = r.mustVisit(r.client("app.example", version, cache))
		wantWords(t, body, "resumed=true", "session=hit", "sni=app.example")
		if !state.DidResume {
			t.Error("the second visit did not resume")
		}
		stats := r.front.Stats()
		label := versionLabel(version)
		if stats.Accepted != 2 || stats.Handshakes[label] != 2 || stats.Resumed[label] != 1 {
			t.Errorf("stats = %+v", stats)
		}
		testtool.Eventually(t, "every place to be given back", func() bool {
			s := r.front.Stats()
			return s.Open == 0 && s.Handshaking == 0 && s.Ready == 0 && len(r.front.clients.open) == 0
		})
	})
}

func TestHTTP2(t *testing.T) {
	forVersions(t, func(t *testing.T, version uint16) {
		r := newRig(t, rigOptions{})
		config := r.client("app.example", version, nil)
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: r.network.DialContext}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		res, err := client.Get("https://192.0.2.1/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.ProtoMajor != 2 {
			t.Fatalf("protocol %s, %v", res.Proto, err)
		}
		wantWords(t, string(body), "proto=HTTP/2.0", "alpn=h2")
	})
}

// Every config that a hello can get has both session hooks, or no tickets at
// all; a config without hooks would fall back to the tickets of crypto/tls, and
// they resume across sites.
func TestEveryConfigIsBound(t *testing.T) {
	r := newRig(t, rigOptions{listeners: func(r *rig) []ListenerOptions {
		table, err := NewTable(TableOptions{
			Sites: []Site{
				{Hosts: []string{"app.example", "*.app.example"}, Policy: r.policy(PolicyOptions{Site: "app"})},
				{Hosts: []string{"*.example"}, Policy: r.policy(PolicyOptions{Site: "wild", DisableHTTP2: true})},
				{Hosts: []string{"full.example"}, Policy: r.policy(PolicyOptions{Site: "full", DisableResumption: true})},
			},
			Default:         r.policy(PolicyOptions{Site: "default"}),
			ACMECertificate: r.certs.getCertificate,
		})
		if err != nil {
			t.Fatal(err)
		}
		reject := r.table(nil, Site{Hosts: []string{"app.example"}, Policy: r.policy(PolicyOptions{Site: "app"})})
		return []ListenerOptions{{Address: listenAddr, Table: table}, {Address: "192.0.2.1:444", Table: reject}}
	}, noStart: true})

	names := []string{
		"", "app.example", "APP.EXAMPLE", "App.Example", "x.app.example", "x.y.app.example", "X.example", "full.example",
		"unknown.test", "192.0.2.1", "a..b", strings.Repeat("a", 300), "bücher.example", "xn--bcher-kva.example", "\x00", "*.example",
	}
	protocols := [][]string{nil, {"h2", "http/1.1"}, {"http/1.1"}, {"acme-tls/1"}, {"acme-tls/1", "h2"}, {"h2", "acme-tls/1"}}
	checked := 0
	for _, p := range r.front.ports {
		for _, name := range names {
			for _, protos := range protocols {
				a, b := memnet.Pipe(&net.TCPAddr{}, &net.TCPAddr{})
				c := &conn{Conn: a, port: p}
				config, err := r.front.configFor(&tls.ClientHelloInfo{ServerName: name, SupportedProtos: protos, Conn: c})
				a.Close()
				b.Close()
				if err != nil {
					t.Fatalf("%s, %q, %q: %v", p.address, name, protos, err)
				}
				checked++
				hooks := config.WrapSession != nil && config.UnwrapSession != nil
				if !hooks && !config.SessionTicketsDisabled {
					t.Errorf("%s, %q, %q: neither both hooks nor tickets off", p.address, name, protos)
				}
				if hooks && config.SessionTicketsDisabled {
					t.Errorf("%s, %q, %q: hooks and tickets off", p.address, name, protos)
				}
				checkALPN(t, c, config)
			}
		}
	}
	if checked != len(names)*len(protocols)*2 {
		t.Errorf("checked %d configs", checked)
	}
}

// checkALPN demands h2 and http/1.1 of every config that can lead to HTTP.
func checkALPN(t *testing.T, c *conn, config *tls.Config) {
	t.Helper()
	got := strings.Join(config.NextProtos, ",")
	want := "h2,http/1.1"
	switch {
	case c.handshake.acme:
		want = "acme-tls/1"
	case c.handshake.policy == nil: // refused: there is no certificate either
		want = ""
		if config.GetCertificate != nil || len(config.Certificates) > 0 {
			t.Error("a refused connection has a certificate")
		}
	case c.info.Site == "wild":
		want = "http/1.1"
	}
	if got != want {
		t.Errorf("site %q, acme %v: ALPN %q; want %q", c.info.Site, c.handshake.acme, got, want)
	}
}

// The config that a connection has before its hello is read has no ticket keys
// to fall back to.
func TestOuterConfigHasNoTickets(t *testing.T) {
	f, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !f.outer.SessionTicketsDisabled {
		t.Error("tickets are on in the outer config")
	}
}

func TestResumptionOffForASite(t *testing.T) {
	forVersions(t, func(t *testing.T, version uint16) {
		r := newRig(t, rigOptions{listeners: func(r *rig) []ListenerOptions {
			return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "full", DisableResumption: true}))}}
		}})
		cache := tls.NewLRUClientSessionCache(8)
		for range 3 {
			state, body := r.mustVisit(r.client("app.example", version, cache))
			if state.DidResume {
				t.Error("a session resumed")
			}
			wantWords(t, body, "session=") // no lookup either
		}
		if s, ok := cache.Get("app.example"); ok && s != nil {
			t.Error("the client was given a ticket")
		}
		if n := r.sessions.Stats().Entries; n != 0 {
			t.Errorf("%d sessions stored", n)
		}
	})
}

// The deadline of the handshake is not one of the connection.
func TestConnectionsOutliveTheHandshakeDeadline(t *testing.T) {
	pki := newMatrixPKI(t)
	forVersions(t, func(t *testing.T, version uint16) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server})
			c := tls.Client(r.dial(), r.client("app.example", version, nil))
			defer c.Close()
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(c)
			for range 3 {
				time.Sleep(10 * time.Minute)
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}
