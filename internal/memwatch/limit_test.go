package memwatch

import (
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
)

// TestLimit says which of the limits holds.
func TestLimit(t *testing.T) {
	group := fstest.MapFS{
		"proc/self/cgroup":         &fstest.MapFile{Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": &fstest.MapFile{Data: []byte("1000\n")},
	}
	for _, test := range []struct {
		name     string
		runtime  int64
		variable string
		root     fs.FS
		want     int64
	}{
		{"none", math.MaxInt64, "", fstest.MapFS{}, 0},
		{"the group's", math.MaxInt64, "", group, 900},
		{"the runtime's", 700, "700B", group, 700},
		{"above the group's", 7000, "7000", group, 7000},
		{"off", math.MaxInt64, "off", group, 0},
		{"off, and set by the program", 600, "off", group, 600},
	} {
		if got := limit(test.runtime, test.variable, test.root); got != test.want {
			t.Errorf("%s: limit %d, want %d", test.name, got, test.want)
		}
	}
}
