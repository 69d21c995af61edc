package cachebench

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Worker measures one Go cache, in a process of its own so that no other's heap is
// in its way. It takes the same commands as the Java program: one a line, each
// answered with a line of numbers.
func Worker(in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // threadCPU is this loop's
	var w *worker
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 {
			continue
		}
		if f[0] == "prep" {
			w = nil
			runtime.GC()
		}
		reply, err := w.command(f, &w)
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if _, err := fmt.Fprintln(out, reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

// worker is a prepared cache with either kind of key.
type worker struct {
	run  func(op string, n, window int) string
	fill func(n int)
	size int
}

func (w *worker) command(f []string, prepared **worker) (string, error) {
	args := make([]int, len(f))
	for i := range f {
		args[i], _ = strconv.Atoi(f[i]) // words are 0 and not read
	}
	switch f[0] {
	case "prep": // name keys size lifetime
		cfg := config{size: args[3], lifetime: time.Duration(args[4]) * time.Second}
		var err error
		if f[2] == "handle" {
			*prepared, err = prepare(f[1], cfg, handle)
		} else {
			*prepared, err = prepare(f[1], cfg, integer)
		}
		return "ok", err
	case "warm":
		return "ok", nil
	case "fill":
		w.fill(args[1])
		return "ok", nil
	case "run":
		return w.run(f[1], args[2], args[3]), nil
	}
	return experiment(f, args)
}

// experiment runs one of the measurements that need no preparation. Names of caches
// have "_" for a space.
func experiment(f []string, args []int) (string, error) {
	name := ""
	if len(f) > 1 {
		name = strings.ReplaceAll(f[1], "_", " ")
	}
	switch f[0] {
	case "critical": // name size puts
		return critical(name, args[2], args[3])
	case "paced": // name size lifetime seconds
		return paced(name, args[2], args[3], float64(args[4]))
	case "shares": // name size operations rounds
		return shares(name, args[2], args[3], args[4])
	case "coldread": // bytes
		return coldRead(args[1]), nil
	case "profile": // keys operation size seconds file
		return profiled(f[1], f[2], args[3], args[4], f[5])
	case "cliff": // kind size gc
		return cliff(name, args[2], args[3] == 1)
	case "adversarial": // size puts
		return adversarial(args[1], args[2])
	case "footprint": // name entries
		return footprint(name, args[2])
	case "contention": // name size goroutines milliseconds
		return contention(name, args[2], args[3], args[4])
	case "replay": // name kind size arrivals pressure*100
		return replay(name, f[2], args[3], args[4], float64(args[5])/100)
	}
	return "", fmt.Errorf("no such command")
}

func prepare[K comparable](name string, cfg config, key func(uint64) K) (*worker, error) {
	t, err := newTarget[K](name, cfg)
	if err != nil {
		return nil, err
	}
	r := &rounds[K]{t: t, key: key, random: 42}
	r.fill(cfg.size)
	return &worker{run: r.run, fill: r.fill, size: cfg.size}, nil
}

// rounds runs rounds of one operation on a target.
type rounds[K comparable] struct {
	t      target[K]
	key    func(uint64) K
	next   uint64 // the key to be put next
	random uint64
}

// settler is a target that applies puts later, or drops them if many are waiting.
type settler interface{ settle() }

// fill puts n new keys. It waits for targets that apply puts later.
func (r *rounds[K]) fill(n int) {
	s, waits := r.t.(settler)
	for i := range n {
		r.t.put(r.key(r.next))
		r.next++
		if waits && (i%1024 == 0 || i == n-1) {
			s.settle()
		}
	}
}

// keys returns what a round works on, made before the clock starts: new keys to put,
// or keys of the window that was put last.
func (r *rounds[K]) keys(op string, n, window int) []K {
	keys := make([]K, n)
	w := uint64(window)
	first := r.next - w
	r.random = mix(r.random)
	at := r.random % w
	for i := range keys {
		switch op {
		case "put":
			keys[i] = r.key(r.next)
			r.next++
			continue
		case "get":
			r.random = mix(r.random)
			at = r.random % w
		default:
			at = (at + 7919) % w // each once
		}
		keys[i] = r.key(first + at)
	}
	return keys
}

// run returns the CPU time and the time that n operations took, and how many hit.
func (r *rounds[K]) run(op string, n, window int) string {
	keys := r.keys(op, n, window)
	hits := 0
	cpu, start := threadCPU(), time.Now()
	switch op {
	case "put":
		for i := range keys {
			r.t.put(keys[i])
		}
	case "get":
		for i := range keys {
			if r.t.get(keys[i]) {
				hits++
			}
		}
	default:
		for i := range keys {
			r.t.remove(keys[i])
		}
	}
	wall, used := time.Since(start), threadCPU()-cpu
	return fmt.Sprintf("%d %d %d", used.Nanoseconds(), wall.Nanoseconds(), hits)
}
