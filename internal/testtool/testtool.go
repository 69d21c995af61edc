// Package testtool finds the programs that tests run, and waits for what they
// do. Some are built from Go modules on first use, others are packages of the
// operating system. A program that is missing fails the test; nothing is ever
// skipped.
package testtool

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Install returns the path of a program built from a Go package, for example
// Install(t, "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3"). It is
// built once per version and user, into the user's cache directory, by the go
// command; processes that come at the same time wait for the first.
func Install(t testing.TB, pkg string) string {
	t.Helper()
	name, version, ok := strings.Cut(pkg, "@")
	if !ok || version == "" || version == "latest" {
		t.Fatalf("testtool: %q needs a fixed version: package@version", pkg)
	}
	dir := filepath.Join(cacheDir(), "tlsproxy-testtool", toolDir(pkg))
	bin := filepath.Join(dir, path.Base(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("testtool: %v", err)
	}
	unlock := lock(t, filepath.Join(dir, "lock"))
	defer unlock()
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	cmd := exec.CommandContext(t.Context(), "go", "install", "-trimpath", pkg)
	cmd.Dir = dir // outside any module: pkg's own go.mod decides
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testtool: go install %s: %v\n%s", pkg, err, out)
	}
	return bin
}

// Require returns the path of a program of the operating system, looked for
// in $PATH and in the directories of administrators' programs. If it is
// missing, the test fails with the name of the Debian package that has it.
func Require(t testing.TB, binary, debianPackage string) string {
	t.Helper()
	if p, err := exec.LookPath(binary); err == nil {
		return p
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		p := filepath.Join(dir, binary)
		if info, err := os.Stat(p); err == nil && info.Mode()&0o111 != 0 {
			return p
		}
	}
	t.Fatalf("this test needs the program %s: apt-get install %s", binary, debianPackage)
	return ""
}

func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	return os.TempDir()
}

// toolDir is a directory name that is unique for a package and version and
// that people recognise.
func toolDir(pkg string) string {
	sum := sha256.Sum256([]byte(pkg))
	return path.Base(pkg) + "-" + hex.EncodeToString(sum[:4])
}

// lock holds an exclusive lock on a file between processes.
func lock(t testing.TB, file string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatalf("testtool: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("testtool: lock %s: %v", file, err)
	}
	return func() { f.Close() }
}
