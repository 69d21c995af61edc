package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/store"
)

func storeCollector(read func() store.Status) prometheus.Collector {
	var (
		servers  = gauge("store_servers", "Servers of the shared store that were talked to, by whether they answer.", "state")
		refusing = gauge("store_servers_refusing_writes", "Servers of the shared store that answer but take no writes: full, read-only, or not permitted.")
		calls    = counter("store_calls_total", "Calls of the shared store, by outcome; unavailable: not made, because its server does not answer.", "result")
		keyFile  = gauge("store_key_file_failing", "1 while the key file cannot be read and the keys read before serve on.")
		synced   = gauge("store_revocations_synced_timestamp_seconds", "When the revocations of other replicas were last known to be complete; 0: not yet.")
	)
	return pull{
		metrics: []metric{servers, refusing, calls, keyFile, synced},
		collect: func(emit emit) {
			s := read()
			up, down, refuse := 0, 0, 0
			for _, server := range s.Servers {
				if !server.Up {
					down++
					continue
				}
				up++
				if server.RefusesWrites {
					refuse++
				}
			}
			emit(servers, float64(up), "up")
			emit(servers, float64(down), "down")
			emit(refusing, float64(refuse))
			for _, result := range union([]string{"ok", "absent", "timeout", "error", "refused", "unavailable", "corrupt"}, s.Calls) {
				emit(calls, float64(s.Calls[result]), result)
			}
			emit(keyFile, boolean(s.KeyFileError != ""))
			emit(synced, unix(s.RevocationsSynced))
		},
	}
}
