//go:build !linux

package testtool

import "testing"

// Isolated fails the test: network and mount namespaces are Linux's.
func Isolated(t *testing.T) bool {
	t.Helper()
	t.Fatal("this test needs Linux, for namespaces of its own")
	return false
}
