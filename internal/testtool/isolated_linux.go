package testtool

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// inNamespace is the variable that marks a test process in a namespace of its
// own, by the name of the test.
const inNamespace = "TLSPROXY_TEST_NAMESPACE"

// Isolated runs the rest of the calling test in a process with a network (only
// loopback) and mounts of its own: for programs that listen on every
// interface, and for full and read-only disks. It reports whether this is that
// process; the other one has nothing left to do, and has failed if it did. It
// needs root or unprivileged user namespaces, and must be called by a test that
// is no sub-test.
func Isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) == t.Name() {
		ip := Require(t, "ip", "iproute2")
		if out, err := exec.CommandContext(t.Context(), ip, "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("ip link set lo up: %v\n%s", err, out)
		}
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatalf("private mounts: %v", err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inNamespace+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a namespace (this needs root or unprivileged user namespaces): %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}
