package filelinks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestDirs: a file behind a link to a directory behind a link to a directory,
// as Kubernetes mounts it into a place that is a link itself.
func TestDirs(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	if err := os.MkdirAll(in("volume", "..1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(in("etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		in("volume", "..data"):  "..1",
		in("volume", "ca.pem"):  filepath.Join("..data", "ca.pem"),
		in("etc", "tls"):        in("volume"),
		in("etc", "circle.pem"): "circle.pem",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("volume", "..1", "ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := Dirs(in("etc", "tls", "ca.pem"), in("etc", "circle.pem"), in("none", "x.pem"))
	want := []string{root, in("etc"), in("volume"), in("volume", "..1")}
	// Links above the test's own directory are not of its making.
	got = slices.DeleteFunc(got, func(dir string) bool { return len(dir) < len(root) })
	if !slices.Equal(got, want) {
		t.Errorf("Dirs = %q; want %q", got, want)
	}
}
