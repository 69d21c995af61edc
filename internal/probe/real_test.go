package probe

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// lockedBuffer collects the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a server until the test ends and returns when it accepts
// connections at addr.
func start(t *testing.T, addr, bin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, args...)
	output := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-exited
		if t.Failed() {
			t.Logf("output of %s:\n%s", bin, output)
		}
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return
		}
		select {
		case <-exited:
			t.Fatalf("%s %s ended:\n%s", bin, strings.Join(args, " "), output)
		case <-deadline:
			t.Fatalf("%s does not listen at %s:\n%s", bin, addr, output)
		case <-tick.C:
		}
	}
}

// nginx runs the real one with the directives in its server block.
func nginx(t *testing.T, s *site, directives string) string {
	t.Helper()
	bin := testtool.Require(t, "nginx", "nginx-light")
	addr, dir := closedPort(t), t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	writeFile(t, conf, fmt.Appendf(nil, `
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr warn;
events { worker_connections 64; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s ssl http2;
		ssl_certificate %[3]s;
		ssl_certificate_key %[4]s;
		%[5]s
		return 204;
	}
}
`, dir, addr, s.certFile, s.keyFile, directives))
	start(t, addr, bin, "-p", dir, "-c", conf, "-e", "stderr")
	return atLocalhost(addr)
}

func TestNginx(t *testing.T) {
	s := newSite(t, pki.Request{})
	const shared = "ssl_session_cache shared:s:1m; "
	tests := []struct {
		name, directives            string
		tickets12, ids12, resumes13 bool
	}{
		{"tickets", "ssl_session_cache none; ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;", true, false, true},
		{"tickets and cache", shared + "ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;", true, true, true},
		{"cache alone", shared + "ssl_session_tickets off; ssl_protocols TLSv1.2 TLSv1.3;", false, true, true},
		{"neither", "ssl_session_cache off; ssl_session_tickets off; ssl_protocols TLSv1.2 TLSv1.3;", false, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := nginx(t, s, test.directives)
			r, out := report(t, addr, "-cafile", s.caFile, "-require", "resumption", "-count", "3")
			want := exitOK
			if !test.resumes13 {
				want = exitFailed
			}
			wantStatus(t, out, want)
			if got := r.resumption(t, "1.2"); got.Resumes != test.tickets12 || got.Error != "" {
				t.Errorf("TLS 1.2 tickets: %+v", got)
			}
			if got := r.resumption(t, "1.3"); got.Resumes != test.resumes13 || got.Error != "" {
				t.Errorf("TLS 1.3: %+v", got)
			}
			if got := r.SessionIDs; got.Resumes != test.ids12 || got.Error != "" {
				t.Errorf("TLS 1.2 session IDs: %+v", got)
			}
			if !r.Chain.Trusted || len(r.ALPN) != 2 {
				t.Errorf("chain %+v, ALPN %v", r.Chain, r.ALPN)
			}
		})
	}
}

// nginx with a client certificate required answers 400 over HTTP, after a
// handshake that succeeded; a staple from a file is what it sends.
func TestNginxStapleAndClientCertificate(t *testing.T) {
	s := newSite(t, pki.Request{OCSPServers: []string{"http://127.0.0.1:1/"}})
	staple := filepath.Join(s.dir, "staple.der")
	writeFile(t, staple, s.staple(t, s.cert, pki.ResponderOptions{}))
	addr := nginx(t, s, fmt.Sprintf("ssl_stapling on; ssl_stapling_file %s; ssl_trusted_certificate %s;"+
		"ssl_verify_client on; ssl_client_certificate %[2]s;", staple, s.caFile))
	r, out := report(t, addr, "-cafile", s.caFile, "-require", "staple", "-count", "1")
	wantStatus(t, out, exitOK)
	if !r.Staple.Valid || r.Staple.Seen != r.Staple.Handshakes || !r.ClientAuth.Requested {
		t.Errorf("staple %+v, client auth %+v", r.Staple, r.ClientAuth)
	}
}

