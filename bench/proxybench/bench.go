// Package proxybench measures what TLS-terminating proxies cost: the CPU time that
// a server's whole process tree uses, by /proc, for each handshake, request and
// MiB, and its memory for each idle connection.
//
// All servers run on loopback before the same backend, an nginx that answers 13
// bytes, and are measured in turn, round by round, so that a disturbance of the
// machine meets all of them. CPU time holds on a machine that is shared, where
// throughput would not; ratios hold better than figures.
//
// Every certificate, resumption and response is checked; of requests on kept
// connections, which h2load makes, status and length. A measurement with an error
// does not count.
package proxybench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options say what to measure. The zero value measures everything.
type Options struct {
	Quick   bool     // one round, all of them short
	Rounds  int      // zero: 3, quick 1
	Servers []string // by name; empty: all
	Rows    []string // by name; empty: all
	// Extra are more builds of tlsproxy, to compare a change with what was before.
	Extra []Binary
	Log   io.Writer // progress; required
}

// Binary is a build of tlsproxy.
type Binary struct{ Name, Path string }

// Bench is one run of the benchmark.
type Bench struct {
	ctx  context.Context
	opts Options
	root string // of the parent module
	dir  string // temporary
	leaf []byte // the servers' certificate, DER

	backend     *running
	backendAddr string
	block       []byte // of the bulk file

	rounds    int
	warmup    time.Duration
	duration  time.Duration
	rest      time.Duration // before memory is measured
	clients   int
	idleConns int
}

// New prepares a run: the certificate and the backend. Close ends it.
func New(ctx context.Context, o Options) (*Bench, error) {
	b := &Bench{
		ctx: ctx, opts: o, rounds: 3, warmup: 300 * time.Millisecond, duration: 2 * time.Second,
		rest: 4 * time.Second, clients: 4, idleConns: 1000,
	}
	if o.Quick {
		b.rounds, b.warmup, b.duration, b.idleConns = 1, 100*time.Millisecond, 500*time.Millisecond, 500
	}
	if o.Rounds > 0 {
		b.rounds = o.Rounds
	}
	if err := check(o); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tlsproxy/tlsproxy").Output()
	if err != nil {
		return nil, fmt.Errorf("go list, in the directory bench: %w", err)
	}
	b.root = strings.TrimSpace(string(out))
	if b.dir, err = os.MkdirTemp("", "proxybench-"); err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Bench) prepare() error {
	if err := os.Chmod(b.dir, 0o711); err != nil { // nginx's workers run as another user
		return err
	}
	if err := b.makeCertificate(); err != nil {
		return err
	}
	return b.startBackend()
}

// Close ends the backend and removes what was written.
func (b *Bench) Close() {
	if b.backend != nil {
		b.backend.stop()
	}
	_ = os.RemoveAll(b.dir)
}

// ServerNames and RowNames list what -servers and -rows take.
func ServerNames() []string {
	var names []string
	for _, s := range servers(nil) {
		names = append(names, s.name)
	}
	return names
}

// RowNames lists the rows.
func RowNames() []string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return names
}

func check(o Options) error {
	for _, name := range o.Servers {
		if !slices.Contains(ServerNames(), name) {
			return fmt.Errorf("no server %q: there are %s", name, strings.Join(ServerNames(), ", "))
		}
	}
	for _, name := range o.Rows {
		if !slices.Contains(RowNames(), name) {
			return fmt.Errorf("no row %q: there are %s", name, strings.Join(RowNames(), ", "))
		}
	}
	if absent := missing(chosenServers(o)); len(absent) > 0 {
		return fmt.Errorf("these Debian packages are missing: %s", strings.Join(absent, " "))
	}
	return nil
}

func chosenServers(o Options) []*server {
	return slices.DeleteFunc(servers(o.Extra), func(s *server) bool {
		extra := slices.ContainsFunc(o.Extra, func(x Binary) bool { return x.Name == s.name })
		return len(o.Servers) > 0 && !extra && !slices.Contains(o.Servers, s.name)
	})
}

func chosenRows(o Options) []row {
	return slices.DeleteFunc(rows(), func(r row) bool { return len(o.Rows) > 0 && !slices.Contains(o.Rows, r.name) })
}

// Run measures all that was chosen.
func (b *Bench) Run() (*Report, error) {
	list := chosenServers(b.opts)
	started := make(map[*server]*running)
	defer func() {
		for r := range maps.Values(started) {
			r.stop()
		}
	}()
	for _, s := range list {
		r, err := b.start(s)
		if err != nil {
			return nil, err
		}
		started[s] = r
	}
	report := newReport(b, list)
	for _, row := range chosenRows(b.opts) {
		line := make(map[*server][]result)
		for round := range b.rounds {
			b.logf("%s, round %d of %d", row.title, round+1, b.rounds)
			for i := range list {
				s := list[(i+round)%len(list)] // nobody is always first
				if row.h2 && !s.h2 || row.only != nil && !row.only(s) {
					continue
				}
				res, err := b.one(row, s, started[s])
				if err != nil {
					return nil, err
				}
				line[s] = append(line[s], res)
			}
		}
		report.add(row, line)
	}
	report.end()
	return report, nil
}

// one measures a row of a server once.
func (b *Bench) one(row row, s *server, r *running) (result, error) {
	if err := b.ctx.Err(); err != nil {
		return result{}, err
	}
	if row.fresh {
		fresh, err := b.start(s)
		if err != nil {
			return result{}, err
		}
		defer fresh.stop()
		r = fresh
	}
	res := row.measure(b, r)
	if res.err != nil {
		b.logf("%s, %s: does not count: %v", row.title, s.name, res.err)
	}
	return res, b.ctx.Err()
}

func (b *Bench) logf(format string, args ...any) {
	fmt.Fprintf(b.opts.Log, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// version returns the first line of what a program says of itself.
func version(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return filepath.Base(program) + ": " + err.Error()
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
