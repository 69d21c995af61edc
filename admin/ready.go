package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/ocsp"
)

// readyz says whether the proxy should get traffic: 200, or 503 with one
// reason a line.
func (h *handler) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var s Status
	if h.opts.RequireExpiry > 0 || h.opts.RequireMustStaple {
		s = h.opts.Status() // the rest of the time, reasons need no status
	}
	if reasons := h.notReady(s); len(reasons) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "not ready\n%s\n", strings.Join(reasons, "\n"))
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// notReady collects the reasons for getting no traffic.
func (h *handler) notReady(s Status) []string {
	reasons := []string{}
	if h.opts.NotReady != nil {
		reasons = append(reasons, h.opts.NotReady()...)
	}
	if h.opts.RequireExpiry > 0 {
		reasons = append(reasons, h.expiring(s)...)
	}
	if h.opts.RequireMustStaple {
		reasons = append(reasons, unstapled(s)...)
	}
	return reasons
}

// expiring names the certificates that have too little time left to be served.
// Those that are shown to backends are no reason to send clients elsewhere.
func (h *handler) expiring(s Status) []string {
	var reasons []string
	for _, c := range s.Certificates {
		if c.Source == certs.SourceClient {
			continue
		}
		left := c.NotAfter.Sub(h.now())
		switch {
		case c.NotAfter.IsZero():
			reasons = append(reasons, fmt.Sprintf("certificate %s: not obtained yet", c.Name))
		case left <= 0:
			reasons = append(reasons, fmt.Sprintf("certificate %s: expired at %s", c.Name, c.NotAfter.UTC().Format(time.RFC3339)))
		case left < h.opts.RequireExpiry:
			reasons = append(reasons, fmt.Sprintf("certificate %s: expires at %s, in less than %s",
				c.Name, c.NotAfter.UTC().Format(time.RFC3339), h.opts.RequireExpiry))
		}
	}
	return reasons
}

// unstapled names the served certificates that ask for a staple and have none.
func unstapled(s Status) []string {
	good := map[string]bool{}
	for _, st := range s.Staples {
		good[st.Certificate] = st.State == ocsp.StateGood
	}
	var reasons []string
	for _, c := range s.Certificates {
		if c.MustStaple && !good[c.Fingerprint] {
			reasons = append(reasons, fmt.Sprintf("certificate %s: must-staple, and no valid staple", c.Name))
		}
	}
	return reasons
}
