package metrics

import (
	"crypto/tls"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/front"
)

var _ front.Observer = (*Metrics)(nil)

// handshakes holds what cannot be pulled of handshakes: their times, and the
// key exchanges they used.
type handshakes struct {
	durations map[handshakeKey]prometheus.Observer
	groups    map[string]prometheus.Counter
	others    prometheus.Counter
}

type handshakeKey struct {
	version string
	resumed bool
}

// otherGroup is the label of a key exchange that is not known here.
const otherGroup = "other"

func newHandshakes(r prometheus.Registerer) *handshakes {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "handshake_duration_seconds",
		Help: "Time from the start of a TLS connection, before its ClientHello, to the end of its handshake, of those that succeeded. " +
			"The client's round trips are in it.",
		Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"version", "resumed"})
	exchanges := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "handshake_key_exchanges_total",
		Help: "Handshakes that succeeded, by key exchange group; none: TLS 1.2 resumption or RSA key exchange.",
	}, []string{"group"})
	r.MustRegister(duration, exchanges)

	h := &handshakes{durations: map[handshakeKey]prometheus.Observer{}, groups: map[string]prometheus.Counter{}}
	for _, version := range versions() {
		for _, resumed := range []bool{false, true} {
			h.durations[handshakeKey{version, resumed}] = duration.WithLabelValues(version, strconv.FormatBool(resumed))
		}
	}
	for _, g := range []tls.CurveID{
		tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024,
		tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521,
	} {
		h.groups[g.String()] = exchanges.WithLabelValues(g.String())
	}
	h.groups[""] = exchanges.WithLabelValues("none")
	h.others = exchanges.WithLabelValues(otherGroup)
	return h
}

// versions are the protocol versions that front tells of.
func versions() []string { return []string{"1.2", "1.3"} }

// Handshake notes the time and the key exchange of a handshake that succeeded;
// it is the method of [front.Observer]. Counts are pulled from [front.Stats].
func (m *Metrics) Handshake(h front.Handshake) {
	if h.Reason != "" {
		return
	}
	d, known := m.handshakes.durations[handshakeKey{h.Version, h.Resumed}]
	if !known {
		return // not a TLS handshake: an ACME challenge, for one
	}
	d.Observe(h.Duration.Seconds())
	if g, known := m.handshakes.groups[h.Curve]; known {
		g.Inc()
		return
	}
	m.handshakes.others.Inc()
}

func frontCollector(read func() front.Stats, upgraded func() int) prometheus.Collector {
	var (
		total       = counter("handshakes_total", "TLS handshakes that succeeded, by protocol version and whether a session was resumed.", "version", "resumed")
		failures    = counter("handshake_failures_total", "Connections that did not reach HTTP, by reason.", "reason")
		connections = gauge("connections", "Connections of clients now: handshaking, waiting (for the HTTP server), active or upgraded.", "state")
		accepted    = counter("connections_accepted_total", "Connections accepted.")
		errors      = counter("connection_accept_errors_total", "Times that accepting a connection failed.")
		full        = counter("connection_limit_waits_total", "Times that a listener began to wait because of a limit on all connections or handshakes.")
		heldBack    = gauge("connections_held_back", "Connections that wait now because of a limit on all connections or handshakes, one at most for each listening socket; more are in the kernel.")
		challenges  = counter("acme_challenge_connections_total", "Connections that were ACME TLS-ALPN challenges.")
	)
	return pull{
		metrics: []metric{total, failures, connections, accepted, errors, full, heldBack, challenges},
		collect: func(emit emit) {
			s := read()
			for _, v := range versions() {
				emit(total, float64(s.Handshakes[v]-s.Resumed[v]), v, "false")
				emit(total, float64(s.Resumed[v]), v, "true")
			}
			for _, r := range front.Reasons() {
				emit(failures, float64(s.Failures[r]), string(r))
			}
			up := 0
			if upgraded != nil {
				up = upgraded()
			}
			emit(connections, float64(s.Handshaking), "handshaking")
			emit(connections, float64(s.Ready), "waiting")
			// The parts are not counted at one instant.
			emit(connections, float64(max(0, s.Open-s.Handshaking-s.Ready-up)), "active")
			emit(connections, float64(up), "upgraded")
			emit(accepted, float64(s.Accepted))
			emit(errors, float64(s.AcceptErrors))
			emit(full, float64(s.Full))
			emit(heldBack, float64(s.HeldBack))
			emit(challenges, float64(s.Challenges))
		},
	}
}
