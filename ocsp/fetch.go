package ocsp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxGET is the length of the URL, request included, up to which GET is used
// (RFC 5019, section 5).
const maxGET = 255

// maxRetryAfter bounds what a Retry-After header can do.
const maxRetryAfter = 24 * time.Hour

// fetcher asks responders. It is what a [Stapler] and a [ClientChecker] have
// in common.
type fetcher struct {
	client     *http.Client
	timeout    time.Duration // of one exchange
	now        func() time.Time
	log        *slog.Logger
	responders responders

	mu      sync.Mutex
	results map[Reason]uint64
}

// newFetcher returns a fetcher without clock and logger, which are the
// caller's to set.
func newFetcher(transport http.RoundTripper, slots int, timeout time.Duration) *fetcher {
	return &fetcher{client: newClient(transport), timeout: timeout, responders: responders{slots: slots}}
}

// fetchError is a failed fetch with a hint when to try again.
type fetchError struct {
	err   error
	retry time.Time // not before; zero: no hint
}

func (e *fetchError) Error() string { return e.err.Error() }
func (e *fetchError) Unwrap() error { return e.err }

func retryHint(err error) time.Time {
	if e, ok := errors.AsType[*fetchError](err); ok {
		return e.retry
	}
	return time.Time{}
}

// fetch asks the responders of t in order until one says good or revoked. An
// answer that weigh, which may be nil, has an error for does not count. If ctx
// is done, its error is returned.
func (f *fetcher) fetch(ctx context.Context, t *target, weigh func(*Response) error) (*Response, error) {
	urls := t.urls
	if t.local != nil {
		urls = []string{localURL}
	}
	var unknown *Response
	var failures []error
	for _, u := range urls {
		r, err := f.ask(ctx, t, u, weigh)
		switch {
		case err != nil && stopped(ctx):
			return nil, ctx.Err()
		case err != nil:
			failures = append(failures, fmt.Errorf("%s: %w", u, err))
		case r.Status == Unknown:
			unknown = r
		default:
			return r, nil
		}
	}
	if unknown != nil {
		return unknown, nil
	}
	if len(failures) == 1 {
		return nil, failures[0]
	}
	return nil, errors.Join(failures...)
}

// stopped reports whether the caller gave up, as opposed to a deadline that
// has passed, which speaks against the responder.
func stopped(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// ask asks one responder, under its bounds.
func (f *fetcher) ask(ctx context.Context, t *target, u string, weigh func(*Response) error) (*Response, error) {
	if t.local != nil {
		return f.exchange(ctx, http.MethodPost, t, u, weigh)
	}
	responder := f.responders.get(u)
	if retry, err := responder.acquire(ctx, f.now); err != nil {
		if ReasonOf(err) == ReasonBreakerOpen {
			f.count(ReasonBreakerOpen)
		}
		return nil, &fetchError{err: err, retry: retry}
	}
	r, err := f.getOrPost(ctx, responder, t, u, weigh)
	if err != nil && stopped(ctx) {
		responder.abandon()
		return nil, err
	}
	if until, opened := responder.release(isDown(err), f.now()); opened {
		f.log.Warn("ocsp responder is left alone after repeated failures", "url", u, "until", until, "err", err)
	}
	return r, err
}

// getOrPost asks by GET if the request fits, and once more by POST if that did
// not work and might. A responder that needs POST is remembered.
func (f *fetcher) getOrPost(ctx context.Context, p *responder, t *target, u string, weigh func(*Response) error) (*Response, error) {
	if p.post.Load() || getURL(u, t.request) == "" {
		return f.exchange(ctx, http.MethodPost, t, u, weigh)
	}
	r, err := f.exchange(ctx, http.MethodGet, t, u, weigh)
	if err == nil || !postMayHelp(err) || ctx.Err() != nil {
		return r, err
	}
	r, postErr := f.exchange(ctx, http.MethodPost, t, u, weigh)
	if postErr == nil || !isAnswer(err) && isAnswer(postErr) {
		p.post.Store(true)
		return r, postErr
	}
	return nil, err
}

// isAnswer reports whether err is about an OCSP response, as opposed to none.
func isAnswer(err error) bool {
	switch ReasonOf(err) {
	case ReasonNetwork, ReasonTimeout, ReasonHTTPStatus, ReasonRedirect, ReasonContentEncoding, ReasonTooLarge,
		ReasonMalformed, ReasonMalformedRequest, ReasonBadURL, "":
		return false
	}
	return true
}

// postMayHelp reports whether it is worth repeating by POST what failed by
// GET: not if nobody is there, and not if the responder asked for patience.
func postMayHelp(err error) bool {
	switch ReasonOf(err) {
	case ReasonTimeout, ReasonTryLater:
		return false
	case ReasonNetwork:
		op, ok := errors.AsType[*net.OpError](err)
		return !ok || op.Op != "dial"
	}
	return retryHint(err).IsZero()
}

// isDown reports whether err speaks against the responder as a whole, and not
// only against one certificate's request.
func isDown(err error) bool {
	switch ReasonOf(err) {
	case ReasonNetwork, ReasonTimeout, ReasonTryLater, ReasonInternalError:
		return true
	case ReasonHTTPStatus:
		e, _ := errors.AsType[*Error](err)
		return e.code >= 500 || e.code == http.StatusTooManyRequests
	}
	return false
}

// exchange sends one request and verifies the answer. Its result is counted
// unless ctx is done.
func (f *fetcher) exchange(ctx context.Context, method string, t *target, u string, weigh func(*Response) error) (*Response, error) {
	r, err := f.roundTrip(ctx, method, t, u)
	if err == nil {
		err = r.Usable(f.now())
	}
	if err == nil && weigh != nil {
		err = weigh(r)
	}
	if err != nil && stopped(ctx) {
		return nil, ctx.Err()
	}
	if err != nil {
		f.count(ReasonOf(err))
		return nil, err
	}
	f.count(Reason(r.Status.String()))
	return r, nil
}

func (f *fetcher) roundTrip(ctx context.Context, method string, t *target, u string) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := newRequest(ctx, method, u, t.request)
	if err != nil {
		return nil, &Error{Reason: ReasonBadURL, Err: err}
	}
	client := f.client
	if t.local != nil {
		client = newClient(localTransport{t.local})
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, networkError(err)
	}
	defer resp.Body.Close()
	body, err := readBody(resp)
	if err != nil {
		return nil, f.withRetryAfter(resp, err)
	}
	r, err := Verify(body, t.leaf, t.issuer, f.now())
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == ReasonMalformed {
		e.Detail += fmt.Sprintf(" (content type %.60q, body begins %s)", resp.Header.Get("Content-Type"), firstBytes(body))
	}
	if err != nil {
		return nil, f.withRetryAfter(resp, err)
	}
	return r, nil
}

