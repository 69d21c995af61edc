package cachebench

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A measurement is a step of a run measures one thing.
type measurement struct {
	name string
	run  func(*Bench, *Report) error
}

var steps = []measurement{
	{"ops", (*Bench).measureOps},
	{"profiles", (*Bench).measureProfiles},
	{"critical", (*Bench).measureCritical},
	{"shares", (*Bench).measureShares},
	{"cliffs", (*Bench).measureCliffs},
	{"adversarial", (*Bench).measureAdversarial},
	{"contention", (*Bench).measureContention},
	{"memory", (*Bench).measureMemory},
	{"designs", (*Bench).measureDesigns},
}

// Steps returns the names of what a run measures.
func Steps() (names []string) {
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// Run measures the named steps, or all of them if none are named.
func (b *Bench) Run(only []string) (*Report, error) {
	for _, name := range only {
		if !slices.Contains(Steps(), name) {
			return nil, fmt.Errorf("no step is named %q; there are %s", name, strings.Join(Steps(), ", "))
		}
	}
	r := &Report{Machine: b.machine()}
	for _, s := range steps {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		start := time.Now()
		if err := s.run(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		b.say("%s: %v", s.name, time.Since(start).Round(time.Second))
	}
	return r, nil
}

// machine says where and how the figures came about.
func (b *Bench) machine() []string {
	java := "no Java"
	if out, err := exec.CommandContext(b.ctx, "java", "-version").CombinedOutput(); err == nil {
		java, _, _ = strings.Cut(string(out), "\n")
	}
	lines := []string{
		fmt.Sprintf("Measured on %d × %s with %s and %s, by `make bench-cache`.", runtime.NumCPU(), processor(), runtime.Version(), java),
		"Each cache runs in a process of its own; rounds of the caches that are compared alternate. Times are CPU time",
		"of the calling thread, unless said otherwise, so that other programs on the machine do not count. Ratios are",
		"medians over rounds of ours divided by theirs: below 1 ours is faster.",
	}
	if b.quick {
		lines = append(lines, "", "This was a quick run: smaller caches and fewer rounds.")
	}
	return lines
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// once runs one experiment in a process of its own.
func (b *Bench) once(format string, args ...any) ([]float64, error) {
	command := fmt.Sprintf(format, args...)
	p, err := b.start(ours)
	if err != nil {
		return nil, err
	}
	numbers, err := p.do("%s", command)
	if err != nil {
		_ = p.stop() // it has failed already
		return nil, err
	}
	b.say("%s: %v", command, numbers)
	return numbers, p.stop()
}

// pick returns full, or quick in a quick run.
func pick[T any](b *Bench, full, quick T) T {
	if b.quick {
		return quick
	}
	return full
}

func word(name string) string { return strings.ReplaceAll(name, " ", "_") }
