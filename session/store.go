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

// SharedRecord is one revocation record of a [Store]: what it was given, which
// is no secret but must not be altered, and until when it is kept. A record that
// is held but does not open comes as nil, one that was just announced may come
// without an End.
type SharedRecord = struct {
	Record []byte
	End    time.Time
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
	// Refused() bool that returns true, here and in Watch, says that it is no
	// use to try again.
	Write(ctx context.Context, changes []Change) error

	// Publish keeps revocation records and tells every replica.
	Publish(ctx context.Context, records []SharedRecord) error

	// Watch calls apply, from one goroutine, with all records that are held
	// (all is true), again soon after they or what opens them changed in any
	// way, and with new ones, until ctx ends. Records may come more than once;
	// all of them come in an order that is the same for every replica. It
	// removes those whose indices apply returns; an error of apply, for its
	// own status, says what is not known of them. It calls known with nil once
	// all that is held was applied, and with the reason when records may have
	// been missed: meanwhile no session of the store is resumed. It returns
	// only when ctx has ended.
	Watch(ctx context.Context, apply func(records []SharedRecord, all bool) (superseded []int, err error), known func(error)) error
}
