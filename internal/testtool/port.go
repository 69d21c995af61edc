package testtool

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ports for tests lie below the range from which the kernel takes the ports of
// outgoing connections (32768 and up), so that no connection of another test
// takes one between its choice and its use.
const (
	firstPort = 10_000
	lastPort  = 32_000
)

var nextPort atomic.Uint32

// FreePort returns a TCP port on which nobody listens, to give to a program
// that cannot choose one itself. It is the caller's alone, among all test
// processes of this machine, until this process ends; and so are the ports at
// the given distances above it.
func FreePort(t testing.TB, also ...int) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "tlsproxy-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatalf("testtool: %v", err)
	}
	for range lastPort - firstPort {
		// Processes begin at different places, so they seldom meet.
		n := uint32(os.Getpid())*61 + nextPort.Add(1)
		port := firstPort + int(n%(lastPort-firstPort))
		if free(dir, port, also) {
			return port
		}
	}
	t.Fatal("testtool: no free port")
	return 0
}

// FreeAddr is loopback with a [FreePort].
func FreeAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

func free(dir string, port int, also []int) bool {
	for _, distance := range append([]int{0}, also...) {
		p := port + distance
		if p >= lastPort || !claim(filepath.Join(dir, strconv.Itoa(p))) || !unused(p) {
			return false
		}
	}
	return true
}

// claim locks a file until the process ends; false means that another has it.
func claim(path string) bool {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o666)
	if err != nil {
		return false
	}
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		syscall.Close(fd)
		return false
	}
	return true // the descriptor stays open on purpose
}

func unused(port int) bool {
	ln, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}
