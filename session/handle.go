package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
)

// A handle is the ticket that a client holds:
//
//	format (1 byte) | ID (16 bytes: key hint, 15 random) | MAC (15 bytes)
//
// The MAC covers format and ID, so that whatever we did not make ourselves is
// turned away before any lock is taken and before any store is asked.
const (
	handleFormat = 0x01
	handleLen    = 1 + len(ID{}) + len(MAC{})
)

// authenticator makes and knows the MACs of IDs. A [Store] is one, for a whole
// fleet; bootKey is one for this process alone.
type authenticator interface {
	Hint() byte
	MAC(ID) (MAC, bool)
}

// newID returns a fresh ID that hint's key authenticates.
func newID(hint byte) ID {
	var id ID
	rand.Read(id[1:]) // never fails, see crypto/rand
	id[0] = hint
	return id
}

// appendHandle appends the handle of id to b.
func appendHandle(b []byte, id ID, mac MAC) []byte {
	b = append(b, handleFormat)
	b = append(b, id[:]...)
	return append(b, mac[:]...)
}

// parseHandle returns the ID in handle, if handle is one that keys made.
func parseHandle(handle []byte, keys authenticator) (id ID, ok bool) {
	if len(handle) != handleLen || handle[0] != handleFormat {
		return id, false
	}
	copy(id[:], handle[1:])
	mac, ok := keys.MAC(id)
	if !ok || subtle.ConstantTimeCompare(mac[:], handle[1+len(id):]) != 1 {
		return ID{}, false
	}
	return id, true
}

// bootKey authenticates handles by a key that ends with the process.
type bootKey [32]byte

func newBootKey() *bootKey {
	k := new(bootKey)
	rand.Read(k[:])
	return k
}

func (k *bootKey) Hint() byte { return 0 }

func (k *bootKey) MAC(id ID) (mac MAC, ok bool) {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte{handleFormat})
	h.Write(id[:])
	var sum [sha256.Size]byte
	copy(mac[:], h.Sum(sum[:0]))
	return mac, true
}

// randomHandle returns a handle that nothing is stored under: TLS 1.3 clients
// break on an empty one.
func randomHandle() []byte {
	b := make([]byte, handleLen)
	rand.Read(b)
	b[0] = handleFormat
	return b
}
