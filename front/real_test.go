package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/clientauth"
)

// realRig listens on loopback with the kernel's sockets, whose resets can
// destroy what is under way, as memory's cannot.
func realRig(t *testing.T, policy func(*rig) PolicyOptions) (*rig, string) {
	t.Helper()
	pki := newMatrixPKI(t)
	r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, noStart: true})
	f, err := New(Options{Sessions: r.sessions, Observer: r.observer, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	r.front = f
	r.install(Config{Listeners: []ListenerOptions{{Address: "127.0.0.1:0", Table: r.table(r.policy(policy(r)))}}})
	r.start(testLog(t))
	t.Cleanup(r.stop)
	return r, f.Status()[0].Bound[0]
}

func dialReal(t *testing.T, addr string) net.Conn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRealSockets(t *testing.T) {
	forVersions(t, func(t *testing.T, version uint16) {
		r, addr := realRig(t, func(*rig) PolicyOptions { return PolicyOptions{Site: "app"} })
		cache := &anyName{}
		for _, resumed := range []bool{false, true, true} {
			_, body, err := visitOver(dialReal(t, addr), r.client("app.example", version, cache))
			if err != nil {
				t.Fatal(err)
			}
			wantWords(t, body, fmt.Sprintf("resumed=%v", resumed))
		}
	})
}

// A large upload in plain HTTP is answered although nobody reads it.
func TestPlainHTTPAnswerSurvivesUnreadInput(t *testing.T) {
	_, addr := realRig(t, func(*rig) PolicyOptions { return PolicyOptions{Site: "app"} })
	for range 20 {
		c := dialReal(t, addr)
		if _, err := c.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000))); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 400 || len(body) == 0 {
			t.Fatalf("status %d, %q, %v", res.StatusCode, body, err)
		}
		c.Close()
	}
}

// A TLS 1.3 client has sent its request before it learns that its certificate
// was refused; the alert must reach it all the same.
func TestAlertSurvivesUnreadInput(t *testing.T) {
	pki := newMatrixPKI(t)
	r, addr := realRig(t, func(r *rig) PolicyOptions {
		o := authPolicy(t, pki, clientauth.Options{})
		o.Site = "app"
		return o
	})
	for range 20 {
		c := tls.Client(dialReal(t, addr), r.client("app.example", tls.VersionTLS13, nil))
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(bytes.Repeat([]byte("x"), 50000))
		if _, err := c.Read(make([]byte, 1)); alertOf(err) != "certificate required" {
			t.Fatalf("read = %v; want the alert certificate_required", err)
		}
		c.NetConn().Close()
	}
}
