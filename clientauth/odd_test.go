package clientauth

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFilesThatAreNone: what is no regular file is an error at once; a named
// pipe would wait for its writer, a device never end.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ca := write(t, dir, "ca.pem", bundle(newCA(t, nil, "ca")))
	for _, path := range []string{fifo, dir, "/dev/zero"} {
		for _, o := range []Options{
			{CAFiles: []string{path}}, {CAFiles: []string{ca}, AllowFiles: []string{path}}, {CAFiles: []string{ca}, CRLFiles: []string{path}},
		} {
			o.Site, o.Mode = "app", Require
			done := make(chan error, 1)
			go func() {
				_, err := New(o)
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "regular file") || !strings.Contains(err.Error(), path) {
					t.Errorf("%+v: New = %v", o, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%+v: New does not return", o)
			}
		}
	}
}
