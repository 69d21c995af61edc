package store

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Keyring is the keys of a key file: the first seals, all open.
//
// The file holds one key a line, 32 random bytes in hexadecimal or base64, for
// example from `openssl rand -hex 32`. Empty lines and lines that start with #
// are ignored. To rotate, add the new key as the last line on every replica,
// then move it to the top on every replica, and remove the old one when
// nothing sealed with it is alive any more.
type Keyring struct {
	active *ringKey
	byHint [256]*ringKey
	keys   []*ringKey
}

// ringKey is one key of the file with what is derived from it.
type ringKey struct {
	hint             byte
	mac, names, seal [32]byte
}

const keySize = 32

// ParseKeyring reads the content of a key file. Errors name the line and never
// show a key.
func ParseKeyring(file []byte) (*Keyring, error) {
	k := new(Keyring)
	lineOf := map[byte]int{}
	for i, line := range strings.Split(string(file), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		secret, err := decodeKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		key, err := deriveKey(secret)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if first, ok := lineOf[key.hint]; ok {
			return nil, fmt.Errorf("line %d: the key has the same short name %02x as the one on line %d: use another", i+1, key.hint, first)
		}
		lineOf[key.hint] = i + 1
		k.keys = append(k.keys, key)
		k.byHint[key.hint] = key
	}
	if len(k.keys) == 0 {
		return nil, errors.New("no key: want one a line, 32 bytes in hexadecimal or base64")
	}
	k.active = k.keys[0]
	return k, nil
}

// decodeKey reads 32 bytes in hexadecimal or any kind of base64.
func decodeKey(s string) ([]byte, error) {
	if b, err := hex.DecodeString(s); err == nil && len(b) == keySize {
		return checkKey(b)
	}
	plain := strings.TrimRight(s, "=")
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if b, err := enc.DecodeString(plain); err == nil && len(b) == keySize {
			return checkKey(b)
		}
	}
	return nil, fmt.Errorf("not a key of %d bytes in hexadecimal or base64 (the line has %d characters)", keySize, len(s))
}

// checkKey refuses what nobody drew at random.
func checkKey(b []byte) ([]byte, error) {
	if bytes.Count(b, b[:1]) == len(b) {
		return nil, errors.New("every byte of the key is the same: make one with `openssl rand -hex 32`")
	}
	return b, nil
}

func deriveKey(secret []byte) (*ringKey, error) {
	k := new(ringKey)
	for _, d := range []struct {
		info string
		out  []byte
	}{
		{"tlsproxy store v1 mac", k.mac[:]},
		{"tlsproxy store v1 names", k.names[:]},
		{"tlsproxy store v1 seal", k.seal[:]},
	} {
		b, err := hkdf.Key(sha256.New, secret, nil, d.info, len(d.out))
		if err != nil {
			return nil, err
		}
		copy(d.out, b)
	}
	hint, err := hkdf.Key(sha256.New, secret, nil, "tlsproxy store v1 hint", 1)
	if err != nil {
		return nil, err
	}
	k.hint = hint[0]
	return k, nil
}

// macOf authenticates a session's ID in its handle.
func (k *ringKey) macOf(id [16]byte) (mac [15]byte) {
	copy(mac[:], sum(k.mac[:], "handle", id[:]))
	return mac
}

// name is what the server knows an object by.
func (k *ringKey) name(purpose string, id []byte) string {
	return base64.RawURLEncoding.EncodeToString(sum(k.names[:], purpose, id)[:18])
}

// sum is HMAC-SHA256 over a purpose and data, told apart by the purpose's length.
func sum(key []byte, purpose string, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(purpose))))
	h.Write([]byte(purpose))
	h.Write(data)
	return h.Sum(nil)
}

// A sealed value is
//
//	version (1 byte) | key hint (1 byte) | nonce (12 bytes) | AES-256-GCM
//
// under a key of the object's own, with version, purpose and identity as
// associated data: it opens under its own name only.
const (
	sealVersion = 1
	sealHeader  = 2
	nonceSize   = 12
	sealExtra   = sealHeader + nonceSize + 16
)

var errSealed = errors.New("store: the value does not open: damaged, moved, or sealed with a key that is not held")

// seal seals plain for the object that purpose and id name.
func (k *Keyring) seal(key *ringKey, purpose string, id, plain []byte) ([]byte, error) {
	aead, err := key.aead(purpose, id)
	if err != nil {
		return nil, err
	}
	out := make([]byte, sealHeader+nonceSize, sealExtra+len(plain))
	out[0], out[1] = sealVersion, key.hint
	nonce := out[sealHeader:]
	rand.Read(nonce)
	return aead.Seal(out, nonce, plain, associated(purpose, id)), nil
}

// open is the counterpart of seal. It never panics, whatever sealed is.
func (k *Keyring) open(purpose string, id, sealed []byte) ([]byte, error) {
	if len(sealed) < sealExtra || sealed[0] != sealVersion {
		return nil, errSealed
	}
	key := k.byHint[sealed[1]]
	if key == nil {
		return nil, errSealed
	}
	aead, err := key.aead(purpose, id)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, sealed[sealHeader:sealHeader+nonceSize], sealed[sealHeader+nonceSize:], associated(purpose, id))
	if err != nil {
		return nil, errSealed
	}
	return plain, nil
}

func (k *ringKey) aead(purpose string, id []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(sum(k.seal[:], purpose, id))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func associated(purpose string, id []byte) []byte {
	b := []byte{sealVersion}
	b = binary.BigEndian.AppendUint32(b, uint32(len(purpose)))
	b = append(b, purpose...)
	return append(b, id...)
}
