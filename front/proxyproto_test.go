package front

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/tlsproxy/tlsproxy/internal/memnet"
)

const (
	trustedProxy = "10.1.2.3:7000"
	stranger     = "203.0.113.9:7000"
)

// proxyRig listens with a mode and trusts 10.0.0.0/8.
func proxyRig(t testing.TB, mode ProxyMode, o rigOptions) *rig {
	t.Helper()
	o.listeners = func(r *rig) []ListenerOptions {
		l := ListenerOptions{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "default"})), ProxyProtocol: mode}
		if mode != ProxyOff {
			l.TrustedProxies = mustPrefixes("10.0.0.0/8")
		}
		return []ListenerOptions{l}
	}
	return newRig(t, o)
}

// header is a PROXY header of a version, 1 or 2.
func header(t testing.TB, version byte, from, to string) []byte {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withTLV is a header of version 2 with n bytes after the addresses.
func withTLV(t testing.TB, n int) []byte {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.IPv4(198, 51, 100, 7), Port: 1234}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443})
	if err := h.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_NOOP, Value: make([]byte, n)}}); err != nil {
		t.Fatal(err)
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestProxyHeaders(t *testing.T) {
	const real = "198.51.100.7:1234"
	const real6 = "[2001:db8::7]:1234"
	v1 := header(t, 1, real, "192.0.2.1:443")
	v2 := header(t, 2, real, "192.0.2.1:443")
	local, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		mode   ProxyMode
		from   string
		header []byte
		client string // by the answer; "" when refused
		reason Reason
	}{
		{"off, none", ProxyOff, stranger, nil, stranger, ""},
		{"off, v1", ProxyOff, trustedProxy, v1, "", ReasonProxyHeader},
		{"off, v2", ProxyOff, trustedProxy, v2, "", ReasonProxyHeader},
		{"optional, none", ProxyOptional, trustedProxy, nil, trustedProxy, ""},
		{"optional, v1", ProxyOptional, trustedProxy, v1, real, ""},
		{"optional, v2", ProxyOptional, trustedProxy, v2, real, ""},
		{"optional, none, stranger", ProxyOptional, stranger, nil, stranger, ""},
		{"optional, v1, stranger", ProxyOptional, stranger, v1, "", ReasonProxyHeader},
		{"optional, v2, stranger", ProxyOptional, stranger, v2, "", ReasonProxyHeader},
		{"required, v1", ProxyRequired, trustedProxy, v1, real, ""},
		{"required, v2", ProxyRequired, trustedProxy, v2, real, ""},
		{"required, v1 over IPv6", ProxyRequired, trustedProxy, header(t, 1, real6, "[2001:db8::1]:443"), real6, ""},
		{"required, v2 over IPv6", ProxyRequired, trustedProxy, header(t, 2, real6, "[2001:db8::1]:443"), real6, ""},
		{"required, none", ProxyRequired, trustedProxy, nil, "", ReasonProxyHeader},
		{"required, none, stranger", ProxyRequired, stranger, nil, "", ReasonProxyHeader},
		{"required, v2, stranger", ProxyRequired, stranger, v2, "", ReasonProxyHeader},
		{"required, local", ProxyRequired, trustedProxy, local, trustedProxy, ""},
		{"required, unknown", ProxyRequired, trustedProxy, []byte("PROXY UNKNOWN\r\n"), trustedProxy, ""},
		{"required, 500 bytes of TLV", ProxyRequired, trustedProxy, withTLV(t, 500), real, ""},
		{"required, more than the limit", ProxyRequired, trustedProxy, withTLV(t, 5000), "", ReasonProxyHeader},
		{"required, line too long", ProxyRequired, trustedProxy, []byte("PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n"), "", ReasonProxyHeader},
		{"required, no address", ProxyRequired, trustedProxy, []byte("PROXY TCP4 a b c d\r\n"), "", ReasonProxyHeader},
		{"required, port out of range", ProxyRequired, trustedProxy, []byte("PROXY TCP4 1.2.3.4 1.2.3.4 99999 1\r\n"), "", ReasonProxyHeader},
		{"required, two headers", ProxyRequired, trustedProxy, append(bytes.Clone(v1), v1...), "", ReasonProxyHeader},
	}
	for _, test := range tests {
		for _, together := range []bool{true, false} {
			name := test.name + "/header and hello apart"
			if together {
				name = test.name + "/header and hello together"
			}
			t.Run(name, func(t *testing.T) {
				r := proxyRig(t, test.mode, rigOptions{})
				raw := r.dialFrom(test.from, listenAddr)
				var c net.Conn = raw
				if together {
					c = &glue{Conn: raw, before: test.header}
				} else if _, err := raw.Write(test.header); err != nil && test.reason == "" {
					t.Fatal(err) // who is refused may see the connection closed before
				}
				_, body, err := visitOver(c, r.client("app.example", tls.VersionTLS13, nil))
				if test.reason != "" {
					if err == nil {
						t.Errorf("answer %q; want none", body)
					}
					if got := r.waitFailure(); got != test.reason {
						t.Errorf("reason %s; want %s", got, test.reason)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				proxy := "invalid AddrPort"
				if test.client != test.from {
					proxy = test.from
				}
				wantWords(t, body, "addr="+test.client, "remote="+test.client, "proxy="+proxy)
			})
		}
	}
}

// glue puts bytes before the first write, in one write.
type glue struct {
	net.Conn
	before []byte
}

func (g *glue) Write(p []byte) (int, error) {
	if len(g.before) == 0 {
		return g.Conn.Write(p)
	}
	all := append(g.before, p...)
	g.before = nil
	if _, err := g.Conn.Write(all); err != nil {
		return 0, err
	}
	return len(p), nil
}

// A proxy that sends no header, or one byte of it a second, is not waited for
// longer than the timeout; the timeout does not begin anew with each byte.
func TestProxyHeaderDeadline(t *testing.T) {
	pki := newMatrixPKI(t)
	whole := header(t, 2, "198.51.100.7:1234", "192.0.2.1:443")
	for name, drip := range map[string]bool{"silent": false, "drip": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := proxyRig(t, ProxyRequired, rigOptions{pki: pki.serverCA, cert: pki.server, limits: Limits{ProxyHeaderTimeout: 3 * time.Second}})
				began := time.Now()
				raw := r.dialFrom(trustedProxy, listenAddr)
				defer raw.Close()
				if drip {
					go func() {
						for _, b := range whole {
							if _, err := raw.Write([]byte{b}); err != nil {
								return
							}
							time.Sleep(time.Second)
						}
					}()
				}
				if _, err := raw.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("read = %v; want the connection closed", err)
				}
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("closed after %v; want 3 s", took)
				}
				synctest.Wait()
				if got := r.observer.reasons(); len(got) != 1 || got[0] != ReasonTimeout {
					t.Errorf("reasons %q", got)
				}
				time.Sleep(time.Minute) // the drip notices
			})
		})
	}
}

