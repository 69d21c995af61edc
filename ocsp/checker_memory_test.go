package ocsp

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/cache"
	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// What a checker says that its answers take is what they take, whoever signed them.
func TestCheckerCountsItsMemory(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	leaf := serverCert(t, ca, "a.test")
	now := time.Now()
	good := goodSpec(ca, leaf.Leaf, now)
	own, delegated := build(t, good), build(t, signedBy(good, delegate(t, ca, pki.Request{})))
	for name, answer := range map[string]func() *checked{
		"signed by the issuer": func() *checked { return verified(t, own, ca, leaf.Leaf, now) },
		"delegated signer":     func() *checked { return verified(t, delegated, ca, leaf.Leaf, now) },
		"none":                 func() *checked { return newChecked(nil, fmt.Errorf("no answer from %s", "http://ocsp.test"), now) },
	} {
		t.Run(name, func(t *testing.T) {
			const n = 2000
			answers, err := cache.New(cache.Options[[32]byte, *checked]{Capacity: 2 * n, Weigh: weighChecked})
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				answers.Put(sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i))), answer())
			}
			before := heap()
			counted := answers.Bytes()
			runtime.KeepAlive(answers)
			answers = nil
			taken := before - heap()
			if counted < taken*3/4 || counted > taken*3/2 {
				t.Errorf("%d bytes counted for %d answers, the heap says %d", counted, n, taken)
			}
		})
	}
}

func verified(t *testing.T, der []byte, ca *pki.CA, leaf *x509.Certificate, now time.Time) *checked {
	t.Helper()
	r, err := Verify(bytes.Clone(der), leaf, ca.Certificate, now)
	if err != nil {
		t.Fatal(err)
	}
	return newChecked(r, nil, now)
}

// heap returns the live heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
