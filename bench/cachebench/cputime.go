package cachebench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// threadCPU returns the CPU time of the calling thread, which goes on only while it
// runs: other programs on the machine do not count.
func threadCPU() time.Duration { return clockTime(unix.CLOCK_THREAD_CPUTIME_ID) }

// processCPU returns the CPU time of the process, garbage collector included.
func processCPU() time.Duration { return clockTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clockTime(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(fmt.Sprintf("clock %d: %v", id, err)) // Linux always has it
	}
	return time.Duration(t.Nano())
}
