package ocsp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
)

const (
	defaultAnswers      = 4096
	defaultCheckTimeout = time.Second
	failureLife         = 10 * time.Second // how long a failed check is remembered
	revokedLife         = 24 * time.Hour   // how long a revocation is remembered at least
)

// CheckerOptions configures a [ClientChecker]. The zero value works.
type CheckerOptions struct {
	Capacity  int                                         // answers held; 0 means 4096
	Timeout   time.Duration                               // of one check that is not answered from the cache; 0 means 1 s
	Overrides map[string]string                           // as in [Options]
	Proxy     func(*http.Request) (*url.URL, error)       // as in [Options]
	Transport http.RoundTripper                           // as in [Options]
	Local     func(issuer *x509.Certificate) http.Handler // as in [Options]
	Now       func() time.Time                            // the wall clock; nil means time.Now
	Logger    *slog.Logger                                // nil means slog.Default()
}

// CheckError is why [ClientChecker.Check] did not find a certificate good.
type CheckError struct {
	Status Status // Revoked, Unknown, or 0: no usable answer
	Reason Reason // of the refusal
	Err    error  // the details
}

// Error says what was found.
func (e *CheckError) Error() string { return "ocsp: " + e.Err.Error() }

// Unwrap returns the details.
func (e *CheckError) Unwrap() error { return e.Err }

// Revoked reports whether the certificate is revoked. If it is not, no answer
// was to be had, or the responder does not know the certificate.
func (e *CheckError) Revoked() bool { return e.Status == Revoked }

// CheckerStats are counters since the start and gauges of now.
type CheckerStats struct {
	Checks  map[string]uint64 `json:"checks"`  // by result: good, revoked, unknown, unavailable
	Fetches map[Reason]uint64 `json:"fetches"` // exchanges with responders by result
	Cache   cache.Stats       `json:"cache"`
}

// ClientChecker asks responders about client certificates and remembers their
// answers in a cache of its own. It is safe for concurrent use and starts no
// goroutine.
type ClientChecker struct {
	opts      CheckerOptions
	endpoints endpoints
	fetcher   *fetcher
	answers   *cache.Cache[[32]byte, *checked]

	mu      sync.Mutex
	flights map[[32]byte]*flight
	checks  map[string]uint64
}

// checked is what is remembered about one certificate: not the response, which with
// its parsed signer takes kilobytes that nobody asks for again.
type checked struct {
	err     error     // nil: good
	expires time.Time // by the wall clock
}

// flight is a check under way that others wait for.
type flight struct {
	done   chan struct{}
	result *checked // set before done is closed
}

// NewClientChecker returns a checker. It contacts nothing.
func NewClientChecker(o CheckerOptions) (*ClientChecker, error) {
	if o.Timeout < 0 {
		return nil, fmt.Errorf("ocsp: timeout %v of a client certificate check is negative", o.Timeout)
	}
	if err := checkOverrides(o.Overrides); err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, defaultCheckTimeout)
	o.Now = wallClock(o.Now)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	answers, err := cache.New(cache.Options[[32]byte, *checked]{Capacity: cmp.Or(o.Capacity, defaultAnswers), Weigh: weighChecked})
	if err != nil {
		return nil, err
	}
	transport := o.Transport
	if transport == nil {
		transport = newTransport(o.Timeout, checkSlots, o.Proxy)
	}
	f := newFetcher(transport, checkSlots, o.Timeout)
	f.now, f.log = o.Now, o.Logger
	return &ClientChecker{
		opts:      o,
		endpoints: endpoints{overrides: o.Overrides, local: o.Local},
		fetcher:   f,
		answers:   answers,
		flights:   make(map[[32]byte]*flight),
		checks:    make(map[string]uint64),
	}, nil
}

// weighChecked counts the structs that an answer is made of, and its error's text.
func weighChecked(_ [32]byte, c *checked) int64 {
	const good, bad = 48, 128
	if c.err == nil {
		return good
	}
	return good + bad + int64(len(c.err.Error()))
}