// The proxy's own address counts for the limits of nobody: the client's does.
func TestLimitsGoByTheClientBehindTheProxy(t *testing.T) {
	r := proxyRig(t, ProxyRequired, rigOptions{limits: Limits{HandshakeRate: 0.001, HandshakeBurst: 1}})
	visit := func(client string) error {
		raw := r.dialFrom(trustedProxy, listenAddr)
		if _, err := raw.Write(header(t, 2, client, "192.0.2.1:443")); err != nil {
			t.Fatal(err)
		}
		_, _, err := visitOver(raw, r.client("app.example", tls.VersionTLS13, nil))
		return err
	}
	for _, client := range []string{"198.51.100.1:1", "198.51.100.2:1", "198.51.100.3:1"} {
		if err := visit(client); err != nil {
			t.Errorf("%s: %v", client, err)
		}
		if err := visit(client); err == nil {
			t.Errorf("%s: let in again", client)
		}
	}
}

func TestProxyModeWords(t *testing.T) {
	for _, m := range []ProxyMode{ProxyOff, ProxyOptional, ProxyRequired} {
		if got, err := ParseProxyMode(m.String()); err != nil || got != m {
			t.Errorf("ParseProxyMode(%q) = %v, %v", m, got, err)
		}
	}
	if m, err := ParseProxyMode(""); m != ProxyOff || err != nil {
		t.Errorf("the empty word = %v, %v; want off", m, err)
	}
	if _, err := ParseProxyMode("on"); err == nil {
		t.Error("an unknown word is accepted")
	}
}

func TestTrustedProxies(t *testing.T) {
	set := newPrefixes(mustPrefixes("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "::ffff:198.51.100.0/120", "fe80::/10"))
	for addr, want := range map[string]bool{
		"10.255.0.1": true, "11.0.0.1": false, "::ffff:10.1.1.1": true, "192.0.2.7": true, "192.0.2.8": false,
		"2001:db8::1": true, "2001:db9::1": false, "198.51.100.200": true, "198.51.101.1": false, "fe80::1%eth0": true,
	} {
		if got := set.contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("contains(%s) = %v; want %v", addr, got, want)
		}
	}
	if set.contains(netip.Addr{}) {
		t.Error("an unknown address is trusted")
	}
}

// FuzzFirstBytes sends arbitrary first bytes to every mode, from a trusted
// proxy: the connection must end with a reason of the closed set, and soon.
func FuzzFirstBytes(f *testing.F) {
	hello := clientHello(f)
	v1 := header(f, 1, "198.51.100.7:1234", "192.0.2.1:443")
	v2 := header(f, 2, "198.51.100.7:1234", "192.0.2.1:443")
	for _, seed := range [][]byte{
		nil, hello, v1, v2, append(bytes.Clone(v1), hello...), append(bytes.Clone(v2), hello...), withTLV(f, 300),
		[]byte("PROXY UNKNOWN\r\n"), []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		{0x16, 0x03, 0x01, 0xff, 0xff}, {0x80, 0x2e, 0x01, 0x00, 0x02}, hello[:20], v2[:13], []byte("PROX"), {0x15, 3, 1, 0, 2, 1, 0},
	} {
		for mode := range proxyModes {
			f.Add(uint8(mode), seed)
		}
	}
	rigs := make([]*rig, len(proxyModes))
	for mode := range proxyModes {
		rigs[mode] = proxyRig(f, ProxyMode(mode), rigOptions{})
	}
	f.Fuzz(func(t *testing.T, mode uint8, first []byte) {
		r := rigs[int(mode)%len(rigs)]
		before := r.front.Stats()
		c, err := r.network.DialFrom(t.Context(), trustedProxy, listenAddr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if len(first) > 32<<10 {
			first = first[:32<<10]
		}
		if _, err := c.Write(first); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return // refused before all was written
		}
		_ = c.(*memnet.Conn).CloseWrite()
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the connection is still open: %+v", r.front.Stats())
		}
		after := r.front.Stats()
		if after.Failures[ReasonInternal] != before.Failures[ReasonInternal] {
			t.Fatal("a fault of ours")
		}
	})
}

// clientHello is a real one.
func clientHello(t testing.TB) []byte {
	t.Helper()
	a, b := net.Pipe()
	caught := &tap{Conn: a}
	go func() {
		_, _ = b.Read(make([]byte, 8192))
		b.Close()
	}()
	_ = tls.Client(caught, &tls.Config{ServerName: "app.example"}).Handshake()
	return caught.hello()
}
