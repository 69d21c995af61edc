package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/internal/memwatch"
)

func memoryCollector(read func() memwatch.Status) prometheus.Collector {
	var (
		limit = gauge("memory_limit_bytes", "The memory limit that sessions are dropped for; 0: none.")
		inUse = gauge("memory_in_use_bytes", "Memory in use that a garbage collection would not give back; 0 without a limit.")
		short = gauge("memory_short", "1 while memory is so near its limit that sessions are dropped.")
		sheds = counter("memory_sheds_total", "Times that sessions were to be dropped because memory was short.")
		freed = counter("memory_freed_bytes_total", "Memory of the sessions that were dropped because it was short.")
	)
	return pull{
		metrics: []metric{limit, inUse, short, sheds, freed},
		collect: func(emit emit) {
			s := read()
			emit(limit, float64(s.Limit))
			emit(inUse, float64(s.InUse))
			emit(short, boolean(s.Short))
			emit(sheds, float64(s.Sheds))
			emit(freed, float64(s.Freed))
		},
	}
}
