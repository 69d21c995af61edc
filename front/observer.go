package front

import (
	"net/netip"
	"time"

	"github.com/tlsproxy/tlsproxy/session"
)

// Observer is told of each connection whose handshake ended, well or not. It is
// called by many goroutines at once and must not block.
type Observer interface {
	Handshake(Handshake)
}

// Handshake is the end of a connection's handshake.
type Handshake struct {
	// Listener and Site are from the configuration; Site is "" when the
	// connection ended before one was picked.
	Listener, Site string
	// Reason is why it failed, "" when it did not.
	Reason Reason
	// Err is the cause of a failure, for a log.
	Err error
	// Version is "1.2" or "1.3", "" when none was negotiated.
	Version string
	// Resumed reports whether a session was resumed.
	Resumed bool
	// Session says how the lookup for a session went.
	Session session.Result
	// Curve is the key exchange's name, "" when none was negotiated.
	Curve string
	// Duration is the time from the first byte of TLS to the end.
	Duration time.Duration
	// Client is the client's address; not for a label.
	Client netip.Addr
}
