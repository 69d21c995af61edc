package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

func (r *rig) siteTable(site string) *Table { return r.table(r.policy(PolicyOptions{Site: site})) }

func TestReload(t *testing.T) {
	r := newRig(t, rigOptions{})
	visit := func(addr string) (string, error) {
		_, body, err := visitOver(r.dialFrom(clientAddr, addr), r.client("app.example", tls.VersionTLS13, nil))
		return body, err
	}
	before := r.front.ports[listenAddr].listeners[0]
	held := r.hold(clientAddr)
	defer held.Close()

	// another table on the same listener, and a second listener
	r.install(Config{Listeners: []ListenerOptions{
		{Address: listenAddr, Table: r.siteTable("two")}, {Address: otherAddr, Table: r.siteTable("three")},
	}})
	for addr, site := range map[string]string{listenAddr: "two", otherAddr: "three"} {
		body, err := visit(addr)
		if err != nil {
			t.Fatal(err)
		}
		wantWords(t, body, "site="+site)
	}
	if r.front.ports[listenAddr].listeners[0] != before {
		t.Error("a listener that stays was opened anew")
	}

	// an open connection lives on
	if _, err := io.WriteString(held, "GET / HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(held)
	if err != nil || !strings.Contains(string(answer), "site=default") {
		t.Errorf("the open connection: %q, %v", answer, err)
	}

	// the first listener goes
	r.install(Config{Listeners: []ListenerOptions{{Address: otherAddr, Table: r.siteTable("four")}}})
	if _, err := r.network.Dial("tcp", listenAddr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the removed listener: %v; want it refused", err)
	}
	body, err := visit(otherAddr)
	if err != nil {
		t.Fatal(err)
	}
	wantWords(t, body, "site=four")

	// and comes back
	r.install(Config{Listeners: []ListenerOptions{{Address: listenAddr, Table: r.siteTable("five")}}})
	if body, err = visit(listenAddr); err != nil {
		t.Fatal(err)
	}
	wantWords(t, body, "site=five")
	status := r.front.Status()
	if len(status) != 1 || status[0].Address != listenAddr || status[0].Bound[0] != listenAddr || status[0].ProxyProtocol != "off" || status[0].Sites["five"] == "" {
		t.Errorf("status = %+v", status)
	}
	if a := r.front.Listener().Addr().String(); a != listenAddr {
		t.Errorf("address %s", a)
	}
}

// A reload that fails changes nothing, keeps no socket, and names every fault.
func TestFailedReload(t *testing.T) {
	r := newRig(t, rigOptions{})
	taken, err := r.network.Listen("tcp", "192.0.2.1:9999")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	table := r.siteTable("new")
	_, err = r.front.Prepare(Config{Limits: Limits{HandshakeTimeout: -1}, Listeners: []ListenerOptions{
		{Address: listenAddr, Table: table},
		{Address: otherAddr, Table: table},
		{Address: otherAddr, Table: table},
		{Address: "192.0.2.1:9999", Table: table},
		{Address: "192.0.2.1:5000"},
		{Address: "192.0.2.1:5001", Table: table, ProxyProtocol: ProxyRequired},
		{Address: "systemd:https", Table: table},
		{Address: "fd:x", Table: table},
		{Address: "", Table: table},
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"handshake timeout", `"` + otherAddr + `": is listed twice`, `"192.0.2.1:9999": memnet`, "address already in use",
		`"192.0.2.1:5000": no table`, `"192.0.2.1:5001": proxy_protocol required needs trusted_proxies`, "systemd passed no sockets",
		`fd "x"`, `"": no address`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	if _, err := r.network.Dial("tcp", otherAddr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a listener of the failed reload is still open: %v", err)
	}
	_, body := r.mustVisit(r.client("app.example", tls.VersionTLS13, nil))
	wantWords(t, body, "site=default")

	// a change that was prepared and discarded leaves nothing either
	change, err := r.front.Prepare(Config{Listeners: []ListenerOptions{{Address: otherAddr, Table: table}}})
	if err != nil {
		t.Fatal(err)
	}
	change.Discard()
	if _, err := r.network.Dial("tcp", otherAddr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a discarded listener is still open: %v", err)
	}
	r.install(Config{Listeners: []ListenerOptions{{Address: otherAddr, Table: table}}})
}

// While everything is reloaded all the time, no visit fails and sessions of the
// unchanged site resume.
func TestReloadsUnderLoad(t *testing.T) {
	r := newRig(t, rigOptions{})
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			cache := &anyName{}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, body, err := visitOver(r.dial(), r.client("app.example", tls.VersionTLS13, cache))
				if err != nil {
					t.Errorf("visit %d: %v", i, err)
					return
				}
				if i > 0 && !strings.Contains(body, "resumed=true") {
					t.Errorf("visit %d: %s", i, body)
				}
			}
		})
	}
	for i := range 100 {
		listeners := []ListenerOptions{{Address: listenAddr, Table: r.siteTable("default")}}
		if i%2 == 0 {
			listeners = append(listeners, ListenerOptions{Address: otherAddr, Table: r.siteTable("x")})
		}
		r.install(Config{Listeners: listeners})
	}
	close(stop)
	work.Wait()
}

