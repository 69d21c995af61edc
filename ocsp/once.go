package ocsp

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"time"
)

// FetchOptions configures [Fetch]. The zero value works.
type FetchOptions struct {
	Responder string            // asked instead of the responders that the certificate names, if not ""
	Timeout   time.Duration     // of one exchange; 0 means 5 s
	Transport http.RoundTripper // nil means one with deadlines and the environment's proxies, as in [Options]
}

// Fetch asks for a response about leaf, which issuer issued, once and now, by
// the rules that a [Stapler] follows, and verifies it.
func Fetch(ctx context.Context, leaf, issuer *x509.Certificate, o FetchOptions) (*Response, error) {
	if o.Responder != "" {
		if err := checkURL(o.Responder); err != nil {
			return nil, err
		}
		c := *leaf
		c.OCSPServer = []string{o.Responder}
		leaf = &c
	}
	t, err := endpoints{}.target(leaf, issuer)
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(o.Timeout, defaultTimeout)
	transport := o.Transport
	if transport == nil {
		own := newTransport(timeout, 1, nil)
		defer own.CloseIdleConnections()
		transport = own
	}
	f := newFetcher(transport, 1, timeout)
	f.now, f.log = wallClock(nil), slog.New(slog.DiscardHandler)
	return f.fetch(ctx, t, nil)
}
