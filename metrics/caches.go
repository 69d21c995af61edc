package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/cache"
)

// cacheNumbers are what every cache has in common.
type cacheNumbers struct {
	entries, capacity int
	bytes, maxBytes   int64
	scans             uint64
	evictions         map[string]uint64
	hits, misses      uint64
	lookups           bool // hits and misses are known
}

// namedCache is one cache of the program.
type namedCache struct {
	name string
	read func() cacheNumbers
}

func cacheSources(o Options) []namedCache {
	var all []namedCache
	if o.Sessions != nil {
		all = append(all, namedCache{"session", func() cacheNumbers {
			s := o.Sessions()
			return cacheNumbers{entries: s.Entries, capacity: s.Capacity, bytes: s.Bytes, maxBytes: s.MaxBytes,
				scans: s.Scans, evictions: s.Evictions}
		}})
	}
	if o.OCSP != nil {
		all = append(all, namedCache{"ocsp", func() cacheNumbers { return ofCache(o.OCSP().Cache) }})
	}
	if o.ClientOCSP != nil {
		all = append(all, namedCache{"client_ocsp", func() cacheNumbers { return ofCache(o.ClientOCSP().Cache) }})
	}
	return all
}

func ofCache(s cache.Stats) cacheNumbers {
	return cacheNumbers{entries: s.Entries, capacity: s.Capacity, bytes: s.Bytes, maxBytes: s.MaxBytes,
		scans: s.Scans, evictions: s.Evictions.ByName(), hits: s.Hits, misses: s.Misses, lookups: true}
}

// evictionReasons are the reasons of the cache package.
func evictionReasons() []string {
	return slices.Sorted(maps.Keys(cache.Evictions{}.ByName()))
}

func cacheCollector(caches []namedCache) prometheus.Collector {
	var (
		entries   = gauge("cache_entries", "Entries held, expired ones not yet reclaimed included.", "cache")
		capacity  = gauge("cache_capacity_entries", "The most entries that may be held; 0: unbounded.", "cache")
		bytes     = gauge("cache_bytes", "Memory that the entries take, overhead included.", "cache")
		maxBytes  = gauge("cache_capacity_bytes", "The most memory that entries may take; 0: unbounded.", "cache")
		evictions = counter("cache_evictions_total", "Entries that left, by reason.", "cache", "reason")
		scans     = counter("cache_scans_total", "Searches for expired entries.", "cache")
		hits      = counter("cache_hits_total", "Lookups that found a live entry. Lookups of sessions are in session_lookups_total.", "cache")
		misses    = counter("cache_misses_total", "Lookups that found none. Lookups of sessions are in session_lookups_total.", "cache")
	)
	return pull{
		metrics: []metric{entries, capacity, bytes, maxBytes, evictions, scans, hits, misses},
		collect: func(emit emit) {
			for _, c := range caches {
				n := c.read()
				emit(entries, float64(n.entries), c.name)
				emit(capacity, float64(n.capacity), c.name)
				emit(bytes, float64(n.bytes), c.name)
				emit(maxBytes, float64(n.maxBytes), c.name)
				emit(scans, float64(n.scans), c.name)
				for _, reason := range union(evictionReasons(), n.evictions) {
					emit(evictions, float64(n.evictions[reason]), c.name, reason)
				}
				if n.lookups {
					emit(hits, float64(n.hits), c.name)
					emit(misses, float64(n.misses), c.name)
				}
			}
		},
	}
}

// union lists the known values, which are there from the start so that rates
// see the first increment, and any others that were counted.
func union[V any](known []string, counted map[string]V) []string {
	all := slices.Clone(known)
	for _, k := range slices.Sorted(maps.Keys(counted)) {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}
