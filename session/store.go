package session

import (
	"context"
	"time"
)

// ID names a session: the unguessable part of its handle. Its first byte is
// the store's [Store.Hint] at the time it was made.
type ID = [16]byte

// MAC authenticates an [ID] inside a handle.
type MAC = [15]byte

// Change is one write to a [Store]: with a Value, put it for Life; without,
// cut what is there to Life, or delete it when Life is not positive.
type Change = struct {
	ID    [16]byte
	Value []byte
	Life  time.Duration
}

// Store shares sessions and revocations between replicas. Values are secrets:
// an implementation seals them before they leave the process. A Resumer bounds
// every call in time and survives a Store that fails, blocks or panics. Its
// methods are called concurrently.
type Store interface {
	// Hint returns the first byte of new IDs, by which MAC finds its key.
	Hint() byte

	// MAC returns the authenticator of id; ok is false when the key that
	// id's first byte names is not held. It must not block.
	MAC(id ID) (mac MAC, ok bool)

	// Get returns the value of id, nil when there is none or it does not open.
	Get(ctx context.Context, id ID) ([]byte, error)

	// Take removes id and reports whether it was there: of several takers
	// of one ID, on any replica, exactly one is told true.
	Take(ctx context.Context, id ID) (bool, error)

	// Write makes the changes in their order. An error with a method
	// Refused() bool that returns true says that it is no use to try again.
	Write(ctx context.Context, changes []Change) error

	// Publish keeps a revocation record for life and tells every replica.
	Publish(ctx context.Context, record []byte, life time.Duration) error

	// Watch calls apply with every record that is held and with each new
	// one, until ctx ends. Records may come more than once and in any
	// order. It calls current with true once all that is held was applied,
	// and with false when records may have been missed: meanwhile no
	// session of the store is resumed. It returns only when ctx has ended.
	Watch(ctx context.Context, apply func(record []byte), current func(bool)) error
}
