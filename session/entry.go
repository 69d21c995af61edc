package session

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"
)

const (
	// inlineState is the room for a session's state inside an entry: all
	// that crypto/tls writes for a session without client certificates (57
	// to 75 bytes). Longer states lie in the aside.
	inlineState = 76

	// maxState is the longest state that is stored: a client may send
	// 240 kB of certificates along.
	maxState = 16 << 10
)

// digest is half a SHA-256 hash: enough to tell names, keys and policies
// apart that nobody can choose to collide with an existing one.
type digest [16]byte

// digestOf hashes a kind and parts, each with its length.
func digestOf(kind string, parts ...string) digest {
	b := appendPart(make([]byte, 0, 128), kind)
	for _, p := range parts {
		b = appendPart(b, p)
	}
	sum := sha256.Sum256(b)
	return digest(sum[:16])
}

func appendPart(b []byte, p string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
}

// short is the part of the digest that revocations go by: a collision there
// costs a full handshake.
func (d digest) short() uint64 { return binary.BigEndian.Uint64(d[:8]) }

// entry is a session as the cache holds it. It contains no pointers, so that
// the garbage collector never looks at a million of them. Times are Unix
// nanoseconds.
type entry struct {
	auth     int64  // when the client last did a full handshake
	deadline int64  // end of the lineage, by the wall clock
	cut      int64  // end by the reuse window; 0: not cut
	client   uint64 // whose share it counts against; 0: nobody's
	site     uint64 // for revocation
	cert     uint64 // client certificate, for revocation; 0: none
	aside    uint64 // where a long state lies; 0: inline

	scope digest
	sni   digest
	key   digest // certificate key of the original handshake
	prev  ID     // the session this one was resumed from; zero: none

	stored     uint32 // seconds since the Resumer's start
	size       uint16 // of the state
	successors uint8  // sessions stored by resuming this one
	flags      uint8
	state      [inlineState]byte
}

// withEMS marks TLS 1.2 sessions whose master secret is an extended one.
const withEMS uint8 = 1 << 0

// weight is what an entry takes beyond itself: its share of the accounting by
// client, and a long state with its place in the aside.
func (e *entry) weight() int64 {
	const perClient, perAside = 96, 96
	w := int64(perClient)
	if e.size > inlineState {
		w += perAside + int64(e.size)
	}
	return w
}

// charge is what an entry counts against its client's share of the bytes.
func (e *entry) charge() int64 { return entryBytes + e.weight() }

// entryBytes is about what the cache spends on any entry.
const entryBytes = 256

// wireVersion starts every value in a shared store.
const wireVersion = 2

const wireHeader = 1 + 1 + 8 + 8 + 8 + 8 + 3*16 + 16

var errValue = errors.New("session: not a session of this version")

// encode returns e and its state for the shared store.
func (e *entry) encode(state []byte) []byte {
	b := make([]byte, 0, wireHeader+len(state))
	b = append(b, wireVersion, e.flags)
	b = binary.BigEndian.AppendUint64(b, uint64(e.auth))
	b = binary.BigEndian.AppendUint64(b, uint64(e.deadline))
	b = binary.BigEndian.AppendUint64(b, e.site)
	b = binary.BigEndian.AppendUint64(b, e.cert)
	b = append(b, e.scope[:]...)
	b = append(b, e.sni[:]...)
	b = append(b, e.key[:]...)
	b = append(b, e.prev[:]...)
	return append(b, state...)
}

// decode is the counterpart of encode. The state is a part of b.
func decode(b []byte) (e entry, state []byte, err error) {
	if len(b) <= wireHeader || len(b) > wireHeader+maxState || b[0] != wireVersion {
		return entry{}, nil, errValue
	}
	b = b[1:]
	next := func(n int) (p []byte) { p, b = b[:n], b[n:]; return p }
	e.flags = next(1)[0]
	e.auth = int64(binary.BigEndian.Uint64(next(8)))
	e.deadline = int64(binary.BigEndian.Uint64(next(8)))
	e.site = binary.BigEndian.Uint64(next(8))
	e.cert = binary.BigEndian.Uint64(next(8))
	e.scope, e.sni, e.key = digest(next(16)), digest(next(16)), digest(next(16))
	e.prev = ID(next(16))
	if e.deadline < e.auth || e.deadline-e.auth > int64(MaxLifetime) {
		return entry{}, nil, errValue
	}
	e.size = uint16(len(b))
	return e, b, nil
}

// remaining is how long e may live on at now.
func (e *entry) remaining(now int64) time.Duration {
	end := e.deadline
	if e.cut != 0 {
		end = min(end, e.cut)
	}
	return time.Duration(end - now)
}
