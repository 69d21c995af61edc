package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxCalls bounds the calls of the store under way, so that a store that never
// returns does not cost more than so many goroutines.
const maxCalls = 512

var (
	errStoreBusy = errors.New("session: too many store calls are under way")
	errStoreSlow = errors.New("session: the store missed its deadline")
)

// guard calls a store that may fail, block or panic, and returns in time
// whatever it does.
type guard struct{ calls chan struct{} }

func newGuard() guard { return guard{calls: make(chan struct{}, maxCalls)} }

// call runs f for at most timeout. After errStoreSlow f may still be running:
// what it writes to must not be read.
func (g guard) call(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	if timeout <= 0 {
		return errStoreSlow
	}
	select {
	case g.calls <- struct{}{}:
	default:
		return errStoreBusy
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	done := make(chan error, 1)
	go func() {
		defer func() { <-g.calls }()
		defer cancel()
		done <- runStoreCall(ctx, f)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return errStoreSlow
	}
}

// runStoreCall turns a panic of f into an error.
func runStoreCall(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("session: the store panicked: %v", p)
		}
	}()
	return f(ctx)
}
