package cache

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// benchValue has the size of a session with what is kept of it.
type benchValue [130]byte

var benchSizes = []int{1000, 20_480, 204_800, 1_000_000}

// benchKeys returns n random handles.
func benchKeys(n int) [][32]byte {
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([][32]byte, n)
	for i := range keys {
		for w := 0; w < 32; w += 8 {
			binary.LittleEndian.PutUint64(keys[i][w:], r.Uint64())
		}
	}
	return keys
}

func benchCache(b *testing.B, size int) (*Cache[[32]byte, benchValue], [][32]byte) {
	c, err := New(Options[[32]byte, benchValue]{Capacity: size, Lifetime: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	keys := benchKeys(2 * size)
	for _, k := range keys[:size] {
		c.Put(k, benchValue{})
	}
	return c, keys
}

func BenchmarkGet(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, keys := benchCache(b, size)
			keys = keys[:size]
			rand.Shuffle(size, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			i := 0
			for b.Loop() {
				if i++; i == size {
					i = 0
				}
				c.Get(keys[i])
			}
		})
	}
}

// BenchmarkPut puts new keys into a full cache: each evicts one.
func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, keys := benchCache(b, size)
			i := size
			for b.Loop() {
				if i++; i == len(keys) {
					i = 0
				}
				c.Put(keys[i], benchValue{})
			}
		})
	}
}

func BenchmarkDelete(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, keys := benchCache(b, size)
			i := 0
			for b.Loop() {
				if i++; i == size {
					b.StopTimer()
					for _, k := range keys[:size] {
						c.Put(k, benchValue{})
					}
					i = 0
					b.StartTimer()
				}
				c.Delete(keys[i])
			}
		})
	}
}
