package admin

import (
	"net/http"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/front"
	"github.com/tlsproxy/tlsproxy/internal/memwatch"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/session"
	"github.com/tlsproxy/tlsproxy/upstream"
)

// Status is the state of the whole program, as GET /api/status tells it.
// Options.Status fills everything but Now, UptimeSeconds, Ready, NotReady and
// Runtime. Field names are part of the API; durations whose name says no unit
// are in nanoseconds.
type Status struct {
	Version       string    `json:"version"`
	Started       time.Time `json:"started"`
	Now           time.Time `json:"now"`
	UptimeSeconds float64   `json:"uptime_seconds"`

	Ready    bool     `json:"ready"`
	NotReady []string `json:"not_ready"` // why not, in words
	Draining bool     `json:"draining"`

	Config    Config         `json:"config"`
	Listeners []front.Status `json:"listeners"`
	HTTP      []string       `json:"http"`     // addresses of the plain HTTP listener
	Admin     []string       `json:"admin"`    // addresses of this listener
	Front     front.Stats    `json:"front"`    // connections and handshakes
	Upgraded  int            `json:"upgraded"` // upgraded connections now; among front.open

	Certificates     []certs.Status           `json:"certificates"`
	CertificateStats certs.Stats              `json:"certificate_stats"`
	Staples          []ocsp.CertificateStatus `json:"staples"`
	OCSP             ocsp.Stats               `json:"ocsp"`
	Sessions         session.Status           `json:"sessions"`
	ClientAuth       []ClientAuth             `json:"client_auth"`
	Caches           []Cache                  `json:"caches"`
	Memory           memwatch.Status          `json:"memory"` // and what was dropped because it was short
	Upstreams        []upstream.Status        `json:"upstreams"`
	Store            *Store                   `json:"store"` // null: no shared store is configured

	Runtime Runtime `json:"runtime"`
}

// Config says which configuration is in force and how the last reload went.
type Config struct {
	Path       string    `json:"path"`
	Generation uint64    `json:"generation"` // grows by one with each configuration put in force
	Loaded     time.Time `json:"loaded"`     // when the one in force was

	Reloads        uint64    `json:"reloads"`         // that succeeded
	ReloadFailures uint64    `json:"reload_failures"` // that did not
	LastReload     time.Time `json:"last_reload,omitzero"`
	LastReloadOK   bool      `json:"last_reload_ok"`
	LastError      string    `json:"last_error,omitempty"` // why the last reload was refused
}

// Cache is one cache of the program, whatever it holds.
type Cache struct {
	Name      string            `json:"name"` // as in the label cache of the metrics
	Entries   int               `json:"entries"`
	Capacity  int               `json:"capacity"` // 0: unbounded
	Bytes     int64             `json:"bytes"`
	MaxBytes  int64             `json:"max_bytes"` // 0: unbounded
	Hits      uint64            `json:"hits"`
	Misses    uint64            `json:"misses"`
	Evictions map[string]uint64 `json:"evictions"` // by reason
	Scans     uint64            `json:"scans"`     // searches for expired entries
}

// ClientAuth is the state of one site's client authentication.
type ClientAuth struct {
	Site      string    `json:"site"`
	Mode      string    `json:"mode"`
	Available bool      `json:"available"`           // false: the site refuses every client
	Error     string    `json:"error,omitempty"`     // why
	Loaded    time.Time `json:"loaded,omitzero"`     // when the rules in force were read
	CRLExpiry time.Time `json:"crl_expiry,omitzero"` // earliest nextUpdate of its CRLs; zero: it has none
	Details   any       `json:"details,omitempty"`   // what else there is to say
}

// Store is the shared store.
type Store struct {
	Up        bool      `json:"up"`
	State     string    `json:"state"` // of its circuit breaker: closed, open or half_open
	LastError string    `json:"last_error,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Details   any       `json:"details,omitempty"` // what else there is to say: servers, keys, calls
}

// Runtime is what the process uses.
type Runtime struct {
	GoVersion  string `json:"go_version"`
	Goroutines int    `json:"goroutines"`
	HeapBytes  uint64 `json:"heap_bytes"` // live and not yet collected objects
	CPUs       int    `json:"cpus"`       // that Go code may use at once
}

// status serves the state as JSON.
func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, h.snapshot())
}

// snapshot is the state of now with this package's own parts filled in.
func (h *handler) snapshot() Status {
	s := h.opts.Status()
	s.Now = h.now()
	s.UptimeSeconds = s.Now.Sub(s.Started).Seconds()
	s.NotReady = h.notReady(s)
	s.Ready = len(s.NotReady) == 0
	s.Runtime = readRuntime()
	return s
}

func readRuntime() Runtime {
	// Unlike runtime.ReadMemStats this does not stop the world.
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	return Runtime{
		GoVersion:  runtime.Version(),
		Goroutines: runtime.NumGoroutine(),
		HeapBytes:  samples[0].Value.Uint64(),
		CPUs:       runtime.GOMAXPROCS(0),
	}
}
