package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// TestStoreClientCertificate: a Redis that wants client certificates comes to want
// those of another CA. The renewed files are used without a restart.
func TestStoreClientCertificate(t *testing.T) {
	servers, clients, renewed := newCA(t), newCA(t), newCA(t)
	p := newProxy(t, "")
	tlsPort := testtool.FreePort(t)
	p.issue(servers, "redis", pki.Request{Names: []string{"127.0.0.1"}})
	p.issue(clients, "us", pki.Request{CommonName: "us", Client: true})
	server := startRedis(t, "secret")
	restart := func(ca *pki.CA, args []string) {
		server.kill()
		server.args = append(args, "--tls-port", fmt.Sprint(tlsPort), "--tls-auth-clients", "yes",
			"--tls-cert-file", filepath.Join(p.dir, "redis.crt"), "--tls-key-file", filepath.Join(p.dir, "redis.key"),
			"--tls-ca-cert-file", p.write("clients.pem", string(pki.CertificatePEM(ca.Certificate))))
		server.start()
	}
	plain := server.args[:len(server.args):len(server.args)]
	restart(clients, plain)

	p.write("servers.pem", string(pki.CertificatePEM(servers.Certificate)))
	p.write("password", "secret")
	p.write("store.keys", strings.Repeat("0123456789abcdef", 4)+"\n")
	p.writeConfig(strings.Replace(echoConfig, "sites:", fmt.Sprintf(`store:
  redis:
    addresses: ["127.0.0.1:%d"]
    password_file: "{{dir}}/password"
    tls: {ca_file: "{{dir}}/servers.pem", cert: "{{dir}}/us.crt", key: "{{dir}}/us.key"}
  key_file: "{{dir}}/store.keys"
  timeout: 1s
sites:`, tlsPort), 1))
	p.start()
	p.waitReady()
	answered := func() float64 { return p.metric("tlsproxy_store_calls_total", `result="ok"`) }
	eventually(t, "the store is used", func() bool { return answered() > 0 })

	next := p.issue(renewed, "us", pki.Request{CommonName: "us", Client: true})
	eventually(t, "the renewed certificate is loaded", func() bool {
		return p.metric("tlsproxy_certificate_expiry_timestamp_seconds", "us.crt") == float64(next.Leaf.NotAfter.Unix()) &&
			strings.Contains(p.stderr.String(), "client certificate loaded")
	})
	restart(renewed, plain)
	before := answered()
	_, pool := p.devCA()
	eventually(t, "the store is used with the renewed certificate", func() bool {
		fetch(t, p.client(pool, false), "https://localhost/") // a session to store
		return answered() > before
	})
}
