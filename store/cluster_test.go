package store

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

// startCluster starts a Redis Cluster of three masters.
func startCluster(t testing.TB) (nodes []*redisServer, addresses []string) {
	t.Helper()
	bounds := []int{0, 5461, 10923, 16384}
	for i := range 3 {
		n := startRedis(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no")
		if err := n.raw().ClusterAddSlotsRange(t.Context(), bounds[i], bounds[i+1]-1).Err(); err != nil {
			t.Fatal(err)
		}
		nodes, addresses = append(nodes, n), append(addresses, n.addr)
	}
	for i, n := range nodes {
		raw := n.raw()
		raw.Do(t.Context(), "cluster", "set-config-epoch", i+1)
		host, port, _ := net.SplitHostPort(nodes[(i+1)%3].addr)
		if err := raw.ClusterMeet(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		raw := n.raw()
		testtool.Eventually(t, "the cluster is complete", func() bool {
			info := raw.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") &&
				strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	return nodes, addresses
}

// A cluster shares sessions over its masters. One that dies or hangs costs the
// sessions that it had, and a bounded number of deadlines; the others go on.
func TestCluster(t *testing.T) {
	for _, tt := range []struct {
		name       string
		begin, end func(*redisServer)
	}{
		{"one master killed", (*redisServer).kill, (*redisServer).start},
		{"one master stopped", (*redisServer).stop, (*redisServer).cont},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nodes, addresses := startCluster(t)
			a, b := newFleet(t, Options{Mode: Cluster, Addresses: addresses, Timeout: 100 * time.Millisecond}, session.Options{})
			clients := make([]*tls.Config, 30)
			for i := range clients {
				clients[i] = a.shares(t, b, bothVersions[1])
			}
			a.flushed(t)
			b.Clear()
			for i, n := range nodes {
				if size := n.raw().DBSize(t.Context()).Val(); size == 0 {
					t.Errorf("master %d holds nothing", i)
				}
			}
			tt.begin(nodes[1])
			for range 3 {
				for _, c := range clients {
					b.connect(t, c)
				}
			}
			testtool.Eventually(t, "the breaker of the dead master has tripped", func() bool { return b.store.Stats().Down == 1 })
			time.Sleep(2 * time.Second) // what was asked before that ends
			before, start := b.store.Stats().Calls, time.Now()
			lost := 0
			for _, c := range clients {
				b.Clear()
				if _, result := b.connect(t, c); result == session.StoreError {
					lost++
				}
			}
			after := b.store.Stats().Calls
			// Handles last cut by the resumptions above may be gone by now,
			// but no call to the two healthy masters may have failed.
			if lost == 0 || lost == len(clients) {
				t.Errorf("%d of %d sessions are out of reach, want about a third", lost, len(clients))
			}
			// A deadline for each lost session is what there would be without a
			// breaker; a few may pass on a busy machine, at the other masters too.
			if failed := after["timeout"] + after["error"] - before["timeout"] - before["error"]; failed > uint64(lost)/2+looks(start) {
				t.Errorf("%d calls failed after the dead master's breaker had tripped", failed)
			}
			tt.end(nodes[1])
			testtool.Eventually(t, "every master is asked again", func() bool { return b.store.Stats().Down == 0 })
			for range 10 {
				a.shares(t, b, bothVersions[0])
			}
		})
	}
}

// Revocations, certificates and locks work on a cluster too.
func TestClusterEverythingElse(t *testing.T) {
	t.Parallel()
	_, addresses := startCluster(t)
	keys := writeKeys(t, "", newKey())
	a := open(t, Options{Mode: Cluster, Addresses: addresses, KeyFile: keys})
	b := open(t, Options{Mode: Cluster, Addresses: addresses, KeyFile: keys})
	var heard records
	watch(t, b.Sessions(), &heard)
	for i := range 5 {
		if err := a.Sessions().Publish(t.Context(), recordsFor(time.Hour, fmt.Append(nil, "record ", i))); err != nil {
			t.Fatal(err)
		}
	}
	testtool.Eventually(t, "all records are heard", func() bool { return heard.has("record 0") && heard.has("record 4") })
	storageContract(t, a.Certificates(), b.Certificates())
	staplesContract(t, a.Staples(), b.Staples())
}

// After a failover by Sentinels the new master is used, without a restart.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master := startRedis(t)
	host, port, _ := net.SplitHostPort(master.addr)
	replica := startRedis(t, "--replicaof", host+" "+port)
	var sentinels []*redisServer
	var addresses []string
	for range 3 {
		s := &redisServer{t: t, addr: freeAddress(t), dir: t.TempDir()}
		conf := fmt.Sprintf("sentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", host, port)
		s.args = []string{writeKeys(t, filepath.Join(s.dir, "sentinel.conf"), conf), "--sentinel"}
		t.Cleanup(s.kill)
		s.startSentinel()
		sentinels, addresses = append(sentinels, s), append(addresses, s.addr)
	}
	testtool.Eventually(t, "the replica follows and is known", func() bool {
		info := master.raw().Info(t.Context(), "replication").Val()
		known := sentinels[0].raw().Do(t.Context(), "sentinel", "ckquorum", "main").Err() == nil
		list, _ := sentinels[0].raw().Do(t.Context(), "sentinel", "replicas", "main").Slice()
		return strings.Contains(info, "state=online") && known && len(list) == 1
	})
	a, b := newFleet(t, Options{Mode: Sentinel, MasterName: "main", Addresses: addresses}, session.Options{})
	a.shares(t, b, tls.VersionTLS13)
	master.kill()
	for _, v := range bothVersions {
		a.shares(t, b, v)
	}
	if n := replica.raw().DBSize(t.Context()).Val(); n == 0 {
		t.Error("the new master holds nothing")
	}
}

// startSentinel starts r as a Sentinel on its configuration file.
func (r *redisServer) startSentinel() {
	r.t.Helper()
	conf := r.args[0]
	r.args = []string{"--sentinel"}
	r.startWith(conf)
}

// A server with TLS and an ACL user that may do what the documentation lists,
// and no more.
func TestTLSAndACL(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewRoot(pki.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cert, err := ca.Issue(pki.Request{Names: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.WritePair(cert, file("cert.pem"), file("key.pem")); err != nil {
		t.Fatal(err)
	}
	writeKeys(t, file("ca.pem"), string(pki.CertificatePEM(ca.Certificate)))
	tlsAddr := freeAddress(t)
	_, tlsPort, _ := net.SplitHostPort(tlsAddr)
	r := startRedis(t, "--tls-port", tlsPort, "--tls-cert-file", file("cert.pem"), "--tls-key-file", file("key.pem"),
		"--tls-ca-cert-file", file("ca.pem"), "--tls-auth-clients", "no")
	raw := r.raw()
	rule := append([]any{"acl", "setuser", "tlsproxy", "on", ">secret"}, toAny(strings.Fields(ACLRule))...)
	if err := raw.Do(t.Context(), rule...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := raw.Do(t.Context(), "acl", "setuser", "default", "-@all").Err(); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Addresses: []string{tlsAddr}, Username: "tlsproxy", PasswordFile: writeKeys(t, file("password"), "secret"),
		TLS: &tls.Config{RootCAs: ca.Pool()}, KeyFile: writeKeys(t, file("keys"), newKey()),
	}
	a, b := newFleet(t, o, session.Options{})
	for _, v := range bothVersions {
		a.shares(t, b, v)
	}
	var heard records
	watch(t, b.store.Sessions(), &heard)
	if err := a.store.Sessions().Publish(t.Context(), recordsFor(time.Hour, []byte("record"))); err != nil {
		t.Fatal(err)
	}
	testtool.Eventually(t, "the record is heard", func() bool { return heard.has("record") })
	storageContract(t, a.store.Certificates(), b.store.Certificates())
	staplesContract(t, a.store.Staples(), b.store.Staples())
	if refusesWrites(a.store) || refusesWrites(b.store) {
		t.Error("the user may not do all it needs")
	}

	// Nobody gets in with another CA or password.
	for name, change := range map[string]func(*Options){
		"unknown CA":     func(o *Options) { o.TLS = &tls.Config{} },
		"plain":          func(o *Options) { o.TLS = nil },
		"wrong password": func(o *Options) { o.PasswordFile = writeKeys(t, file("wrong"), "wrong") },
		"no user":        func(o *Options) { o.Username, o.PasswordFile = "", "" },
	} {
		bad := o
		bad.Logger = slog.New(slog.DiscardHandler)
		change(&bad)
		s := open(t, bad)
		if _, err := s.Sessions().Get(t.Context(), newID(s.Sessions())); err == nil {
			t.Errorf("%s: a value was read", name)
		}
	}
}

func toAny(in []string) (out []any) {
	for _, s := range in {
		out = append(out, s)
	}
	return out
}
