package memwatch

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupShare is how much of a control group's memory the Go runtime may have: the
// rest is for what it does not count.
const cgroupShare = 0.9

// Limit returns the memory limit that the process runs under, in bytes: the
// runtime's, if one is set (GOMEMLIMIT or debug.SetMemoryLimit), or else nine tenths
// of its control group's, or 0 if there is neither or GOMEMLIMIT is "off".
func Limit() int64 {
	return limit(debug.SetMemoryLimit(-1), os.Getenv("GOMEMLIMIT"), os.DirFS("/"))
}

// limit is Limit for a limit of the runtime's, which is the same for "off" and for
// none, the variable, and the file system.
func limit(runtime int64, variable string, root fs.FS) int64 {
	switch {
	case runtime != math.MaxInt64:
		return runtime
	case variable == "off":
		return 0
	}
	return int64(cgroupShare * float64(cgroupLimit(root)))
}

// cgroupLimit returns the least memory limit from the process's control group up to
// the root, or 0. Files that are missing or cannot be understood set no limit.
func cgroupLimit(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case !ok:
			continue
		case id == "0" && controllers == "": // version 2
		case strings.Contains(","+controllers+",", ",memory,"): // version 1
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the group is named as the host sees it, but mounted at the root.
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			least = min(least, readLimit(root, path.Join(mount, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	if least > 1<<60 { // version 1 says "none" with a huge number
		return 0
	}
	return least
}

func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 {
		return math.MaxInt64 // "max"
	}
	return n
}
