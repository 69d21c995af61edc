package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// withBackend is the echo configuration with another backend.
func withBackend(url string) string {
	return strings.Replace(echoConfig, "builtin:echo", url, 1)
}

// serve runs a handler on loopback until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// TestGRPC drives a real gRPC server through the proxy: unary calls, a server
// stream whose messages arrive as they are sent, and a status other than OK,
// which travels in the trailers.
func TestGRPC(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, service := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, service)
	go server.Serve(ln)
	t.Cleanup(server.Stop)

	p := startProxy(t, withBackend("h2c://"+ln.Addr().String()))
	_, pool := p.devCA()
	conn, err := grpc.NewClient("passthrough:///"+p.addr, grpc.WithTransportCredentials(
		credentials.NewTLS(&tls.Config{ServerName: "localhost", RootCAs: pool})), grpc.WithAuthority("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	if resp, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("unary call: %v, %v", resp, err)
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "absent"}); status.Code(err) != codes.NotFound {
		t.Errorf("status in the trailers: %v, want NotFound", err)
	}
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "job"})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []healthpb.HealthCheckResponse_ServingStatus{
		healthpb.HealthCheckResponse_SERVICE_UNKNOWN, healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		if state != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
			service.SetServingStatus("job", state)
		}
		if msg, err := stream.Recv(); err != nil || msg.Status != state {
			t.Fatalf("stream: %v, %v, want %v", msg, err, state)
		}
	}
}

func TestWebSocket(t *testing.T) {
	backend := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, data) != nil {
				return
			}
		}
	})
	p := startProxy(t, withBackend(backend))
	_, pool := p.devCA()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://localhost/", &websocket.DialOptions{HTTPClient: p.client(pool, false)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, size := range []int{0, 1, 1000, 30_000} {
		sent := bytes.Repeat([]byte{'w'}, size)
		if err := c.Write(ctx, websocket.MessageBinary, sent); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("echo of %d bytes: %d bytes, %v", size, len(got), err)
		}
	}
	if n := p.metric("tlsproxy_connections", `state="upgraded"`); n != 1 {
		t.Errorf("tlsproxy_connections{state=upgraded} = %v, want 1", n)
	}

	// A drain closes upgraded connections when their grace ends.
	c.Close(websocket.StatusNormalClosure, "")
	eventually(t, "the connection is no longer counted", func() bool {
		return p.metric("tlsproxy_connections", `state="upgraded"`) == 0
	})
}

// TestServerSentEvents: each event arrives before the next one is sent.
func TestServerSentEvents(t *testing.T) {
	next, left := make(chan string), make(chan struct{})
	backend := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case event := <-next:
				fmt.Fprintf(w, "data: %s\n\n", event)
				http.NewResponseController(w).Flush()
			case <-r.Context().Done(): // the client's leaving reaches the backend
				left <- struct{}{}
				return
			}
		}
	})
	p := startProxy(t, withBackend(backend))
	_, pool := p.devCA()
	for _, h2 := range []bool{false, true} {
		got := make(chan string, 1)
		go func() { next <- "0" }()
		resp, err := p.client(pool, h2).Get("https://localhost/events")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if event, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					got <- event
				}
			}
			close(got)
		}()
		for i := range 5 {
			if i > 0 {
				next <- fmt.Sprint(i)
			}
			select {
			case event := <-got:
				if event != fmt.Sprint(i) {
					t.Errorf("h2 %v: event %q, want %d", h2, event, i)
				}
			case <-time.After(patience):
				t.Fatalf("h2 %v: event %d did not arrive before the next was sent", h2, i)
			}
		}
		resp.Body.Close()
		select {
		case <-left:
		case <-time.After(patience):
			t.Fatalf("h2 %v: the backend did not notice that the client left", h2)
		}
	}
}

