package ocsp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const maxRedirects = 3

// newTransport returns a transport with a deadline at each step of an
// exchange that lasts timeout at most, for the given number of exchanges at a
// time with one responder.
func newTransport(timeout time.Duration, slots int, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            (&net.Dialer{Timeout: timeout * 3 / 5}).DialContext,
		TLSHandshakeTimeout:    timeout * 3 / 5,
		ResponseHeaderTimeout:  timeout * 4 / 5,
		DisableCompression:     true, // 64 KiB must mean 64 KiB
		MaxResponseHeaderBytes: 16 << 10,
		MaxIdleConnsPerHost:    (slots + 3) / 4,
		MaxIdleConns:           4 * slots,
		IdleConnTimeout:        30 * time.Second,
		MaxConnsPerHost:        2 * slots,
	}
}

// errRedirect marks a redirect that is not followed.
var errRedirect = errors.New("redirect not followed")

func newClient(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: checkRedirect}
}

// checkRedirect decides about a redirect and has the request made as it was: on
// 301 and 302 the library would turn POST into GET, without the question.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d", errRedirect, maxRedirects)
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fmt.Errorf("%w: to %.80q", errRedirect, req.URL.Redacted())
	}
	last := via[len(via)-1]
	if last.Method == req.Method || req.Response.StatusCode == http.StatusSeeOther {
		return nil
	}
	body, err := last.GetBody()
	if err != nil {
		return err
	}
	req.Method, req.Body, req.GetBody, req.ContentLength = last.Method, body, last.GetBody, last.ContentLength
	req.Header.Set("Content-Type", last.Header.Get("Content-Type"))
	return nil
}

// localURL stands for a responder within this process.
const localURL = "http://ocsp.invalid/"

// localTransport carries requests to a handler within this process.
type localTransport struct{ handler http.Handler }

func (t localTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	w := &localWriter{header: make(http.Header), code: http.StatusOK}
	if req.Body == nil { // a handler may rely on a body
		req = req.Clone(req.Context())
		req.Body = http.NoBody
	}
	t.handler.ServeHTTP(w, req)
	return &http.Response{
		StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: req,
	}, nil
}

type localWriter struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (w *localWriter) Header() http.Header         { return w.header }
func (w *localWriter) WriteHeader(code int)        { w.code = code }
func (w *localWriter) Write(p []byte) (int, error) { return w.body.Write(p) }