func newRequest(ctx context.Context, method, u string, request []byte) (*http.Request, error) {
	var body io.Reader
	if method == http.MethodGet {
		u = getURL(u, request)
	} else {
		body = bytes.NewReader(request)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/ocsp-response")
	req.Header.Set("User-Agent", "tlsproxy")
	if body != nil {
		req.Header.Set("Content-Type", "application/ocsp-request")
	}
	return req, nil
}

// getURL returns the URL that asks by GET (RFC 6960, appendix A.1), or "" when
// it must be POST. The base64 alphabet has three characters that mean
// something else in a path; all are escaped.
func getURL(u string, request []byte) string {
	if strings.ContainsAny(u, "?#") {
		return ""
	}
	get := strings.TrimSuffix(u, "/") + "/" + url.QueryEscape(base64.StdEncoding.EncodeToString(request))
	if len(get) > maxGET {
		return ""
	}
	return get
}

func readBody(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		detail := fmt.Sprintf("%d, body begins %s", resp.StatusCode, firstBytes(body))
		return nil, &Error{Reason: ReasonHTTPStatus, Detail: detail, code: resp.StatusCode}
	case resp.Header.Get("Content-Encoding") != "":
		return nil, refuse(ReasonContentEncoding, "%.60q", resp.Header.Get("Content-Encoding"))
	case err != nil:
		return nil, networkError(err)
	case len(body) > maxResponse:
		return nil, refuse(ReasonTooLarge, "more than %d bytes", maxResponse)
	}
	return body, nil
}

// withRetryAfter adds what the header Retry-After says to an error.
func (f *fetcher) withRetryAfter(resp *http.Response, err error) error {
	value := resp.Header.Get("Retry-After")
	if value == "" {
		return err
	}
	now := f.now()
	var wait time.Duration
	if seconds, convErr := strconv.ParseUint(value, 10, 31); convErr == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, timeErr := http.ParseTime(value); timeErr == nil {
		wait = at.Sub(now)
	}
	if wait <= 0 {
		return err
	}
	return &fetchError{err: err, retry: now.Add(min(wait, maxRetryAfter))}
}

func networkError(err error) error {
	reason := ReasonNetwork
	netErr, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errRedirect):
		reason = ReasonRedirect
	case errors.Is(err, context.DeadlineExceeded), ok && netErr.Timeout():
		reason = ReasonTimeout
	}
	// The URL, with the whole request in it, is no help: whoever asked knows it.
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &Error{Reason: reason, Err: err}
}

// firstBytes quotes the beginning of an untrusted body.
func firstBytes(body []byte) string { return fmt.Sprintf("%.48q", body[:min(len(body), 48)]) }

func (f *fetcher) count(r Reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.results == nil {
		f.results = make(map[Reason]uint64)
	}
	f.results[cmp.Or(r, ReasonNetwork)]++
}

func (f *fetcher) counts() map[Reason]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.results)
}
