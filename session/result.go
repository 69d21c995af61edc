package session

// Result says how the lookup of an offered handle ended.
type Result string

// Results of a lookup: a closed set, fit for a metric's label.
const (
	None       Result = ""            // no handle was offered: not a lookup, never counted
	Hit        Result = "hit"         // resumed from the local cache
	HitShared  Result = "hit_shared"  // resumed from the shared store
	Absent     Result = "absent"      // unknown here and in the store: expired, evicted, used up, or made before a restart
	SNI        Result = "sni"         // made under another server name
	ScopeMiss  Result = "scope"       // made under another policy, or the policy changed
	Key        Result = "key"         // the certificate key it was authenticated with is no longer served
	Lineage    Result = "lineage"     // the original authentication is too old, or lies in the future
	Revoked    Result = "revoked"     // authenticated before a revocation that covers it
	Declined   Result = "declined"    // found, but TLS forbids it: other version, cipher suite, extended master secret or client certificate rule
	Unfinished Result = "unfinished"  // found, and the handshake failed before it was shown that it resumed: the client went away, or sent a hello that was not its own
	Malformed  Result = "malformed"   // not one of our handles: wrong length, forged, or another fleet's or process's
	StoreError Result = "store_error" // unknown here, and the store failed, was too slow, is switched off by its breaker, or has not told its revocations yet
)

// Results lists every result that is counted.
func Results() []Result {
	return []Result{Hit, HitShared, Absent, SNI, ScopeMiss, Key, Lineage, Revoked, Declined, Unfinished, Malformed, StoreError}
}
