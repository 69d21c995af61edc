// Package metrics gives the proxy's measurements their Prometheus names.
//
// Two kinds of numbers meet here. What needs a histogram or happens in a flow
// of events is pushed: a [Metrics] is the observer of front and proxy. All
// else is pulled when a collector comes by, from the same Stats and Status
// functions that the admin page reads, so that the two cannot disagree:
//
//	m := metrics.New(metrics.Options{Version: version, Sessions: resumer.Stats})
//	http.Handle("/metrics", m.Handler())
//
// Every name begins with tlsproxy_, besides those of the Go runtime and the
// process. Every label value comes from the configuration or from a closed
// set, never from a client: certificates obtained on demand share one value,
// methods that nobody registered are OTHER, requests that match no route
// are "none".
//
// The package measures nothing itself, keeps no history, and knows no alert;
// those are suggested in deploy/prometheus.
package metrics

import (
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/proxy"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/store"
	"github.com/tlsproxy/tlsproxy/upstream"
)

const namespace = "tlsproxy"

// Options of [New]: where to pull from. A nil function leaves its metrics out.
// All are called for each scrape, from several goroutines at once.
type Options struct {
	Version  string // of the program; "" means "unknown"
	Revision string // of its source; "" means "unknown"

	Front        func() front.Stats
	Upgraded     func() int // upgraded connections now, which Front counts as open
	Sessions     func() session.Stats
	OCSP         func() ocsp.Stats
	Staples      func() []ocsp.CertificateStatus // needs Certificates too, which names them
	ClientOCSP   func() ocsp.CheckerStats        // the checks of client certificates, with their cache
	Certificates func() []certs.Status
	CertStats    func() certs.Stats
	Memory       func() memwatch.Status
	ClientAuth   func() []ClientAuth
	Upstreams    func() []upstream.Status
	Store        func() store.Status
	AccessLog    func() proxy.AccessLogStats
	Config       func() ConfigStats

	// Logger gets errors of collecting. nil: [slog.Default].
	Logger *slog.Logger
}

// ConfigStats says which configuration is in force and how reloads went.
type ConfigStats struct {
	Generation     uint64    // grows by one with each configuration put in force
	Loaded         time.Time // when the one in force was
	Reloads        uint64    // reloads that succeeded
	ReloadFailures uint64    // reloads that did not
	LastFailed     bool      // the last reload was refused
}

// ClientAuth is the state of one site's client authentication.
type ClientAuth struct {
	Site      string
	Available bool      // false: a CA, CRL or allow-list file is broken and the site refuses everybody
	CRLExpiry time.Time // the earliest nextUpdate of its CRLs; zero: it has none
	SoftFails uint64    // connections let in without an answer of the OCSP responder (OCSP soft)
}

// Metrics observes events and serves /metrics. Make it with [New]; it is safe
// for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	log        *slog.Logger
	requests   *requests
	handshakes *handshakes
}

// New makes the registry and everything in it.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), log: o.Logger}
	if m.log == nil {
		m.log = slog.Default()
	}
	m.requests = newRequests(m.registry)
	m.handshakes = newHandshakes(m.registry)
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(o.Version, o.Revision),
	)
	for _, c := range pulled(o) {
		m.registry.MustRegister(c)
	}
	return m
}

// pulled are the collectors of what there is to pull from.
func pulled(o Options) []prometheus.Collector {
	var all []prometheus.Collector
	add := func(there bool, make func() prometheus.Collector) {
		if there {
			all = append(all, make())
		}
	}
	add(o.Front != nil, func() prometheus.Collector { return frontCollector(o.Front, o.Upgraded) })
	add(o.Sessions != nil, func() prometheus.Collector { return sessionCollector(o.Sessions) })
	add(o.OCSP != nil, func() prometheus.Collector { return ocspCollector(o.OCSP) })
	add(o.ClientOCSP != nil, func() prometheus.Collector { return clientOCSPCollector(o.ClientOCSP) })
	add(o.Certificates != nil, func() prometheus.Collector { return certificateCollector(o.Certificates, o.Staples) })
	add(o.CertStats != nil, func() prometheus.Collector { return certStatsCollector(o.CertStats) })
	add(o.Memory != nil, func() prometheus.Collector { return memoryCollector(o.Memory) })
	add(o.ClientAuth != nil, func() prometheus.Collector { return clientAuthCollector(o.ClientAuth) })
	add(o.Upstreams != nil, func() prometheus.Collector { return upstreamCollector(o.Upstreams) })
	add(o.Store != nil, func() prometheus.Collector { return storeCollector(o.Store) })
	add(o.AccessLog != nil, func() prometheus.Collector { return accessLogCollector(o.AccessLog) })
	add(o.Config != nil, func() prometheus.Collector { return configCollector(o.Config) })
	if caches := cacheSources(o); len(caches) > 0 {
		all = append(all, cacheCollector(caches))
	}
	return all
}

// Handler serves the metrics in the formats that Prometheus asks for. What can
// be collected is served even when something else cannot.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry:          m.registry,
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelError),
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		// Scrapes cost time on machines that have better things to do.
		MaxRequestsInFlight: 4,
	})
}

// Gatherer gives access to all metrics, for tests and for other formats.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

func buildInfo(version, revision string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info",
		Help: "A constant 1, labelled with the version, the source revision and the Go version of the program.",
	}, []string{"version", "revision", "goversion"})
	orUnknown := func(s string) string {
		if s == "" {
			return "unknown"
		}
		return label(s)
	}
	g.WithLabelValues(orUnknown(version), orUnknown(revision), runtime.Version()).Set(1)
	return g
}
