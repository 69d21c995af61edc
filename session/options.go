package session

import (
	"log/slog"
	"time"
)

// Defaults and bounds of [Options] and [Limits].
const (
	DefaultCapacity           = 20480
	DefaultMaxBytes           = 64 << 20
	DefaultLifetime           = 24 * time.Hour
	MaxLifetime               = 7 * 24 * time.Hour // RFC 8446, section 4.6.1
	DefaultClientAuthLifetime = time.Hour
	DefaultReuseWindow        = 10 * time.Second
	DefaultClientShare        = 0.25
	DefaultStoreTimeout       = 50 * time.Millisecond
	DefaultStoreQueue         = 4096
)

// Values of [Limits.ReuseWindow] beside durations.
const (
	SingleUse time.Duration = -1 // a handle is used up by its first completed resumption
	Unlimited time.Duration = -2 // a handle stays good for its session's life
)

// Limits bound what a [Resumer] keeps. The zero value means the defaults.
type Limits struct {
	// Capacity is the most sessions held. 0: DefaultCapacity.
	Capacity int

	// Lifetime is how long after the original authentication a session may
	// be resumed, over all its resumptions. 0: DefaultLifetime; at most
	// MaxLifetime.
	Lifetime time.Duration

	// ClientAuthLifetime is Lifetime for policies that ask for client
	// certificates; the certificate's NotAfter ends it earlier.
	// 0: DefaultClientAuthLifetime; never longer than Lifetime.
	ClientAuthLifetime time.Duration

	// ReuseWindow is how long a TLS 1.3 handle stays good after its first
	// completed resumption, for a browser's parallel connections.
	// 0: DefaultReuseWindow. SingleUse and Unlimited are the extremes.
	ReuseWindow time.Duration

	// ClientShare is the share of the cache, above 0 to 1, that one client
	// address (IPv6: /64) may hold. Beyond it, the client's own oldest
	// sessions go first. 0: DefaultClientShare; negative: off.
	ClientShare float64
}

// Options of [New]. The zero value is a Resumer with the default limits, in
// memory alone.
type Options struct {
	Limits

	// MaxBytes is the most memory that sessions use, overhead included.
	// 0: DefaultMaxBytes; negative: bounded by Capacity alone.
	MaxBytes int64

	// StateDir is where revocations are kept across restarts (no session
	// and no secret is ever written). "": they are not.
	StateDir string

	// Store shares sessions and revocations with other replicas. nil: none.
	Store Store

	// StoreTimeout is the most that one handshake waits for the Store, all
	// its calls together. 0: DefaultStoreTimeout.
	StoreTimeout time.Duration

	// StoreQueue is how many changes may wait behind the handshakes for the
	// Store; more are dropped and counted. 0: DefaultStoreQueue.
	StoreQueue int

	// Logger gets changes of state, never a line per miss. nil: slog.Default().
	Logger *slog.Logger
}
