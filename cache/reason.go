package cache

// Reason says why an entry left the cache.
type Reason uint8

// The reasons, in the order of the fields of [Evictions].
const (
	ReasonExpired  Reason = iota // its lifetime had passed
	ReasonCapacity               // least recently used when the cache was full
	ReasonBytes                  // least recently used when MaxBytes was reached
	ReasonReplaced               // another value was put under its key
	ReasonDeleted                // Delete, Clear, or a Put that stores nothing
	ReasonShed                   // least recently used when Shed was called
	reasons                      // how many there are
)

// String returns the reason in one lower-case word, as metrics label it.
func (r Reason) String() string {
	names := [reasons]string{"expired", "capacity", "bytes", "replaced", "deleted", "shed"}
	if r >= reasons {
		return "unknown"
	}
	return names[r]
}
