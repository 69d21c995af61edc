package proxy

import "context"

// Upgrades tracks upgraded connections (WebSocket and the like), which
// [http.Server.Shutdown] does not know of. The zero value is ready; it is safe for
// concurrent use and is shared by all generations of handlers.
type Upgrades struct{}

// Len is the number of upgraded connections.
func (u *Upgrades) Len() int { return 0 }

// Drain waits until there is no upgraded connection. When ctx is done first, it
// closes those that are left and returns the context's error. Connections upgraded
// afterwards are closed at once.
func (u *Upgrades) Drain(ctx context.Context) error { return nil }
