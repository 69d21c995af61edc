package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// backendKey names a backend; two entries of one pool may name the same.
type backendKey struct{ pool, backend string }

func upstreamCollector(read func() []upstream.Status) prometheus.Collector {
	var (
		up       = gauge("upstream_up", "1 while the backend gets requests: 0 while it is down by its health checks, or ejected with another one left.", "upstream", "backend")
		inFlight = gauge("upstream_requests_in_flight", "Requests and upgraded connections with the backend now.", "upstream", "backend")
		tries    = counter("upstream_tries_total", "Requests given to the backend, retries included.", "upstream", "backend")
		failures = counter("upstream_failures_total", "Requests given to the backend that got no response.", "upstream", "backend")
	)
	return pull{
		metrics: []metric{up, inFlight, tries, failures},
		collect: func(emit emit) {
			seen := map[backendKey]bool{}
			for _, pool := range read() {
				for _, b := range pool.Backends {
					key := backendKey{label(pool.Name), label(b.Backend)}
					if seen[key] {
						continue
					}
					seen[key] = true
					emit(up, boolean(b.Up()), key.pool, key.backend)
					emit(inFlight, float64(b.InFlight), key.pool, key.backend)
					emit(tries, float64(b.Requests), key.pool, key.backend)
					emit(failures, float64(b.Failures), key.pool, key.backend)
				}
			}
		},
	}
}

func accessLogCollector(read func() proxy.AccessLogStats) prometheus.Collector {
	records := counter("access_log_records_total", "Records for the access log, by whether they were written or dropped.", "result")
	return pull{
		metrics: []metric{records},
		collect: func(emit emit) {
			s := read()
			emit(records, float64(s.Written), "written")
			emit(records, float64(s.Dropped), "dropped")
		},
	}
}

func configCollector(read func() ConfigStats) prometheus.Collector {
	var (
		reloads    = counter("config_reloads_total", "Reloads of the configuration, by result.", "result")
		successful = gauge("config_last_reload_successful", "0 while the last reload was refused and an older configuration serves on.")
		loaded     = gauge("config_loaded_timestamp_seconds", "When the configuration in force was put in force.")
		generation = gauge("config_generation", "Number of the configuration in force; grows by one with each reload that succeeds.")
	)
	return pull{
		metrics: []metric{reloads, successful, loaded, generation},
		collect: func(emit emit) {
			s := read()
			emit(reloads, float64(s.Reloads), "success")
			emit(reloads, float64(s.ReloadFailures), "failure")
			emit(successful, boolean(!s.LastFailed))
			emit(loaded, unix(s.Loaded))
			emit(generation, float64(s.Generation))
		},
	}
}
