package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/testtool"

	"golang.org/x/net/http2"
)

// TestSignalsDuringStart: neither reloads that come before there is anything to
// reload nor a stop among them are lost or deadly.
func TestSignalsDuringStart(t *testing.T) {
	for _, stop := range []bool{false, true} {
		p := newProxy(t, echoConfig)
		path := filepath.Join(p.dir, "config.yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(path)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		p.start()
		// The start waits for its configuration, which it reads from a pipe.
		var pipe *os.File
		eventually(t, "the configuration is read", func() bool {
			pipe, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			return err == nil
		})
		for range 20 {
			p.signal(syscall.SIGHUP)
		}
		if stop {
			p.signal(syscall.SIGTERM)
		}
		// Later reads, by reloads, find a file.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		p.write("config.yaml", string(text))
		if _, err := pipe.Write(text); err != nil {
			t.Fatal(err)
		}
		pipe.Close()
		if stop {
			if status := p.wait(); status != 0 || !strings.Contains(p.stderr.String(), "stopped while starting") {
				t.Errorf("stopped while starting: exit status %d\n%s", status, p.stderr)
			}
			continue
		}
		p.waitReady()
		eventually(t, "the reload happens", func() bool { return p.metric("tlsproxy_config_reloads_total", `result="success"`) > 0 })
	}
}

// TestSilentHandshakeDuringShutdown: a client that connected and says nothing
// outlasts neither the grace nor a second signal.
func TestSilentHandshakeDuringShutdown(t *testing.T) {
	for _, tt := range []struct {
		name, grace string
		second      bool
		want        int
	}{
		{"grace", "300ms", false, 0},
		{"second signal", "60s", true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startProxy(t, echoConfig+"\ntimeouts: {handshake: 60s}\nshutdown: {grace: "+tt.grace+"}\n")
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			eventually(t, "the connection is accepted", func() bool { return p.metric("tlsproxy_connections", `state="handshaking"`) == 1 })
			began := time.Now()
			p.signal(syscall.SIGTERM)
			if tt.second {
				eventually(t, "the drain begins", func() bool { code, _ := p.adminGet("/readyz"); return code == http.StatusServiceUnavailable })
				p.signal(syscall.SIGTERM)
			}
			if status := p.wait(); status != tt.want {
				t.Errorf("exit status %d, want %d", status, tt.want)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the shutdown took %v", took)
			}
		})
	}
}

// startWith is start with a standard output of the caller's.
func (p *proxy) startWith(stdout *os.File) {
	p.t.Helper()
	cmd, exited := exec.Command(binary, "-config", filepath.Join(p.dir, "config.yaml")), make(chan struct{})
	p.stderr = new(logBuffer)
	cmd.Stdout, cmd.Stderr = stdout, p.stderr
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(exited)
	}()
	p.t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
	})
	p.cmd, p.exited = cmd, exited
}

