package cache

import (
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	now := int64(0)
	c, err := New(Options[string, int]{Capacity: 2, Lifetime: time.Second, Now: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	c.Put("a", 1)
	c.Put("b", 2)
	c.Get("a")
	c.Put("c", 3)
	if _, ok := c.Get("b"); ok {
		t.Error("the least recently used entry is still there")
	}
	now = int64(time.Second)
	if _, ok := c.Get("a"); ok {
		t.Error("an expired entry was returned")
	}
	if c.Len() != 0 {
		t.Error("expired entries are counted")
	}
}
