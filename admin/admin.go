// Package admin answers people and programs that look after a running proxy:
// health and readiness, metrics, the whole state as JSON, a page that shows it
// live, and the controls reload, quit and session revocation.
//
//	h, err := admin.New(admin.Options{Status: status, Metrics: metrics, Ready: ready})
//	http.Serve(loopback, h)
//
// It belongs on a listener of its own that only the machine itself can reach:
// who reaches it may read everything and use the controls. What it defends
// against is the operator's own browser being used by a web page from
// elsewhere: requests whose Host is a foreign name are refused (DNS
// rebinding), so are writes from another origin, and no answer may be read by
// one, framed, or cached.
//
// Everything it tells comes from functions in its [Options], called for each
// request; it keeps no state and starts no goroutine. It does not authenticate
// and does not speak TLS.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/tlsproxy/tlsproxy/session"
)

// Options of [New]. Status is required; without one of the other functions
// what it would serve answers 404.
type Options struct {
	// Status returns the state of now, without the parts that this package
	// fills in itself (see [Status]).
	Status func() Status

	// NotReady returns why the proxy should get no traffic, in words, such
	// as "starting" or "draining"; nothing means that it is ready. nil:
	// always ready.
	NotReady func() []string

	// RequireMustStaple makes the proxy not ready while a served certificate
	// that asks for a staple (RFC 7633) has no valid one.
	RequireMustStaple bool

	// RequireExpiry makes the proxy not ready while a certificate has less
	// than this left, or none was obtained yet. Zero: off.
	RequireExpiry time.Duration

	// Metrics serves /metrics.
	Metrics http.Handler

	// Reload loads the configuration anew and returns when it is in force,
	// or an error that says why it is not and the old one serves on.
	Reload func(context.Context) error

	// Quit begins the shutdown that SIGTERM begins, and returns at once.
	Quit func()

	// Revoke ends sessions; see [session.Resumer.Revoke].
	Revoke func(context.Context, session.Subject) error

	// Sites returns the names of the sites there are, so that a misspelled
	// one is an error instead of a revocation of nothing. nil: unchecked.
	Sites func() []string

	// Hosts are names under which the listener is reached, beside IP
	// addresses and localhost. Lower case, without port.
	Hosts []string

	// AllowRemote serves /metrics under any host name, for collectors that
	// reach it through service discovery.
	AllowRemote bool

	// Logger gets a line for each use of a control. nil: [slog.Default].
	Logger *slog.Logger

	// Now is the clock of readiness and uptime. nil: [time.Now].
	Now func() time.Time
}

// handler serves all paths from its options.
type handler struct {
	opts Options
	log  *slog.Logger
	now  func() time.Time
}

// New returns the handler of the admin listener.
func New(opts Options) (http.Handler, error) {
	if opts.Status == nil {
		return nil, errors.New("admin: Options.Status is missing")
	}
	if opts.RequireExpiry < 0 {
		return nil, errors.New("admin: Options.RequireExpiry is negative")
	}
	h := &handler{opts: opts, log: opts.Logger, now: opts.Now}
	if h.log == nil {
		h.log = slog.Default()
	}
	if h.now == nil {
		h.now = time.Now
	}
	return h.guard(h.routes()), nil
}

// routes maps paths to handlers. A known path with a wrong method is 405.
func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage("index.html"))
	mux.HandleFunc("GET /assets/dashboard.js", servePage("dashboard.js"))
	mux.HandleFunc("GET /assets/dashboard.css", servePage("dashboard.css"))
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.HandleFunc("GET /api/status", h.status)
	if h.opts.Metrics != nil {
		mux.Handle("GET /metrics", h.opts.Metrics)
	}
	if h.opts.Reload != nil {
		mux.HandleFunc("POST /api/reload", h.reload)
	}
	if h.opts.Quit != nil {
		mux.HandleFunc("POST /api/quit", h.quit)
	}
	if h.opts.Revoke != nil {
		mux.HandleFunc("POST /api/sessions/revoke", h.revoke)
	}
	return mux
}

// healthz says that the process is alive; whether it should get traffic is
// the question of readyz.
func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
