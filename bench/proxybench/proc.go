package proxybench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat. Linux shows user space 100 a
// second on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// procStat is what is read of /proc/PID/stat.
type procStat struct {
	parent int
	cpu    time.Duration // user and system, and that of children that have ended
}

// parseStat parses the text of /proc/PID/stat. The command's name, in parentheses,
// may contain anything.
func parseStat(text []byte) (procStat, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return procStat{}, fmt.Errorf("stat %q: no command", text)
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 15 {
		return procStat{}, fmt.Errorf("stat %q: too short", text)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, fmt.Errorf("stat: parent: %w", err)
	}
	s := procStat{parent: parent}
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("stat: time: %w", err)
		}
		s.cpu += time.Duration(ticks) * clockTick
	}
	return s, nil
}

// tree returns the processes below pid, itself first, with their times.
func tree(pid int) (map[int]procStat, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := make(map[int]procStat)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		stat, err := parseStat(text)
		if err != nil {
			return nil, err
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		all[id] = stat
	}
	if _, ok := all[pid]; !ok {
		return nil, fmt.Errorf("process %d has ended", pid)
	}
	below := map[int]procStat{pid: all[pid]}
	for grown := true; grown; {
		grown = false
		for id, stat := range all {
			_, in := below[id]
			if _, parentIn := below[stat.parent]; parentIn && !in {
				below[id], grown = stat, true
			}
		}
	}
	return below, nil
}

// treeCPU returns the CPU time that a process and those below it have used.
func treeCPU(pid int) (time.Duration, error) {
	below, err := tree(pid)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, stat := range below {
		sum += stat.cpu
	}
	return sum, nil
}

// treeMemory returns the bytes of memory of a process and those below it, pages
// that are shared counted once (PSS).
func treeMemory(pid int) (int64, error) {
	below, err := tree(pid)
	if err != nil {
		return 0, err
	}
	var sum int64
	for id := range below {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", id))
		if err != nil {
			return 0, err
		}
		bytes, err := parsePSS(string(text))
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", id, err)
		}
		sum += bytes
	}
	return sum, nil
}

func parsePSS(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			var kib int64
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("smaps_rollup: %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("smaps_rollup has no Pss")
}
