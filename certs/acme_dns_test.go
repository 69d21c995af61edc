package certs

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libdns/libdns"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// tsigSecret is the key of the name server, in base64.
const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0IG5hbWUgc2VydmVyIQ=="

// startBIND runs a name server for the zone dns.test that takes updates signed
// with a key of each algorithm.
func startBIND(t *testing.T) (addr, keyFile string) {
	t.Helper()
	named := testtool.Require(t, "named", "bind9")
	dir := t.TempDir()
	var keys, grants strings.Builder
	for _, alg := range []string{"hmac-sha1", "hmac-sha256", "hmac-sha512"} {
		fmt.Fprintf(&keys, "key \"update-%s\" { algorithm %s; secret \"%s\"; };\n", alg, alg, tsigSecret)
		fmt.Fprintf(&grants, "key \"update-%s\"; ", alg)
	}
	conf := filepath.Join(dir, "named.conf")
	writeFile(t, filepath.Join(dir, "dns.test.zone"), []byte(`$TTL 60
@ SOA ns.dns.test. ops.dns.test. 1 3600 600 86400 60
@ NS ns.dns.test.
ns A 127.0.0.1
`))
	var log *logBuffer
	startReady(t, func() *exec.Cmd {
		addr = testtool.FreeAddr(t)
		_, port, _ := net.SplitHostPort(addr)
		writeFile(t, conf, fmt.Appendf(nil, `%s
options {
	directory %q;
	pid-file %q;
	session-keyfile %q;
	listen-on port %s { 127.0.0.1; };
	listen-on-v6 { none; };
	recursion no;
	dnssec-validation no;
	allow-transfer { none; };
};
controls { };
zone "dns.test" {
	type primary;
	file %q;
	allow-update { %s };
};
`, keys.String(), dir, filepath.Join(dir, "named.pid"), filepath.Join(dir, "session.key"), port, filepath.Join(dir, "dns.test.zone"), grants.String()))
		cmd := exec.Command(named, "-g", "-c", conf, "-n", "1", "-U", "1")
		log = new(logBuffer)
		cmd.Stdout, cmd.Stderr = log, log
		return cmd
	}, func() bool {
		// A port that is taken is no reason for named to end.
		return strings.Contains(log.String(), "all zones loaded") && !strings.Contains(log.String(), "address in use")
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("named's log:\n%s", log)
		}
	})
	keyFile = filepath.Join(dir, "secret")
	writeFile(t, keyFile, []byte(tsigSecret+"\n"))
	return addr, keyFile
}

// TestDNS01 obtains a wildcard and its parent, which have the same challenge
// name, and others by updates to a real name server.
func TestDNS01(t *testing.T) {
	t.Parallel()
	server, keyFile := startBIND(t)
	p := newPebble(t, pebbleOptions{dns: server})
	s := newACMEStore(t, Options{})
	source := func(alg string, change func(*RFC2136), hosts ...string) Source {
		return p.source(func(a *ACME) {
			a.DNS = &RFC2136{Server: server, KeyName: "update-hmac-" + alg, KeyFile: keyFile, Algorithm: "hmac-" + alg}
			if change != nil {
				change(a.DNS)
			}
		}, hosts...)
	}
	load(t, s,
		source("sha256", nil, "*.dns.test", "dns.test"),
		source("sha512", func(d *RFC2136) { d.Zone = "dns.test." }, "a.b.dns.test"),
		source("sha1", func(d *RFC2136) { d.PropagationTimeout = -1 }, "c.dns.test"),
		source("sha512", func(d *RFC2136) { d.Algorithm = "hmac-sha256" }, "wrong-key.dns.test"))
	run(t, s)
	obtained(t, s, 60*time.Second, "dns.test", "x.dns.test", "a.b.dns.test", "c.dns.test")
	eventually(t, 20*time.Second, "refused with a wrong key", func() bool {
		st := statusOf(s, "wrong-key.dns.test")
		return st.ACME.Failures > 0 && st.LastError != ""
	})
	// Challenges are cleaned up.
	eventually(t, 10*time.Second, "free of challenge records", func() bool {
		r := &net.Resolver{PreferGo: true, Dial: func(c ctx, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(c, network, server)
		}}
		for _, name := range []string{"_acme-challenge.dns.test.", "_acme-challenge.a.b.dns.test.", "_acme-challenge.c.dns.test."} {
			if txt, err := r.LookupTXT(t.Context(), name); err == nil && len(txt) > 0 {
				return false
			}
		}
		return true
	})
}

// TestZoneOfRecords: records go into the zone that is configured, whichever
// zone was found to hold the name.
func TestZoneOfRecords(t *testing.T) {
	for _, tt := range []struct{ configured, zone, name string }{
		{"", "b.dns.test.", "_acme-challenge.a"},
		{"dns.test", "dns.test.", "_acme-challenge.a.b"},
		{"b.dns.test", "b.dns.test.", "_acme-challenge.a"},
	} {
		p := newDNSProvider(&RFC2136{Zone: tt.configured}, "")
		zone, recs := p.move("b.dns.test.", []libdns.Record{libdns.TXT{Name: "_acme-challenge.a", Text: "x"}})
		if rr := recs[0].RR(); zone != tt.zone || rr.Name != tt.name || rr.Data != "x" || rr.Type != "TXT" {
			t.Errorf("zone %q: %+v in %q; want %s in %s", tt.configured, rr, zone, tt.name, tt.zone)
		}
	}
}
