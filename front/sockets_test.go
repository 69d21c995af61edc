package front

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// childEnv makes the test program the child of TestSocketActivation.
const childEnv = "FRONT_TEST_LISTEN"

// activationChild opens the address it is told with what it inherited, and
// answers one connection on each socket.
func activationChild(address string) int {
	s := newSockets(nil)
	listeners, err := s.open(address)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	for _, ln := range listeners {
		c, err := ln.Accept()
		if err != nil {
			fmt.Println("error:", err)
			return 1
		}
		_, _ = io.WriteString(c, "hello from "+ln.Addr().String())
		c.Close()
		ln.Close()
	}
	// An inherited socket can be taken up again after a reload closed it.
	again, err := s.open(address)
	if err != nil || len(again) != len(listeners) {
		fmt.Println("error: again:", err)
		return 1
	}
	fmt.Println("ok")
	return 0
}

// child is the command of a child that inherits files as 3, 4, … and believes
// that systemd started it.
func child(t *testing.T, address, names string, files ...*os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run '^$'`, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+address, fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = files
	return cmd
}

func listen(t *testing.T) (net.Listener, *os.File) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close(); f.Close() })
	return ln, f
}

func TestSocketActivation(t *testing.T) {
	one, oneFile := listen(t)
	two, twoFile := listen(t)
	other, otherFile := listen(t)
	for _, test := range []struct {
		address string
		want    []net.Listener
	}{
		{"fd:3", []net.Listener{one}},
		{"fd:5", []net.Listener{two}},
		{"systemd:https", []net.Listener{one, two}},
		{"systemd:other", []net.Listener{other}},
	} {
		t.Run(test.address, func(t *testing.T) {
			cmd := child(t, test.address, "https:other:https", oneFile, otherFile, twoFile)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, ln := range test.want {
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(c)
				if want := "hello from " + ln.Addr().String(); err != nil || string(got) != want {
					t.Errorf("read %q, %v; want %q", got, err, want)
				}
				c.Close()
			}
			if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "ok") {
				t.Errorf("child: %v\n%s", err, out.String())
			}
		})
	}
}

func TestSocketActivationErrors(t *testing.T) {
	_, listening := listen(t)
	ln, _ := listen(t)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	connected, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	unixLn, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer unixLn.Close()
	unix, err := unixLn.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	plain, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	for address, want := range map[string]string{
		"fd:4":         "does not listen",
		"fd:5":         "is not a socket",
		"fd:6":         "not a TCP one",
		"fd:99":        "is not a socket passed to this process",
		"fd:2":         "3 or above",
		"fd:":          "3 or above",
		"systemd:nope": `no socket named "nope"`,
		"systemd:":     "no name",
		"systemd:conn": "does not listen",
	} {
		cmd := child(t, address, "https:conn:file:unix", listening, connected, plain, unix)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q; want an error with %q", address, err, out, want)
		}
	}
}

// What systemd passed to another process, say the parent, is not ours.
func TestSocketsOfAnotherProcess(t *testing.T) {
	s := newSockets(nil)
	s.getenv = func(name string) string {
		return map[string]string{"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "https"}[name]
	}
	if _, err := s.open("systemd:https"); err == nil || !strings.Contains(err.Error(), "passed no sockets to this process") {
		t.Errorf("open = %v", err)
	}
}

func TestListenErrorsSayWhatToDo(t *testing.T) {
	ln, _ := listen(t)
	if _, err := newSockets(nil).open(ln.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("open = %v", err) // the program knows its other listeners, and says who has it
	}
	err := explainListen(&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)})
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), "CAP_NET_BIND_SERVICE") {
		t.Errorf("explainListen = %v", err)
	}
}
