package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

func (h *Health) validate() error {
	if h.Path == "" {
		return nil
	}
	if !strings.HasPrefix(h.Path, "/") {
		return fmt.Errorf("health path %q does not begin with a slash", h.Path)
	}
	if _, err := url.ParseRequestURI(h.Path); err != nil {
		return fmt.Errorf("health path: %w", err)
	}
	if h.Interval < 0 || h.Timeout < 0 || h.Rise < 0 || h.Fall < 0 {
		return errors.New("health: an interval, timeout or threshold is negative")
	}
	if h.StatusMin < 0 || h.StatusMax < 0 || cmp.Or(h.StatusMax, 399) < cmp.Or(h.StatusMin, 200) {
		return fmt.Errorf("health: no status lies between %d and %d", h.StatusMin, h.StatusMax)
	}
	return nil
}

func (h *Health) setDefaults() {
	h.Interval = cmp.Or(h.Interval, 5*time.Second)
	h.Timeout = cmp.Or(h.Timeout, 2*time.Second)
	h.Rise = cmp.Or(h.Rise, 1)
	h.Fall = cmp.Or(h.Fall, 2)
	h.StatusMin = cmp.Or(h.StatusMin, 200)
	h.StatusMax = cmp.Or(h.StatusMax, 399)
}

// checkLoop checks the backend until ctx is done, at once for the first time.
func (b *backend) checkLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := b.check(ctx)
		if ctx.Err() != nil {
			return
		}
		b.checkDone(err)
		timer.Reset(jitter(b.pool.opts.Health.Interval))
	}
}

// jitter returns d give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// check asks once and returns nil if the answer is a good one.
func (b *backend) check(ctx context.Context) error {
	h := b.pool.opts.Health
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.addr.scheme+"://"+b.addr.host+h.Path, nil)
	if err != nil {
		return err
	}
	req.Host = h.Host
	req.Header.Set("User-Agent", "tlsproxy-health-check")
	res, err := b.checker.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	io.CopyN(io.Discard, res.Body, 64<<10) // the body decides nothing
	if res.StatusCode < h.StatusMin || res.StatusCode > h.StatusMax {
		return fmt.Errorf("health check: status %d is not between %d and %d", res.StatusCode, h.StatusMin, h.StatusMax)
	}
	return nil
}

// checkDone counts a check and changes the state when enough of them agree.
func (b *backend) checkDone(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.checked
	b.checked, b.lastCheck = true, time.Now()
	if err != nil {
		b.lastErr = err.Error()
	} else {
		b.dialed(nil)
	}
	down := err != nil
	if down == b.down.Load() {
		b.streak = 0
		if b.since.IsZero() {
			b.since = b.lastCheck
		}
		return
	}
	b.streak++
	need := b.pool.opts.Health.Rise
	if down {
		need = b.pool.opts.Health.Fall
	}
	if !first && b.streak < need {
		return
	}
	b.streak, b.since = 0, b.lastCheck
	b.down.Store(down)
	b.logChange(err)
}

func (b *backend) logChange(err error) {
	log := b.pool.opts.Logger.With("upstream", b.pool.opts.Name, "backend", b.url)
	if err != nil {
		log.Warn("backend is down", "err", err)
		return
	}
	log.Info("backend is up")
}
