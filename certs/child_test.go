package certs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv makes this test program a child that runs one store.
const childEnv = "TLSPROXY_CERTS_TEST_CHILD"

// childConfig is what a child is told.
type childConfig struct {
	StateDir string
	Sources  []Source
	// NoInotify gives the child a user namespace in which nothing can be
	// watched.
	NoInotify bool
}

// child runs a store until it is killed, if this process is such a child, and
// prints every certificate that it serves for the first name.
func child() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Println("error", err)
		return true
	}
	if c.NoInotify {
		if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0); err != nil {
			fmt.Println("error", err)
			return true
		}
	}
	s, err := New(Options{StateDir: c.StateDir, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	set, err := s.Load(context.Background(), c.Sources)
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	s.Install(set)
	fmt.Println("running")
	go func() {
		last, polling := "", false
		for range time.Tick(10 * time.Millisecond) {
			if !polling && s.Stats().Polling {
				polling = true
				fmt.Println("polling")
			}
			if c.NoInotify && !polling {
				continue
			}
			if st := s.Status()[0]; st.Fingerprint != last {
				last = st.Fingerprint
				fmt.Println("serving", last)
			}
		}
	}()
	if err := s.Run(context.Background()); err != nil {
		fmt.Println("error", err)
	}
	return true
}

// startChild starts a process of its own that runs a store. The channel has
// what it says.
func startChild(t *testing.T, c childConfig) (*exec.Cmd, <-chan string) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = t.Output()
	if c.NoInotify {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			lines <- sc.Text()
		}
	}()
	return cmd, lines
}

// expect waits for a line of a child and returns what follows the word.
func expect(t *testing.T, lines <-chan string, word string) string {
	t.Helper()
	timeout := time.NewTimer(60 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok || strings.HasPrefix(line, "error") {
				t.Fatalf("child: %q", line)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest)
			}
		case <-timeout.C:
			t.Fatalf("the child did not say %q", word)
		}
	}
}
