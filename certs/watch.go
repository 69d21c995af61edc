package certs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// watcher reports changes in directories.
type watcher interface {
	add(dir string) error
	remove(dir string) error
	list() []string
	events() <-chan fsnotify.Event
	errors() <-chan error
	close() error
}

// inotify is the watcher of the operating system.
type inotify struct{ *fsnotify.Watcher }

func newInotify() (watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return inotify{w}, nil
}

func (w inotify) add(dir string) error          { return w.Watcher.Add(dir) }
func (w inotify) remove(dir string) error       { return w.Watcher.Remove(dir) }
func (w inotify) list() []string                { return w.Watcher.WatchList() }
func (w inotify) events() <-chan fsnotify.Event { return w.Watcher.Events }
func (w inotify) errors() <-chan error          { return w.Watcher.Errors }
func (w inotify) close() error                  { return w.Watcher.Close() }

// watchedDirs returns the directories whose entries decide what a path leads
// to: its own, and that of every symbolic link on the way. A watch on a file
// itself would be lost when the file is replaced, which is how certificates
// are renewed: by rename, by a new link, or, in volumes of Kubernetes, by
// replacing the link ..data that the links of all files go through.
func watchedDirs(path string) []string {
	var dirs []string
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	links := 0
	var walk func(path string)
	walk = func(path string) {
		parent := filepath.Dir(path)
		if parent == path {
			return
		}
		walk(parent)
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&os.ModeSymlink == 0 || links > 40 {
			return
		}
		links++
		dirs = append(dirs, parent)
		target, err := os.Readlink(path)
		if err != nil {
			return
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(parent, target)
		}
		dirs = append(dirs, filepath.Dir(target))
		walk(target)
	}
	walk(abs)
	return append(dirs, filepath.Dir(abs))
}

// exhausted reports whether watching fails because a limit of the kernel is
// reached, rather than for one directory.
func exhausted(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
