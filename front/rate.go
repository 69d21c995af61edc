package front

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tlsproxy/tlsproxy/cache"
)

// rateClients is how many clients' rates are remembered. Beyond it the least
// recent ones are forgotten, which gives them a fresh burst: a flood from very
// many addresses is beyond what a limit per address can hold.
const rateClients = 65536

// rateLimiter bounds the handshakes of each client address.
type rateLimiter struct {
	mu       sync.Mutex
	limit    rate.Limit // 0: no limit
	burst    int
	limiters *cache.Cache[netip.Addr, *rate.Limiter]
}

func newRateLimiter() (*rateLimiter, error) {
	limiters, err := cache.New(cache.Options[netip.Addr, *rate.Limiter]{Capacity: rateClients})
	if err != nil {
		return nil, err
	}
	return &rateLimiter{limiters: limiters}, nil
}

// set changes the limit for everybody. Clients start afresh if it differs.
func (r *rateLimiter) set(perSecond float64, burst int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit == rate.Limit(perSecond) && r.burst == burst {
		return
	}
	r.limit, r.burst = rate.Limit(perSecond), burst
	r.limiters.Clear()
}

// allow reports whether the client may make a handshake now.
func (r *rateLimiter) allow(client netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit <= 0 {
		return true
	}
	l, ok := r.limiters.Get(client)
	if !ok {
		l = rate.NewLimiter(r.limit, r.burst)
	}
	// A client that stays away until its burst is full again need not be
	// remembered: a fresh limiter says the same.
	r.limiters.PutFor(client, l, r.refill())
	return l.Allow()
}

// refill is how long an empty burst takes to fill.
func (r *rateLimiter) refill() time.Duration {
	seconds := float64(r.burst) / float64(r.limit)
	const longest = 24 * time.Hour
	if seconds >= longest.Seconds() {
		return longest
	}
	return time.Duration(seconds*float64(time.Second)) + time.Second
}
