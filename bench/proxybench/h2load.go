package proxybench

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// h2load makes requests on kept connections and returns the server's CPU time for
// each. A fixed number of them is made, so that what was sent is what came back;
// a first, shorter run warms up and tells how many fit into the time.
func (b *Bench) h2load(r *running, http2 bool) result {
	start := time.Now()
	const probe = 2000
	if _, err := b.h2loadRun(r, http2, probe); err != nil {
		return result{err: err}
	}
	rate := probe / time.Since(start).Seconds()
	n := max(probe, int(rate*b.duration.Seconds()))
	before, err := r.cpu()
	if err != nil {
		return result{err: err}
	}
	p99, err := b.h2loadRun(r, http2, n)
	if err != nil {
		return result{err: err}
	}
	after, err := r.cpu()
	if err != nil {
		return result{err: err}
	}
	return result{ops: n, p99: p99, value: micros(after-before) / float64(n)}
}

// h2loadRun makes n requests over 8 connections, with HTTP/2 of up to 10 streams
// each, and returns the 99th percentile of their times.
func (b *Bench) h2loadRun(r *running, http2 bool, n int) (time.Duration, error) {
	log := filepath.Join(b.dir, "h2load.log")
	_ = os.Remove(log) // of the run before
	args := []string{
		"-n", strconv.Itoa(n), "-c", "8", "--connect-to=" + r.addr, "--log-file=" + log,
		"--groups=X25519", "--tls13-ciphers=TLS_AES_128_GCM_SHA256",
	}
	if http2 {
		args = append(args, "-m", "10")
	} else {
		args = append(args, "--h1")
	}
	cmd := exec.CommandContext(b.ctx, "/usr/bin/h2load", append(args, "https://localhost"+r.addr[strings.LastIndexByte(r.addr, ':'):]+"/")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("h2load: %w\n%s", err, out)
	}
	if err := checkH2load(string(out), http2, n); err != nil {
		return 0, err
	}
	return readH2loadLog(log, n)
}

var (
	h2loadData  = regexp.MustCompile(`\((\d+)\) data`)
	h2loadProto = regexp.MustCompile(`Application protocol: (\S+)`)
)

// checkH2load checks that every request was answered with the greeting's length,
// over the protocol wanted. The statuses are in the log.
func checkH2load(out string, http2 bool, n int) error {
	want := "http/1.1"
	if http2 {
		want = "h2"
	}
	if m := h2loadProto.FindStringSubmatch(out); m != nil && m[1] != want || m == nil && http2 {
		return fmt.Errorf("h2load: protocol %q, want %q", m, want)
	}
	data := h2loadData.FindStringSubmatch(out)
	if data == nil {
		return fmt.Errorf("h2load: no count of bytes in %q", out)
	}
	if got, err := strconv.Atoi(data[1]); err != nil || got != n*len(greeting) {
		return fmt.Errorf("h2load: %s bytes of data, want %d", data[1], n*len(greeting))
	}
	return nil
}

// readH2loadLog reads a log of h2load: start, status and microseconds of each
// request, separated by tabs.
func readH2loadLog(path string, n int) (time.Duration, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	times := make([]time.Duration, 0, n)
	for scan := bufio.NewScanner(f); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 3 || fields[1] != "200" {
			return 0, fmt.Errorf("h2load: request %q", scan.Text())
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("h2load: request %q", scan.Text())
		}
		times = append(times, time.Duration(us)*time.Microsecond)
	}
	if len(times) != n {
		return 0, fmt.Errorf("h2load: %d of %d requests were answered", len(times), n)
	}
	return percentile(times, 0.99), nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
