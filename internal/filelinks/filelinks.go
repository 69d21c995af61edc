// Package filelinks says where a change of a file can come from, so that
// whoever follows files watches the right directories.
package filelinks

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// maxLinks ends a circle of links, as the kernel does.
const maxLinks = 40

// Dirs returns the directories whose entries decide what the paths lead to: the
// one of each path, and that of every symbolic link on the way. They are given
// sorted, once each, by their real paths, for the same path may lead elsewhere
// after a link was replaced. For one that is not there its nearest parent stands,
// in which it would appear.
//
// A watch on a file itself would be lost when the file is replaced, which is how
// files are renewed: by rename, by a new link, or, in volumes of Kubernetes, by
// replacing the link ..data that the links of all files go through.
func Dirs(paths ...string) []string {
	all := make(map[string]bool)
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		w := walk{}
		w.visit(abs)
		for _, dir := range append(w.dirs, filepath.Dir(abs)) {
			all[existing(dir)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// existing returns the real path of a directory, or of the nearest above it.
func existing(dir string) string {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil || dir == filepath.Dir(dir) {
			return real
		}
		dir = filepath.Dir(dir)
	}
}

// walk is one path on its way through links.
type walk struct {
	dirs  []string
	links int
}

// visit notes the directories of all links in a path.
func (w *walk) visit(path string) {
	parent := filepath.Dir(path)
	if parent == path {
		return
	}
	w.visit(parent)
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink == 0 || w.links > maxLinks {
		return
	}
	w.links++
	w.dirs = append(w.dirs, parent)
	target, err := os.Readlink(path)
	if err != nil {
		return
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(parent, target)
	}
	w.dirs = append(w.dirs, filepath.Dir(target))
	w.visit(target)
}
