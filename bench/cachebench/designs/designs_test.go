package designs

import "testing"

// TestDesigns says what the designs have in common, and where they differ.
func TestDesigns(t *testing.T) {
	for _, test := range []struct {
		name     string
		keepsHot bool // an entry in use outlives one that is not
		keepsOld bool // an expired entry is held while a live one goes
	}{
		{"full scan", true, false},
		{"front only", true, true},
		{"insertion order", false, false},
		{"flat skip", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := int64(0)
			c := New[int](test.name, 3, 100, func() int64 { return now })
			c.Put(1)
			c.Put(2)
			c.Put(3)
			c.Get(1)
			c.Put(4)
			if got := c.Get(1); got != test.keepsHot {
				t.Errorf("the entry in use is there: %v", got)
			}

			now = 1000
			if c.Get(2) || c.Get(3) || c.Get(4) {
				t.Error("an expired entry was returned")
			}
			c = New[int](test.name, 3, 100, func() int64 { return now })
			c.Put(1)
			now += 50
			c.Put(2)
			c.Put(3)
			c.Get(1) // to the back; it expires first
			now += 60
			c.Put(4)
			if _, expired := c.Held(); (expired > 0) != test.keepsOld {
				t.Errorf("%d expired entries are held", expired)
			}
			if c.Get(2) == test.keepsOld {
				t.Errorf("the live entry at the front is there: %v", !test.keepsOld)
			}
		})
	}
}
