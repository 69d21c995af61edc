package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// redisCluster is three masters without replicas.
type redisCluster struct {
	t     *testing.T
	nodes []*redisServer
}

func startRedisCluster(t *testing.T) *redisCluster {
	t.Helper()
	c := &redisCluster{t: t}
	var addresses []string
	for range 3 {
		node := &redisServer{t: t, port: testtool.FreePort(t)}
		node.args = []string{
			"--port", fmt.Sprint(node.port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no",
			"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(testtool.FreePort(t)), "--cluster-node-timeout", "1000",
			"--cluster-require-full-coverage", "no", "--loglevel", "warning",
		}
		node.start()
		t.Cleanup(node.kill)
		c.nodes = append(c.nodes, node)
		addresses = append(addresses, node.addr())
	}
	cli := testtool.Require(t, "redis-cli", "redis-tools")
	eventually(t, "the cluster is made", func() bool {
		out, err := exec.CommandContext(t.Context(), cli, append([]string{"--cluster", "create", "--cluster-yes"}, addresses...)...).CombinedOutput()
		if err != nil {
			t.Logf("redis-cli --cluster create: %v\n%s", err, out)
		}
		return err == nil
	})
	for _, node := range c.nodes {
		eventually(t, "the node has joined", func() bool {
			out, _ := exec.CommandContext(t.Context(), cli, "-p", fmt.Sprint(node.port), "cluster", "info").Output()
			return strings.Contains(string(out), "cluster_state:ok") && strings.Contains(string(out), "cluster_known_nodes:3")
		})
	}
	return c
}

// TestFleetOnACluster kills one master of a real Redis Cluster: every
// handshake succeeds, what the other masters hold resumes, and when it is
// back, so does everything.
func TestFleetOnACluster(t *testing.T) {
	t.Parallel()
	cluster := startRedisCluster(t)
	f := startFleet(t, `addresses: ["REDIS"], password_file: "SHARED/password"`,
		fmt.Sprintf(`mode: cluster, addresses: [%q, %q]`, cluster.nodes[0].addr(), cluster.nodes[1].addr()))
	for _, version := range bothVersions {
		f.shares(f.a, version)
	}
	var clients []*tlsClient
	for range 12 {
		for _, version := range bothVersions {
			c := f.client(version)
			f.visit(c, f.a, "open.test")
			clients = append(clients, c)
		}
	}
	f.a.queueEmpty()

	victim := cluster.nodes[2]
	victim.kill()
	resumed := 0
	for _, c := range clients {
		if f.visit(c, f.b, "open.test") {
			resumed++
		}
	}
	if resumed < len(clients)/4 {
		t.Errorf("%d of %d sessions resumed with one master of three dead, want about two thirds", resumed, len(clients))
	}
	for round := range 5 { // each at the other replica than before
		for _, c := range clients {
			f.visit(c, []*proxy{f.a, f.b}[round%2], "open.test")
		}
	}

	victim.start()
	eventually(t, "everything resumes everywhere again", func() bool {
		for _, c := range clients {
			c.session = nil
			f.visit(c, f.a, "open.test")
		}
		f.a.queueEmpty()
		for _, c := range clients {
			if !f.visit(c, f.b, "open.test") {
				return false
			}
		}
		return true
	})
}
