package proxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// EchoOptions configures [NewEcho].
type EchoOptions struct {
	// ConnInfo finds the client's connection; nil tells nothing of TLS.
	ConnInfo func(context.Context) *Conn
	// MaxBody is how many bytes of the body are told; zero means 64 KiB.
	MaxBody int64
}

// NewEcho returns a backend without a network that answers with what it received:
// method, target, headers, facts of the connection, and the beginning of the body.
// It answers in JSON if the request accepts that and in plain text otherwise.
func NewEcho(opts EchoOptions) http.RoundTripper {
	opts.MaxBody = cmp.Or(opts.MaxBody, 64<<10)
	return echo{opts}
}

type echo struct{ opts EchoOptions }

// echoed is the answer.
type echoed struct {
	Method    string      `json:"method"`
	Target    string      `json:"target"`
	Proto     string      `json:"proto"`
	Host      string      `json:"host"`
	Headers   http.Header `json:"headers"`
	TLS       *echoedTLS  `json:"tls,omitempty"`
	BodyBytes int64       `json:"body_bytes"`
	Body      string      `json:"body,omitempty"` // left out if it is not text
}

type echoedTLS struct {
	Version     string `json:"version"`
	CipherSuite string `json:"cipher_suite"`
	Resumed     bool   `json:"resumed"`
	SNI         string `json:"sni,omitempty"`
	Client      string `json:"client_certificate,omitempty"`
}

// RoundTrip reads the whole body and answers.
func (e echo) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := echoed{
		Method:  r.Method,
		Target:  r.URL.RequestURI(),
		Proto:   r.Proto,
		Host:    r.Host,
		Headers: r.Header,
		TLS:     e.facts(r.Context()),
	}
	if err := answer.readBody(r.Body, e.opts.MaxBody); err != nil {
		return nil, err
	}
	contentType, text := "text/plain; charset=utf-8", answer.text()
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		j, err := json.MarshalIndent(answer, "", "  ")
		if err != nil {
			return nil, err
		}
		contentType, text = "application/json", append(j, '\n')
	}
	return newEchoResponse(r, contentType, text), nil
}

func newEchoResponse(r *http.Request, contentType string, text []byte) *http.Response {
	res := &http.Response{
		StatusCode:    http.StatusOK,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {contentType}, "Cache-Control": {"no-store"}},
		ContentLength: int64(len(text)),
		Body:          io.NopCloser(bytes.NewReader(text)),
		Request:       r,
	}
	res.Header.Set("Content-Length", fmt.Sprint(len(text)))
	if r.Method == http.MethodHead {
		res.Body = http.NoBody
	}
	return res
}

func (e echo) facts(ctx context.Context) *echoedTLS {
	if e.opts.ConnInfo == nil {
		return nil
	}
	c := e.opts.ConnInfo(ctx)
	if c == nil || !c.TLS {
		return nil
	}
	facts := &echoedTLS{
		Version:     tls.VersionName(c.Version),
		CipherSuite: tls.CipherSuiteName(c.CipherSuite),
		Resumed:     c.Resumed,
		SNI:         c.SNI,
	}
	if len(c.ClientChain) > 0 {
		facts.Client = c.ClientChain[0].Subject.String()
	}
	return facts
}

func (a *echoed) readBody(body io.ReadCloser, limit int64) error {
	if body == nil {
		return nil
	}
	defer body.Close()
	head, err := io.ReadAll(io.LimitReader(body, limit))
	if err != nil {
		return err
	}
	rest, err := io.Copy(io.Discard, body)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	a.BodyBytes = int64(len(head)) + rest
	if utf8.Valid(head) {
		a.Body = string(head)
	}
	return nil
}

func (a *echoed) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\nHost: %s\n", a.Method, a.Target, a.Proto, a.Host)
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		for _, v := range a.Headers[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	if t := a.TLS; t != nil {
		fmt.Fprintf(&b, "\n%s, %s, resumed: %t, SNI: %s\n", t.Version, t.CipherSuite, t.Resumed, cmp.Or(t.SNI, "none"))
		if t.Client != "" {
			fmt.Fprintf(&b, "client certificate: %s\n", t.Client)
		}
	}
	fmt.Fprintf(&b, "\nbody: %d bytes\n", a.BodyBytes)
	if a.Body != "" {
		fmt.Fprintf(&b, "%s\n", a.Body)
	}
	return b.Bytes()
}