// TestTLSBackend verifies the backend's certificate, shows it ours, and
// refuses one that it cannot verify.
func TestTLSBackend(t *testing.T) {
	ca, clients := newCA(t), newCA(t)
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Proto, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	cert, err := ca.Issue(pki.Request{Names: []string{"backend.test"}})
	if err != nil {
		t.Fatal(err)
	}
	backend.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool()}
	backend.EnableHTTP2 = true
	backend.StartTLS()
	t.Cleanup(backend.Close)

	p := newProxy(t, "")
	p.write("ca.pem", string(pki.CertificatePEM(ca.Certificate)))
	ours := clientCert(t, clients, "proxy")
	if err := pki.WritePair(&ours, filepath.Join(p.dir, "us.crt"), filepath.Join(p.dir, "us.key")); err != nil {
		t.Fatal(err)
	}
	verified := strings.Replace(withBackend(backend.URL), `"]}`, `"], tls: {ca_file: "{{dir}}/ca.pem", server_name: backend.test, cert: "{{dir}}/us.crt", key: "{{dir}}/us.key"}}`, 1)
	p.writeConfig(verified)
	p.start()
	p.waitReady()
	_, pool := p.devCA()
	client := p.client(pool, true)
	if code, body := fetch(t, client, "https://localhost/"); code != 200 || body != "HTTP/2.0 proxy" {
		t.Errorf("verified backend: %d %q", code, body)
	}
	p.writeConfig(strings.Replace(verified, "backend.test", "other.test", 1))
	p.mustReload()
	if code, _ := fetch(t, client, "https://localhost/"); code != http.StatusBadGateway {
		t.Errorf("backend with another name in its certificate: %d, want 502", code)
	}
}

// TestTLSBackendFiles renews what a backend is shown and what it is verified by,
// without a reload: the next connection has the new ones, a broken file leaves the
// old ones and says so.
func TestTLSBackendFiles(t *testing.T) {
	ca, clients := newCA(t), newCA(t)
	var served atomic.Pointer[tls.Certificate]
	serveWith := func(ca *pki.CA) {
		cert, err := ca.Issue(pki.Request{Names: []string{"backend.test"}})
		if err != nil {
			t.Fatal(err)
		}
		served.Store(cert)
	}
	serveWith(ca)
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that the next request has another connection
		fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	backend.TLS = &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return served.Load(), nil },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool(),
		SessionTicketsDisabled: true, // a resumed session shows no certificate
	}
	backend.StartTLS()
	t.Cleanup(backend.Close)

	p := newProxy(t, "")
	p.write("ca.pem", string(pki.CertificatePEM(ca.Certificate)))
	first := p.issue(clients, "us", pki.Request{CommonName: "first", Client: true})
	p.writeConfig(strings.Replace(withBackend(backend.URL), `"]}`, `"], tls: {ca_file: "{{dir}}/ca.pem", server_name: backend.test, cert: "{{dir}}/us.crt", key: "{{dir}}/us.key"}}`, 1))
	p.start()
	p.waitReady()
	_, pool := p.devCA()
	client := p.client(pool, true)
	shown := func(name string) func() bool {
		return func() bool {
			code, body := fetch(t, client, "https://localhost/")
			return code == 200 && body == name
		}
	}
	ours := fmt.Sprintf("certificate=%q", filepath.Join(p.dir, "us.crt"))
	expires := func(cert *tls.Certificate) bool {
		return p.metric("tlsproxy_certificate_expiry_timestamp_seconds", ours) == float64(cert.Leaf.NotAfter.Unix())
	}
	if !shown("first")() || !expires(first) {
		t.Error("the first certificate is not shown, or its end not told")
	}
	second := p.issue(clients, "us", pki.Request{CommonName: "second", Client: true, NotAfter: time.Now().Add(time.Hour)})
	eventually(t, "the second certificate is shown", shown("second"))
	if !expires(second) {
		t.Error("the end of the second certificate is not told")
	}

	p.write("us.key", "junk")
	eventually(t, "the key counts as failing", func() bool { return p.metric("tlsproxy_certificate_failing", ours) == 1 })
	if !shown("second")() {
		t.Error("a broken key took the certificate away")
	}
	eventually(t, "the log says so", func() bool { return strings.Contains(p.stderr.String(), "what was loaded before is kept") })
	p.issue(clients, "us", pki.Request{CommonName: "third", Client: true})
	eventually(t, "the third certificate is shown", shown("third"))
	if p.metric("tlsproxy_certificate_failing", ours) != 0 {
		t.Error("the key still counts as failing")
	}

	other := newCA(t)
	serveWith(other)
	if code, _ := fetch(t, client, "https://localhost/"); code != http.StatusBadGateway {
		t.Errorf("a backend of an unknown CA: %d, want 502", code)
	}
	p.write("ca.pem", string(pki.CertificatePEM(other.Certificate)))
	eventually(t, "the new CA is trusted", shown("third"))
	serveWith(ca)
	if code, _ := fetch(t, client, "https://localhost/"); code != http.StatusBadGateway {
		t.Errorf("a backend of the old CA: %d, want 502", code)
	}
}

