package session

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Scope is a hash of everything that decides who may come in under a policy:
// listener and site policy, client authentication mode, CA set, allow-list,
// protocol versions, ALPN list, transport. A session resumes only under the
// scope it was made under, so a policy whose content changed ends its sessions
// and one that was merely loaded again keeps them. It must hold nothing that
// differs between replicas or loads: no counter, address or CRL.
type Scope [32]byte

// ScopeHash collects the content of a [Scope]. Make one with [NewScope]. Not
// safe for concurrent use.
type ScopeHash struct{ h hash.Hash }

// NewScope returns an empty ScopeHash.
func NewScope() *ScopeHash {
	s := &ScopeHash{h: sha256.New()}
	return s.Add("tlsproxy scope", "1")
}

// Add adds a named list of values and returns s. Names and values are encoded
// with their lengths and counts, so no two different calls give one encoding;
// the order of calls and of values matters.
func (s *ScopeHash) Add(name string, values ...string) *ScopeHash {
	s.write(name)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(values)))
	s.h.Write(n[:])
	for _, v := range values {
		s.write(v)
	}
	return s
}

// Sum returns the scope of what was added so far.
func (s *ScopeHash) Sum() Scope { return Scope(s.h.Sum(nil)) }

func (s *ScopeHash) write(v string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(v)))
	s.h.Write(n[:])
	s.h.Write([]byte(v))
}
