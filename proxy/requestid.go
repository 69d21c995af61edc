package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
)

// requestID returns the ID a trusted peer gave the request, or a new one of 128
// random bits.
func requestID(h http.Header, trusted bool) string {
	if ids := h["X-Request-Id"]; trusted && len(ids) == 1 && isRequestID(ids[0]) {
		return ids[0]
	}
	var raw [16]byte
	rand.Read(raw[:]) // never fails
	var text [32]byte
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

func isRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