// TestUnixBackend also covers a backend that is not there.
func TestUnixBackend(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "app.sock")
	p := startProxy(t, withBackend("unix:"+socket))
	_, pool := p.devCA()
	client := p.client(pool, true)
	if code, _ := fetch(t, client, "https://localhost/"); code != http.StatusBadGateway {
		t.Errorf("backend that is not there: %d, want 502", code)
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "unix") })}
	go server.Serve(ln)
	defer server.Close()
	eventually(t, "the backend answers", func() bool {
		code, body := fetch(t, client, "https://localhost/")
		return code == 200 && body == "unix"
	})
}

func fetch(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestNginxBackend is a real server behind the proxy, with a body of some size.
func TestNginxBackend(t *testing.T) {
	nginx := testtool.Require(t, "nginx", "nginx-light")
	port, dir := testtool.FreePort(t), t.TempDir()
	os.MkdirAll(filepath.Join(dir, "www"), 0o755)
	os.Chmod(dir, 0o755)
	body := strings.Repeat("0123456789", 300_000)
	os.WriteFile(filepath.Join(dir, "www", "big"), []byte(body), 0o644)
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server { listen 127.0.0.1:%[2]d; root %[1]s/www; } }`, dir, port)
	os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600)
	startProcess(t, nginx, "-c", filepath.Join(dir, "nginx.conf"), "-p", dir)
	p := startProxy(t, withBackend(fmt.Sprintf("http://127.0.0.1:%d", port)))
	_, pool := p.devCA()
	for _, h2 := range []bool{false, true} {
		client := p.client(pool, h2)
		eventually(t, "nginx answers", func() bool {
			code, got := fetch(t, client, "https://localhost/big")
			return code == 200 && got == body
		})
	}
}

// startProcess runs a program until the test ends.
func startProcess(t *testing.T, name string, args ...string) *logBuffer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := testCommand(ctx, name, args...)
	out := new(logBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, lastLines(out.String(), 20))
		}
	})
	return out
}

// TestAccessLog: one JSON record for each request, with what was promised.
func TestAccessLog(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	fetch(t, p.client(pool, true), "https://localhost/path?secret=1")
	var record map[string]any
	eventually(t, "the record is written", func() bool {
		return json.Unmarshal([]byte(firstLine(p.stdout.String())), &record) == nil
	})
	for key, want := range map[string]any{
		"method": "GET", "path": "/path", "status": 200.0, "proto": "HTTP/2.0", "tls_version": "TLS 1.3", "resumed": false,
		"sni": "localhost", "upstream": "echo", "client": "127.0.0.1", "site": "localhost",
	} {
		if record[key] != want {
			t.Errorf("%s is %v, want %v", key, record[key], want)
		}
	}
	for _, key := range []string{"time", "request_id", "bytes_in", "bytes_out", "duration"} {
		if record[key] == nil {
			t.Errorf("%s is missing in %v", key, record)
		}
	}
	if strings.Contains(p.stdout.String(), "secret") {
		t.Error("the query is in the log")
	}
}
