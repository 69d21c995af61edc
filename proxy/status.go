package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/tlsproxy/tlsproxy/upstream"
)

// StatusClientClosed is recorded for requests whose client went away before there
// was a response. Nobody receives it.
const StatusClientClosed = 499

// Errors that the proxy answers without asking a backend.
var (
	errNoHost       = errors.New("the request names no host")
	errBadHost      = errors.New("the Host of the request is not valid")
	errHostMismatch = errors.New("the Host header and :authority differ")
	errNoSite       = errors.New("no site for this host")
	errMisdirected  = errors.New("this host is not served on this connection")
	errMethod       = errors.New("this method is not supported")
	errBodyTooLarge = errors.New("the request body is too large")
)

// errServerOptions is no failure: OPTIONS * asks the server itself, which has no
// route (RFC 9110, section 9.3.7).
var errServerOptions = errors.New("the request asks for the options of the server")

// allowed are the methods that are not refused.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// clientError is a failure to read the request body, which is the client's doing.
type clientError struct{ err error }

func (e *clientError) Error() string { return "reading the request body: " + e.err.Error() }
func (e *clientError) Unwrap() error { return e.err }

// statusOf is the one place that turns an error into a status and a sentence for the
// client, which tells nothing of the backend.
func statusOf(ctx context.Context, err error) (status int, text string) {
	_, byClient := errors.AsType[*clientError](err)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case errors.Is(err, errNoSite), errors.Is(err, errNoRoute):
		return http.StatusNotFound, err.Error()
	case errors.Is(err, errMisdirected):
		return http.StatusMisdirectedRequest, err.Error()
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed, err.Error()
	case tooLarge || errors.Is(err, errBodyTooLarge):
		return http.StatusRequestEntityTooLarge, errBodyTooLarge.Error()
	case isBadRequest(err):
		return http.StatusBadRequest, err.Error()
	case byClient && errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, "the request body did not arrive in time"
	case ctx.Err() != nil, byClient && errors.Is(err, io.ErrUnexpectedEOF):
		return StatusClientClosed, "the client closed the connection"
	case byClient:
		return http.StatusBadRequest, "the request body is malformed"
	case errors.Is(err, upstream.ErrUnavailable), errors.Is(err, upstream.ErrBusy):
		return http.StatusServiceUnavailable, "no backend can take the request now"
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusGatewayTimeout, "the backend did not answer in time"
	}
	return http.StatusBadGateway, "the backend did not answer properly"
}

func isBadRequest(err error) bool {
	for _, bad := range []error{errNoHost, errBadHost, errHostMismatch, errBadTarget, errAmbiguousPath} {
		if errors.Is(err, bad) {
			return true
		}
	}
	return false
}

// writeError answers with a status, a sentence and the ID to ask an operator about.
func writeError(w http.ResponseWriter, status int, text, requestID string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if status == http.StatusMethodNotAllowed {
		h.Set("Allow", allowed)
	}
	w.WriteHeader(status)
	title := http.StatusText(status)
	if status == StatusClientClosed {
		title = "Client Closed Request"
	}
	fmt.Fprintf(w, "%d %s: %s\nrequest %s\n", status, title, text, requestID)
}
