package session

import (
	"crypto/tls"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Clients that come back again and again all resume, hold at most two sessions
// each once the reuse window has passed, and cost no memory that grows.
//
// The short form makes 10 resumptions for each of 1,000 clients, fewer under
// the race detector. The full form, a million, takes some minutes:
//
//	TLSPROXY_SOAK=1000000 go test -run TestSoak -timeout 1h ./session
func TestSoak(t *testing.T) {
	const clients, window = soakClients, time.Second
	total := soaking
	if s := os.Getenv("TLSPROXY_SOAK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < clients {
			t.Fatalf("TLSPROXY_SOAK=%q: want a number of resumptions, at least %d", s, clients)
		}
		total = n
	}
	p := newProxy(t, Options{Limits: Limits{ReuseWindow: window}})
	configs := make([]*tls.Config, clients)
	proxies := make([]*proxy, clients)
	for i := range configs {
		configs[i] = client(versions[i%2].id, "a.test")
		q := *p
		q.addr = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		proxies[i] = &q
		q.full(t, configs[i])
	}
	rounds := total / clients
	var early uint64
	for round := range rounds {
		resumeAll(t, proxies, configs)
		if round == rounds/2 {
			early = heap()
		}
	}
	time.Sleep(window) // real time: the window of the last round
	p.r.Shed(0)
	if n := p.r.cache.Len(); n > 2*clients {
		t.Errorf("%d sessions of %d clients are held", n, clients)
	}
	if hits := p.r.Stats().Lookups[Hit]; hits != uint64(rounds*clients) {
		t.Errorf("%d of %d resumed", hits, rounds*clients)
	}
	if late := heap(); late > early+early/4+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	accounts(t, p.r)
}

// resumeAll has every client come back once, from several goroutines.
func resumeAll(t *testing.T, proxies []*proxy, configs []*tls.Config) {
	t.Helper()
	var wg sync.WaitGroup
	workers := 2 * runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(configs); i += workers {
				if o := proxies[i].try(configs[i]); !o.server.DidResume || o.result != Hit {
					t.Errorf("client %d: resumed %v, %q, server %v, client %v", i, o.server.DidResume, o.result, o.serverErr, o.clientErr)
				}
			}
		})
	}
	wg.Wait()
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
