package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The memory that docs/fleet.md says a session takes in the server.
func TestSizing(t *testing.T) {
	t.Parallel()
	s, r := opened(t)
	c := s.Sessions()
	raw := r.raw()
	used := func() int {
		info := raw.Info(t.Context(), "memory").Val()
		_, rest, _ := strings.Cut(info, "used_memory:")
		v, _, _ := strings.Cut(rest, "\r")
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("the server does not say what memory it uses: %q", info)
		}
		return n
	}
	const n = 20_000
	const encoded = 97 + 75 // what session stores for a session without client certificate
	before := used()
	for range n / 500 {
		changes := make([]Change, 500)
		for i := range changes {
			changes[i] = Change{ID: newID(c), Value: fmt.Appendf(nil, "%*d", encoded, i), Life: time.Hour}
		}
		if err := c.Write(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	each := (used() - before) / n
	t.Logf("a session takes %d bytes", each)
	if each > 450 {
		t.Errorf("a session takes %d bytes, docs/fleet.md says up to 450", each)
	}
}