// TestReaderOfOutputStuck: a reader of the access log that takes nothing holds
// up neither requests nor, for ever, the end.
func TestReaderOfOutputStuck(t *testing.T) {
	p := newProxy(t, echoConfig)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p.startWith(w)
	w.Close()
	p.waitReady()
	_, pool := p.devCA()
	client := p.client(pool, true)
	for range 20 { // records of 8 KiB each: more than a pipe holds
		req, err := http.NewRequest(http.MethodGet, "https://localhost/"+strings.Repeat("x", 8<<10), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	p.signal(syscall.SIGTERM)
	eventually(t, "the drain begins", func() bool { code, _ := p.adminGet("/readyz"); return code == http.StatusServiceUnavailable })
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
}

// TestReaderOfOutputGone: who reads the access log may go away; the proxy
// serves on.
func TestReaderOfOutputGone(t *testing.T) {
	p := newProxy(t, echoConfig)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.startWith(w)
	w.Close()
	r.Close()
	p.waitReady()
	_, pool := p.devCA()
	client := p.client(pool, true)
	if resp, err := client.Get("https://localhost/"); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	eventually(t, "the log tells", func() bool { return strings.Contains(p.stderr.String(), "access log cannot be written") })
	resp, err := client.Get("https://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// TestReloadWithBrokenAccessLog: a log that cannot be opened anew makes the
// reload refused, and the old file stays in use.
func TestReloadWithBrokenAccessLog(t *testing.T) {
	p := startProxy(t, echoConfig+"\naccess_log: {output: \"{{dir}}/access.log\"}\n")
	path := filepath.Join(p.dir, "access.log")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if code, body := p.reload(); code != http.StatusUnprocessableEntity || !strings.Contains(body, path) {
		t.Errorf("reload answered %d: %s", code, body)
	}
	_, pool := p.devCA()
	resp, err := p.client(pool, true).Get("https://localhost/kept")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	eventually(t, "the old file has the record", func() bool {
		old, _ := os.ReadFile(path + ".1")
		return strings.Contains(string(old), "/kept")
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.mustReload()
	if _, err := os.Stat(path); err != nil {
		t.Error("after a good reload:", err)
	}
}

// TestPlainListenerFollowsReload: the time that a plain listener gives a client
// is that of the configuration in force, and its address answers all the time.
func TestPlainListenerFollowsReload(t *testing.T) {
	p := startProxy(t, echoConfig)
	p.writeConfig(echoConfig + "\ntimeouts: {request_header: 200ms}\n")
	p.mustReload()
	for name, addr := range map[string]string{"http": p.http, "admin": p.admin} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(name, err)
		}
		defer conn.Close()
		began := time.Now()
		io.WriteString(conn, "GET / HTTP/1.1\r\n")
		io.Copy(io.Discard, conn)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: a header that never ends was waited for %v, want 200ms", name, took)
		}
	}
}

// TestPlainAddressesToAndFro moves the admin listener away and back, one reload
// right after the other.
func TestPlainAddressesToAndFro(t *testing.T) {
	p := startProxy(t, echoConfig)
	here, there := p.admin, net.JoinHostPort("127.0.0.1", strconv.Itoa(testtool.FreePort(t)))
	for range 10 {
		for _, move := range [][2]string{{here, there}, {there, here}} {
			p.admin = move[1]
			p.writeConfig(echoConfig)
			p.admin = move[0]
			p.mustReload()
			p.admin = move[1]
		}
	}
	if code, body := p.adminGet("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answered %d: %s", code, body)
	}
}

// TestRejectUnknownSNI: names without a site are refused, clients that send no
// name get the default.
func TestRejectUnknownSNI(t *testing.T) {
	p := startProxy(t, echoConfig+"\nreject_unknown_sni: true\n")
	for name, want := range map[string]bool{"localhost": true, "": true, "nobody.test": false} {
		conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if (err == nil) != want {
			t.Errorf("%q: %v, want success %v", name, err, want)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// TestSmallHTTP2Frames: the proxy asks for frames of the least size, since a
// connection keeps a buffer of the greatest it was announced.
func TestSmallHTTP2Frames(t *testing.T) {
	p := startProxy(t, echoConfig)
	conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if settings, ok := frame.(*http2.SettingsFrame); ok && !settings.IsAck() {
			if size, ok := settings.Value(http2.SettingMaxFrameSize); ok && size != 16<<10 {
				t.Errorf("SETTINGS_MAX_FRAME_SIZE is %d, want 16384", size)
			}
			return
		}
	}
}

// TestHealthcheckWithoutAdmin says what is wrong instead of asking a host of
// the name off.
func TestHealthcheckWithoutAdmin(t *testing.T) {
	p := newProxy(t, echoConfig+"\nadmin: {address: \"off\"}\n")
	out, err := exec.Command(binary, "healthcheck", "-config", filepath.Join(p.dir, "config.yaml")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "admin.address: off") {
		t.Errorf("healthcheck: %v\n%s", err, out)
	}
}

// TestCheckSeesState: what is on disk and would keep a start from succeeding is
// seen by -check, with its place.
func TestCheckSeesState(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		damage func(p *proxy)
		want   []string
	}{
		"damaged CA":                     {echoConfig, func(p *proxy) { p.write("state/local/ca.pem", "damaged") }, []string{"certificates[0].local", "ca.pem"}},
		"state directory that is a file": {echoConfig, func(p *proxy) { p.write("state", "file") }, []string{"certificates[0].local", "not a directory"}},
		"no directory for the access log": {
			echoConfig + "\naccess_log: {output: \"{{dir}}/absent/access.log\"}\n", func(*proxy) {},
			[]string{"access_log.output", "absent", "no such file"},
		},
		"access log that is a directory": {
			echoConfig + "\naccess_log: {output: \"{{dir}}/logs\"}\n", func(p *proxy) { p.write("logs/x", "") },
			[]string{"access_log.output", "logs", "is a directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, tt.text)
			tt.damage(p)
			p.refused(tt.want...)
		})
	}
}

// TestServerOptions: OPTIONS * is answered by the rules of hosts and recorded,
// on the plain listener too.
func TestServerOptions(t *testing.T) {
	p := startProxy(t, echoConfig)
	_, pool := p.devCA()
	plain, err := net.Dial("tcp", p.http)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for _, ask := range []struct {
		c      *rawClient
		host   string
		status int
	}{
		{p.dialRaw(pool), "localhost", http.StatusNoContent},
		{p.dialRaw(pool), "nobody.test", http.StatusNotFound},
		{newRawClient(plain), "nobody.test", http.StatusBadRequest},
	} {
		fmt.Fprintf(ask.c, "OPTIONS * HTTP/1.1\r\nHost: %s\r\n\r\n", ask.host)
		if res, err := http.ReadResponse(ask.c.r, nil); err != nil || res.StatusCode != ask.status {
			t.Errorf("%s: %v, %v; want status %d", ask.host, res, err, ask.status)
		}
	}
	eventually(t, "both are recorded", func() bool { return strings.Count(p.stdout.String(), `"path":"*"`) == 2 })
}