func TestOpenSSL(t *testing.T) {
	bin := testtool.Require(t, "openssl", "openssl")
	s := newSite(t, pki.Request{KeyType: pki.RSA2048})
	chain := filepath.Join(s.dir, "chain.pem")
	writeFile(t, chain, pki.CertificatePEM(s.ca.Certificate))
	staple := filepath.Join(s.dir, "staple.der")
	writeFile(t, staple, s.staple(t, s.cert, pki.ResponderOptions{}))
	tests := []struct {
		name     string
		args     []string
		require  string
		status   int
		accepted string
	}{
		{"default", nil, "resumption,trusted", exitOK, "1.2 1.3"},
		{"no tickets in 1.2 but IDs", []string{"-no_ticket"}, "resumption", exitOK, "1.2 1.3"},
		{"no tickets in 1.3", []string{"-num_tickets", "0"}, "resumption-1.3", exitFailed, "1.2 1.3"},
		{"nothing kept", []string{"-no_ticket", "-no_cache"}, "resumption-1.2", exitFailed, "1.2 1.3"},
		{"1.2 only", []string{"-tls1_2"}, "resumption,no-legacy", exitOK, "1.2"},
		{"1.3 only", []string{"-tls1_3"}, "resumption", exitOK, "1.3"},
		{"old", []string{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, "no-legacy", exitFailed, "1.1"},
		{"staple", []string{"-status_file", staple}, "staple", exitOK, "1.2 1.3"},
		{"client certificate", []string{"-Verify", "1", "-CAfile", chain}, "resumption", -1, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := closedPort(t)
			args := append([]string{"s_server", "-accept", addr, "-cert", s.certFile, "-cert_chain", chain,
				"-key", s.keyFile, "-www", "-quiet"}, test.args...)
			start(t, addr, bin, args...)
			if test.status == -1 {
				out := run(t, atLocalhost(addr), "-cafile", s.caFile)
				wantStatus(t, out, exitFailed)
				wantContains(t, out.stderr, "no handshake succeeded", "-cert and -key")
				return
			}
			r, out := report(t, atLocalhost(addr), "-cafile", s.caFile, "-require", test.require, "-count", "2")
			wantStatus(t, out, test.status)
			if got := strings.Join(r.acceptedVersions(), " "); got != test.accepted {
				t.Errorf("accepted = %q; want %q", got, test.accepted)
			}
		})
	}
}

// haproxy runs the real one; global and bind are added to the configuration.
func haproxy(t *testing.T, pem, global, bind string) string {
	t.Helper()
	bin := testtool.Require(t, "haproxy", "haproxy")
	addr := closedPort(t)
	conf := filepath.Join(t.TempDir(), "haproxy.cfg")
	writeFile(t, conf, fmt.Appendf(nil, `
global
	nbthread 1
	%s
defaults
	mode http
	timeout client 5s
	timeout server 5s
	timeout connect 5s
frontend f
	bind %s ssl crt %s %s
	http-request return status 204
`, global, addr, pem, bind))
	start(t, addr, bin, "-db", "-f", conf)
	return atLocalhost(addr)
}

func TestHAProxy(t *testing.T) {
	s := newSite(t, pki.Request{OCSPServers: []string{"http://127.0.0.1:1/"}})
	pem := filepath.Join(s.dir, "site.pem")
	key, err := pki.KeyPEM(s.cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, pem, append(pki.ChainPEM(&s.cert), key...))
	writeFile(t, pem+".issuer", pki.CertificatePEM(s.ca.Certificate))
	writeFile(t, pem+".ocsp", s.staple(t, s.cert, pki.ResponderOptions{}))
	ticketKeys := filepath.Join(s.dir, "tickets")
	writeFile(t, ticketKeys, []byte(strings.Repeat(strings.Repeat("QUJD", 16)+"\n", 3))) // 48 bytes each, in base64

	t.Run("default", func(t *testing.T) {
		r, out := report(t, haproxy(t, pem, "", "alpn h2,http/1.1"), "-cafile", s.caFile, "-require", "resumption,staple,h2", "-count", "2")
		wantStatus(t, out, exitOK)
		if !r.Staple.Valid {
			t.Errorf("staple = %+v", r.Staple)
		}
	})
	t.Run("no resumption", func(t *testing.T) {
		addr := haproxy(t, pem, "tune.ssl.cachesize 0", "no-tls-tickets")
		r, out := report(t, addr, "-cafile", s.caFile, "-require", "resumption-1.2", "-count", "2")
		wantStatus(t, out, exitFailed)
		if r.SessionIDs.Resumes {
			t.Errorf("session IDs = %+v", r.SessionIDs)
		}
	})
	t.Run("replicas", func(t *testing.T) {
		shared := "tls-ticket-keys " + ticketKeys
		a, b := haproxy(t, pem, "", shared), haproxy(t, pem, "", shared)
		alone := haproxy(t, pem, "", "")
		_, out := report(t, a, "-cafile", s.caFile, "-also", b, "-require", "also", "-count", "1")
		wantStatus(t, out, exitOK)
		_, out = report(t, a, "-cafile", s.caFile, "-also", alone, "-require", "not-also", "-count", "1")
		wantStatus(t, out, exitOK)
	})
}

// What the probe says of session IDs is what OpenSSL's own client says.
func TestSessionIDsAgainstOpenSSLClient(t *testing.T) {
	bin := testtool.Require(t, "openssl", "openssl")
	s := newSite(t, pki.Request{})
	for directives, want := range map[string]bool{
		"ssl_session_cache shared:s:1m; ssl_session_tickets off; ssl_protocols TLSv1.2;": true,
		"ssl_session_cache off; ssl_session_tickets off; ssl_protocols TLSv1.2;":         false,
	} {
		addr := nginx(t, s, directives)
		r, _ := report(t, addr, "-cafile", s.caFile, "-count", "1")
		cmd := exec.CommandContext(t.Context(), bin, "s_client", "-connect", addr, "-tls1_2", "-no_ticket", "-reconnect")
		cmd.Stdin = strings.NewReader("")
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		reused := bytes.Contains(text, []byte("Reused, TLSv1.2"))
		if r.SessionIDs.Resumes != want || reused != want {
			t.Errorf("%s probe says %t, openssl %t; want %t", directives, r.SessionIDs.Resumes, reused, want)
		}
	}
}
