package metrics_test

import (
	"bytes"
	"context"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// process is a program that a test runs.
type process struct {
	cancel context.CancelFunc
	exited chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
}

// start runs a program until the test ends, and shows what it said if the test
// failed.
func start(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, exited: make(chan struct{})}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() { defer close(p.exited); _ = cmd.Wait() }()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("output of %s:\n%s", bin, &p.output)
		}
	})
	return p
}

// stop kills the program and waits for its end.
func (p *process) stop() {
	p.cancel()
	<-p.exited
}

// Write collects the program's output.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}
