// Package cachebench measures the cache package against the JDK's session cache, the
// designs that were weighed in that one's review, and Go caches that people would
// pick. Command cachebench runs it.
package cachebench

import "encoding/binary"

// Handle is a key as in life: 32 random bytes.
type Handle = [32]byte

// mix is a bijection of 64-bit words that looks random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// handle returns key number i, the same one as the Java program's.
func handle(i uint64) (h [32]byte) {
	for w := range uint64(4) {
		binary.LittleEndian.PutUint64(h[8*w:], mix(4*i+w))
	}
	return h
}

// integer returns key number i as in the JDK's own benchmark: consecutive integers.
func integer(i uint64) int { return int(i) }
