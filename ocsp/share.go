package ocsp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	storeTimeout   = 2 * time.Second
	revokedForever = 10 * 365 * 24 * time.Hour // longer than any certificate lives
	claimFor       = 10 * time.Second          // about the time that a fetch may take
	stampSize      = 8
)

// shared gives responses to other replicas, and takes over theirs. What may
// change lies at one key, be it good or a hold, so that the newer one takes the
// place of the other; a revocation lies at another, so that nothing can replace
// it however the replicas race. A value is the time of receipt (Unix
// seconds, big endian) and the response.
type shared struct {
	store Store // nil: there are no others
	now   func() time.Time
	log   *slog.Logger

	hits, writes, errors atomic.Uint64
	broken               atomic.Bool // the last call failed, and that was said
}

// sharedKey derives the key for one purpose from that of the entry.
func sharedKey(purpose string, key [32]byte) [32]byte {
	return sha256.Sum256(append([]byte("tlsproxy ocsp "+purpose+"\x00"), key[:]...))
}

const (
	purposeCurrent = "good"
	purposeRevoked = "revoked"
	purposeClaim   = "claim"
)

// look takes over what the others know, and reports whether that was news.
func (h *shared) look(ctx context.Context, s *Stapler, e *entry) bool {
	if h.store == nil || e.target.local != nil || e.isRevoked() {
		return false
	}
	var kept receipts
	for _, purpose := range []string{purposeRevoked, purposeCurrent} {
		if r, received := h.get(ctx, e, purpose); r != nil {
			kept = append(kept, receipt{r, received})
		}
	}
	for _, k := range kept.sorted() {
		r := k.response
		if !e.isNews(r) || !s.accept(e, r, k.received) {
			continue
		}
		h.hits.Add(1)
		e.mu.Lock()
		e.looks, e.failures, e.lastError = 0, 0, nil
		e.given = r.Status == Revoked
		e.mu.Unlock()
		return true
	}
	return false
}

// isRevoked reports whether e is revoked for good.
func (e *entry) isRevoked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.revoked.final()
}

// isNews reports whether r adds to what is known.
func (e *entry) isNews(r *Response) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Status == Revoked {
		return e.revoked == nil || e.revoked.onHold() && (!r.onHold() || r.ThisUpdate.After(e.revoked.ThisUpdate))
	}
	return e.held == nil || r.ThisUpdate.After(e.held.ThisUpdate) ||
		r.ThisUpdate.Equal(e.held.ThisUpdate) && r.End.After(e.held.End) // the same, received anew
}

func (h *shared) get(ctx context.Context, e *entry, purpose string) (*Response, time.Time) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	value, err := h.store.Get(ctx, sharedKey(purpose, e.key))
	if h.failed(ctx, err) || len(value) <= stampSize {
		return nil, time.Time{}
	}
	now := h.now()
	received := earliest(time.Unix(int64(binary.BigEndian.Uint64(value)), 0), now)
	r, err := verifyKept(value[stampSize:], e.target, received, now)
	if err != nil || purpose == purposeRevoked && r.Status != Revoked {
		h.log.Debug("shared ocsp response is not used", "certificate", e.name(), "err", err)
		return nil, time.Time{}
	}
	return r.since(received), received
}

// claim reports whether this replica is the one to fetch now. It is while its
// last claim lasts, and if the store does not work.
func (h *shared) claim(ctx context.Context, e *entry) bool {
	if h.store == nil || e.target.local != nil {
		return true
	}
	now := h.now()
	e.mu.Lock()
	claimed := e.claimed
	e.mu.Unlock()
	if now.Before(claimed) && claimed.Sub(now) <= claimFor {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	mine, err := h.store.Claim(ctx, sharedKey(purposeClaim, e.key), claimFor)
	if h.failed(ctx, err) {
		return true
	}
	if mine {
		e.mu.Lock()
		e.claimed, e.looks = now.Add(claimFor), 0
		e.mu.Unlock()
	}
	return mine
}

// give tells the others about a response received just now.
func (h *shared) give(ctx context.Context, e *entry, r *Response, received time.Time) {
	if h.store == nil || e.target.local != nil {
		return
	}
	purpose, until := purposeCurrent, r.End
	if r.final() {
		purpose, until = purposeRevoked, received.Add(revokedForever)
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(received.Unix()))
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := h.store.Put(ctx, sharedKey(purpose, e.key), append(value, r.Raw...), until); !h.failed(ctx, err) {
		h.writes.Add(1)
		e.mu.Lock()
		e.given = r.Status == Revoked
		e.mu.Unlock()
	}
}

// warn tells the others of a revocation that they may not know: it came from
// the state directory, or the store did not answer when it was learned. Nothing
// else would, as the certificate is not asked about any more.
func (h *shared) warn(ctx context.Context, e *entry) {
	e.mu.Lock()
	r, given := e.revoked, e.given
	e.mu.Unlock()
	if r.final() && !given {
		h.give(ctx, e, r, h.now())
	}
}

// failed counts an error of the store and says it once.
func (h *shared) failed(ctx context.Context, err error) bool {
	switch {
	case err == nil:
		h.broken.Store(false)
		return false
	case errors.Is(ctx.Err(), context.Canceled):
		return true // we are stopping
	}
	h.errors.Add(1)
	if !h.broken.Swap(true) {
		h.log.Warn("ocsp responses are not shared: the store does not answer", "err", err)
	}
	return true
}