// Check returns nil when leaf, issued by issuer, is good. Otherwise the error
// is a *[CheckError]; a certificate that names no responder gives
// [ReasonNoResponder]. It returns after the timeout at the latest. Answers are
// remembered until they expire, failures for ten seconds.
func (c *ClientChecker) Check(ctx context.Context, leaf, issuer *x509.Certificate) error {
	key := checkKey(leaf, issuer)
	result, ok := c.answers.Get(key)
	if !ok || !c.opts.Now().Before(result.expires) {
		result = c.ask(ctx, key, leaf, issuer)
	}
	c.count(result.err)
	return result.err
}

// checkKey identifies a certificate together with the issuer that vouches for
// it: the same leaf under another issuer is another question.
func checkKey(leaf, issuer *x509.Certificate) [32]byte {
	h := sha256.New()
	h.Write(leaf.Raw)
	if issuer != nil {
		h.Write(issuer.RawSubjectPublicKeyInfo)
	}
	return [32]byte(h.Sum(nil))
}

// ask fetches an answer, or waits for the caller that is fetching it.
func (c *ClientChecker) ask(ctx context.Context, key [32]byte, leaf, issuer *x509.Certificate) *checked {
	c.mu.Lock()
	f, waiting := c.flights[key]
	if !waiting {
		f = &flight{done: make(chan struct{})}
		c.flights[key] = f
	}
	c.mu.Unlock()
	if !waiting {
		c.lead(ctx, f, key, leaf, issuer)
	}
	select {
	case <-f.done:
		return f.result
	case <-ctx.Done():
		return &checked{err: checkError(nil, &Error{Reason: ReasonTimeout, Err: ctx.Err()})}
	}
}

// lead fetches the answer that all waiting callers get. That the first of them
// gave up must not spoil it for the others, so only the timeout ends it.
func (c *ClientChecker) lead(ctx context.Context, f *flight, key [32]byte, leaf, issuer *x509.Certificate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Timeout)
	defer cancel()
	f.result = c.fetch(ctx, leaf, issuer)
	c.answers.PutFor(key, f.result, f.result.expires.Sub(c.opts.Now()))
	c.mu.Lock()
	delete(c.flights, key)
	c.mu.Unlock()
	close(f.done)
}

func (c *ClientChecker) fetch(ctx context.Context, leaf, issuer *x509.Certificate) *checked {
	var r *Response
	target, err := c.endpoints.target(leaf, issuer)
	if err == nil {
		r, err = c.fetcher.fetch(ctx, target, nil)
	}
	return newChecked(r, err, c.opts.Now())
}

// newChecked is what to remember of the outcome of a fetch.
func newChecked(r *Response, err error, now time.Time) *checked {
	result := &checked{err: checkError(r, err), expires: now.Add(failureLife)}
	switch {
	case r == nil:
	case r.Status == Good:
		result.expires = r.End
	case r.Status == Revoked:
		result.expires = now.Add(revokedLife)
		if r.onHold() {
			result.expires = r.End
		}
	}
	return result
}

// checkError turns the outcome of a fetch into Check's error.
func checkError(r *Response, err error) error {
	switch {
	case err != nil:
		return &CheckError{Reason: cmp.Or(ReasonOf(err), ReasonTimeout), Err: err}
	case r.Status == Revoked:
		return &CheckError{Status: Revoked, Reason: ResultRevoked, Err: refuse(ResultRevoked, "at %s", stamp(r.RevokedAt))}
	case r.Status == Unknown:
		return &CheckError{Status: Unknown, Reason: ResultUnknown, Err: refuse(ResultUnknown, "")}
	}
	return nil
}

func (c *ClientChecker) count(err error) {
	result := Good.String()
	if e, ok := errors.AsType[*CheckError](err); ok {
		result = "unavailable"
		if e.Status != 0 {
			result = e.Status.String()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks[result]++
}

// Stats returns the counters and gauges.
func (c *ClientChecker) Stats() CheckerStats {
	st := CheckerStats{Checks: make(map[string]uint64), Fetches: c.fetcher.counts(), Cache: c.answers.Stats()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for result, n := range c.checks {
		st.Checks[result] = n
	}
	return st
}
