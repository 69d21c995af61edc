package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// replicaConfig is a replica of a fleet that obtains certificates; REDIS, KEYS,
// CA and DIRECTORY are filled in.
const replicaConfig = `
listeners:
  - address: "{{tls}}"
http: {address: "{{http}}"}
certificates:
  - acme: {hosts: [one.test, two.test, three.test], directory: "DIRECTORY", ca_file: "CA"}
store:
  redis: {addresses: ["REDIS"], password_file: "{{dir}}/password"}
  key_file: "KEYS"
  timeout: 2s
sites:
  - hosts: [one.test, two.test, three.test]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`

// acmeReplicas are two replicas, not yet running, that share Redis and Pebble,
// which validates at the first.
func acmeReplicas(t *testing.T, env ...string) (a, b *proxy, ca *pebble) {
	t.Helper()
	redis := startRedis(t, "secret")
	a, b = newProxy(t, ""), newProxy(t, "")
	ca = startPebble(t, a, pebbleOptions{env: env})
	keys := newKeyLine() + "\n"
	for _, p := range []*proxy{a, b} {
		p.write("password", "secret\n")
		p.writeConfig(strings.NewReplacer(
			"REDIS", redis.addr(), "KEYS", p.write("store.keys", keys), "CA", a.dir+"/pebble.pem", "DIRECTORY", ca.directory,
		).Replace(replicaConfig))
	}
	return a, b, ca
}

var replicaNames = []string{"one.test", "two.test", "three.test"}

// sameEverywhere waits until both replicas serve the same certificate of
// Pebble for every name.
func sameEverywhere(t *testing.T, ca *pebble, a, b *proxy) {
	t.Helper()
	pool := ca.pool(t)
	for _, name := range replicaNames {
		a.patiently(2*time.Minute, "both replicas serve one certificate for "+name, func() bool {
			one, err := a.servedSerial(pool, name)
			if err != nil {
				return false
			}
			two, err := b.servedSerial(pool, name)
			return err == nil && one.Cmp(two) == 0
		})
	}
	if n := ca.issued(); n != len(replicaNames) {
		t.Errorf("%d certificates were issued; want %d", n, len(replicaNames))
	}
}

// TestReplicasObtainOnce: two replicas that start together obtain each
// certificate once, whichever of them places the order, in spite of bad nonces.
func TestReplicasObtainOnce(t *testing.T) {
	t.Parallel()
	a, b, ca := acmeReplicas(t, "PEBBLE_WFE_NONCEREJECT=20")
	a.start()
	b.start()
	a.waitReady()
	b.waitReady()
	sameEverywhere(t, ca, a, b)
}

// TestReplicaKilledDuringOrder: a replica is killed while it holds the locks of
// its orders; another one takes them over when they run out, and each certificate
// is issued once.
func TestReplicaKilledDuringOrder(t *testing.T) {
	t.Parallel() // it waits for a minute
	a, b, ca := acmeReplicas(t, "PEBBLE_VA_NOSLEEP=0", "PEBBLE_VA_SLEEPTIME=4")
	b.start()
	eventually(t, "an order is under way", func() bool { return strings.Contains(ca.log.String(), "Added order") })
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.exited
	a.start()
	b.start()
	a.waitReady()
	b.waitReady()
	sameEverywhere(t, ca, a, b)
}

// TestKilledDuringOrder: kill -9 in the middle of an order, and a start: the
// account is the same, the certificate is obtained.
func TestKilledDuringOrder(t *testing.T) {
	t.Parallel()
	p := newProxy(t, "")
	ca := startPebble(t, p, pebbleOptions{env: []string{"PEBBLE_VA_NOSLEEP=0", "PEBBLE_VA_SLEEPTIME=4", "PEBBLE_WFE_NONCEREJECT=20"}})
	p.writeConfig(fmt.Sprintf(acmeConfig, ca.directory, "tls-alpn-01"))
	p.start()
	eventually(t, "an order is under way", func() bool { return strings.Contains(ca.log.String(), "Added order") })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	if ca.issued() != 0 {
		t.Fatal("the order was over already: this test shows nothing")
	}
	p.start()
	p.waitReady()
	pool := ca.pool(t)
	p.patiently(time.Minute, "the certificate is served", func() bool {
		_, err := p.servedSerial(pool, "open.test")
		return err == nil
	})
	if n := strings.Count(ca.log.String(), "accounts in memory"); n != 1 {
		t.Errorf("%d accounts were made", n)
	}
}

// TestOnDemandIsNotOpen: without a rule who may ask the configuration is
// refused; with one, other names cost the CA nothing, and the rate is bounded.
func TestOnDemandIsNotOpen(t *testing.T) {
	t.Parallel()
	p := newProxy(t, "")
	ca := startPebble(t, p, pebbleOptions{})
	config := `
listeners:
  - address: "{{tls}}"
http: {address: "{{http}}"}
timeouts: {handshake: 30s}
certificates:
  - {cert: "{{dir}}/tls.crt", key: "{{dir}}/tls.key"}
  - acme:
      directory: "` + ca.directory + `"
      ca_file: "{{dir}}/pebble.pem"
      on_demand: {RULES}
sites:
  - hosts: ["*"]
    routes: [{upstream: echo}]
upstreams:
  echo: {backends: ["builtin:echo"]}
`
	own := newCA(t)
	def := p.issue(own, "tls", pki.Request{Names: []string{"default.test"}})
	p.writeConfig(strings.Replace(config, "RULES", "rate: 5", 1))
	out, err := exec.Command(binary, "-check", "-config", p.dir+"/config.yaml").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "on_demand") || !strings.Contains(string(out), "allow") {
		t.Errorf("-check without ask and allow: %v, %s", err, out)
	}

	p.writeConfig(strings.Replace(config, "RULES", `allow: ["*.ok.test"], rate: 2, window: 1h, wait: 20s`, 1))
	p.start()
	p.waitReady()
	pool := ca.pool(t)
	for _, name := range []string{"evil.test", "a.b.ok.test", "ok.test", "ok.test.evil.test", "10.0.0.1"} {
		conn := p.tlsClient(own.Pool(), 0)
		if _, err := conn.request(name); err != nil {
			t.Errorf("%s does not get the default certificate: %v", name, err)
		}
	}
	if n := strings.Count(ca.log.String(), "Added order"); n != 0 {
		t.Fatalf("%d orders for names that are not allowed", n)
	}
	for _, name := range []string{"a.ok.test", "b.ok.test"} {
		if _, err := p.servedSerial(pool, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 5 { // above the rate
		c := p.look(own, "default.test")
		if !c.leaf.Equal(def.Leaf) {
			t.Fatal("the default certificate is not served")
		}
		if _, err := p.servedSerial(pool, fmt.Sprintf("more%d.ok.test", i)); err == nil {
			t.Error("a name above the rate was obtained")
		}
	}
	if n := ca.issued(); n != 2 {
		t.Errorf("%d certificates were issued", n)
	}
	if n := p.metric("tlsproxy_certificates_on_demand_refused_total"); n < 5 {
		t.Errorf("%v refusals are counted", n)
	}
}
