package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is the name, help and type of a pulled metric.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(namespace+"_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(namespace+"_"+name, help, labels, nil), prometheus.GaugeValue}
}

// emit gives one value to the scrape.
type emit func(m metric, value float64, labels ...string)

// pull is a collector that asks a source when it is scraped.
type pull struct {
	metrics []metric
	collect func(emit)
}

// Describe implements [prometheus.Collector].
func (p pull) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range p.metrics {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (p pull) Collect(ch chan<- prometheus.Metric) {
	p.collect(func(m metric, value float64, labels ...string) {
		for i, l := range labels {
			labels[i] = label(l)
		}
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	})
}

// label makes a string fit to be a label value, which must be UTF-8. Names of
// files, for one, need not be.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// unix is a time as Prometheus writes it, 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
