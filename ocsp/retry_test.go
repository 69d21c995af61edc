package ocsp

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestNoPauseOutlastsTheStaple: whatever pause a responder asks for or its
// failures bring, a responder that works again before the staple's end renews it.
func TestNoPauseOutlastsTheStaple(t *testing.T) {
	for name, refusal := range map[string]struct {
		life, back time.Duration // of the responses, and when the responder works again
		handler    http.Handler
	}{
		"Retry-After":  {20 * time.Hour, 18 * time.Hour, failing(503, "Retry-After", "86400")},
		"unauthorized": {4 * time.Hour, 3 * time.Hour, always([]byte{0x30, 0x03, 0x0a, 0x01, 0x06})},
		"back-off":     {30 * time.Minute, 22 * time.Minute, failing(500)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newCA(t, pki.CAOptions{})
				cert := issue(t, ca, pki.Request{
					Names: []string{"a.test"}, OCSPServers: []string{responderURL}, NotBefore: time.Now().Add(-48 * time.Hour),
				})
				responder := pki.NewResponder(ca, pki.ResponderOptions{Validity: refusal.life})
				r := start(t, Options{})
				defer r.stop(t)
				r.net.set("ocsp.test", responder)
				begin := time.Now()
				r.prepare(t, cert)
				advance(time.Second)
				r.net.set("ocsp.test", refusal.handler)
				for time.Since(begin) < 2*refusal.life {
					if r.served(t, cert) == nil {
						t.Fatalf("not stapled after %v: %+v", time.Since(begin), r.statusOf(t, "a.test"))
					}
					advance(time.Minute)
					if time.Since(begin) > refusal.back {
						r.net.set("ocsp.test", responder)
					}
				}
				if n := len(r.net.requests("ocsp.test")); n > 40 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}