// When Run is told to stop, handshakes under way come to their end and are
// served; new connections are refused at once.
func TestShutdownFinishesHandshakes(t *testing.T) {
	pki := newMatrixPKI(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, noStart: true})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			_ = r.front.Run(ctx)
		}()
		server := &http.Server{Handler: http.HandlerFunc(describeConn), ConnContext: ConnContext}
		served := make(chan error, 1)
		go func() { served <- server.Serve(r.front.Listener()) }()

		slow := r.dial()
		synctest.Wait() // accepted, and waiting for its hello
		silent := r.dialFrom("203.0.113.8:1", listenAddr)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if _, err := r.network.Dial("tcp", listenAddr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a new connection: %v; want it refused", err)
		}
		time.Sleep(3 * time.Second)
		_, body, err := visitOver(slow, r.client("app.example", tls.VersionTLS13, nil))
		if err != nil {
			t.Errorf("the handshake under way: %v", err)
		}
		wantWords(t, body, "resumed=false")
		select {
		case <-ran:
			t.Error("Run returned with a handshake under way")
		default:
		}
		began := time.Now()
		<-ran
		if took := time.Since(began); took != DefaultHandshakeTimeout-3*time.Second {
			t.Errorf("Run returned after %v more; want the rest of the timeout", took)
		}
		silent.Close()
		// Serve did not end by itself, so http.Server.Shutdown is in control.
		select {
		case err := <-served:
			t.Errorf("Serve ended before Shutdown: %v", err)
		default:
		}
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve = %v", err)
		}
	})
}

// A finished connection that nobody takes any more is closed and counted.
func TestNobodyTakesConnections(t *testing.T) {
	r := newRig(t, rigOptions{})
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, body, err := r.visit(r.client("app.example", tls.VersionTLS13, nil)); err == nil {
		t.Errorf("answer %q", body)
	}
	testtool.Eventually(t, "the failure to be counted", func() bool { return r.front.Stats().Failures[ReasonShutdown] == 1 })
	if _, err := r.front.Listener().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v; want net.ErrClosed", err)
	}
}

// A change installed after the end opens nothing.
func TestInstallAfterTheEnd(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.stop()
	r.install(Config{Listeners: []ListenerOptions{{Address: otherAddr, Table: r.siteTable("late")}}})
	if _, err := r.network.Dial("tcp", otherAddr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial = %v; want it refused", err)
	}
}

// The policy that holds is the one in force when the hello comes, not when the
// connection was accepted.
func TestReloadHoldsForTheNextHello(t *testing.T) {
	pki := newMatrixPKI(t)
	r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server})
	raw := r.dial()
	testtool.Eventually(t, "the connection to be accepted", func() bool { return r.front.Stats().Handshaking == 1 })
	v := verifier(t, clientauth.Options{Mode: clientauth.Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())}})
	r.install(Config{Listeners: []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Site: "strict", ClientAuth: v}))}}})
	if _, body, err := visitOver(raw, r.client("app.example", tls.VersionTLS13, nil)); alertOf(err) == "" {
		t.Errorf("%q, %v; want the new policy to refuse it", body, err)
	}
}
