package metrics

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/proxy"
)

var _ proxy.Observer = (*Metrics)(nil)

// noRoute is the route of requests that matched none.
const noRoute = "none"

// requests counts what the proxy forwarded.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	received *prometheus.CounterVec
	sent     *prometheus.CounterVec

	counters handles[requestKey, prometheus.Counter]
	routes   handles[string, routeHandles]
}

type requestKey struct {
	route, method string
	code          int
}

// routeHandles are the series of one route.
type routeHandles struct {
	duration       prometheus.Observer
	received, sent prometheus.Counter
}

func newRequests(r prometheus.Registerer) *requests {
	q := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "requests_total",
			Help: "Requests that ended, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "request_duration_seconds",
			Help:    "Time from the headers of a request to the end of its response. Upgraded connections are left out.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
		received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "request_body_bytes_total",
			Help: "Bytes of request bodies, and from clients on upgraded connections.",
		}, []string{"route"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "response_body_bytes_total",
			Help: "Bytes of response bodies, and to clients on upgraded connections.",
		}, []string{"route"}),
	}
	r.MustRegister(q.total, q.duration, q.received, q.sent)
	return q
}

// Request counts one request; it is the method of [proxy.Observer].
func (m *Metrics) Request(r *proxy.Record) {
	q := m.requests
	key := requestKey{route: r.Route, method: r.MethodLabel(), code: r.Status}
	if key.route == "" {
		key.route = noRoute
	}
	q.counters.get(key, q.counter).Inc()
	route := q.routes.get(key.route, q.route)
	if !r.Upgraded {
		route.duration.Observe(r.Duration.Seconds())
	}
	route.received.Add(float64(max(r.BytesIn, 0)))
	route.sent.Add(float64(max(r.BytesOut, 0)))
}

func (q *requests) counter(k requestKey) prometheus.Counter {
	return q.total.WithLabelValues(label(k.route), k.method, codeLabel(k.code))
}

func (q *requests) route(name string) routeHandles {
	l := label(name)
	return routeHandles{q.duration.WithLabelValues(l), q.received.WithLabelValues(l), q.sent.WithLabelValues(l)}
}

// codeLabel bounds what a backend can make a label of.
func codeLabel(code int) string {
	if code < 100 || code > 599 {
		return "other"
	}
	return strconv.Itoa(code)
}

// handles finds the series of a key without hashing label values and without
// a lock that readers share: the map is replaced, never written to.
type handles[K comparable, V any] struct {
	m  atomic.Pointer[map[K]V]
	mu sync.Mutex // of those who replace it
}

func (h *handles[K, V]) get(k K, make func(K) V) V {
	if m := h.m.Load(); m != nil {
		if v, ok := (*m)[k]; ok {
			return v
		}
	}
	return h.add(k, make)
}

func (h *handles[K, V]) add(k K, make func(K) V) V {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[K]V{}
	if m := h.m.Load(); m != nil {
		if v, ok := (*m)[k]; ok {
			return v
		}
		for k, v := range *m {
			next[k] = v
		}
	}
	v := make(k)
	next[k] = v
	h.m.Store(&next)
	return v
}
