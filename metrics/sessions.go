package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/session"
)

func sessionCollector(read func() session.Stats) prometheus.Collector {
	var (
		lookups     = counter("session_lookups_total", "Sessions that clients offered, by how the lookup ended.", "result")
		stored      = counter("session_stored_total", "Sessions stored after a handshake.")
		notStored   = counter("session_not_stored_total", "Sessions not stored after a handshake, by reason.", "reason")
		clients     = gauge("session_clients", "Client addresses that hold sessions (IPv6: /64 networks).")
		share       = counter("session_share_limited_total", "Sessions dropped because their client held its share of the cache.")
		oldest      = gauge("session_oldest_age_seconds", "Age of the oldest session held; 0: none.")
		evicted     = gauge("session_last_evicted_age_seconds", "Age of the session last dropped for room; 0: none yet. A short age means that the cache is too small.")
		revocations = gauge("session_revocations", "Revocations in force.")
		queue       = gauge("session_store_queue_length", "Changes waiting to be written to the shared store.")
		lost        = counter("session_store_lost_total", "Changes that the shared store did not get: too many waited (queue), or it did not take them (store).", "reason")
	)
	return pull{
		metrics: []metric{lookups, stored, notStored, clients, share, oldest, evicted, revocations, queue, lost},
		collect: func(emit emit) {
			s := read()
			for _, r := range session.Results() {
				emit(lookups, float64(s.Lookups[r]), string(r))
			}
			emit(stored, float64(s.Stored))
			for _, reason := range union(nil, s.NotStored) {
				emit(notStored, float64(s.NotStored[reason]), reason)
			}
			emit(clients, float64(s.Clients))
			emit(share, float64(s.ShareLimited))
			emit(oldest, s.OldestAge.Seconds())
			emit(evicted, s.LastEvictedAge.Seconds())
			emit(revocations, float64(s.Revocations))
			emit(queue, float64(s.StoreQueued))
			emit(lost, float64(s.StoreDropped), "queue")
			emit(lost, float64(s.StoreFailed), "store")
		},
	}
}
