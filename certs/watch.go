package certs

import (
	"errors"
	"slices"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"github.com/tlsproxy/tlsproxy/internal/filelinks"
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

// notices is a loop's watcher, if there is one.
type notices struct {
	watch watcher // nil: polling
}

// events blocks for ever when files are polled.
func (n *notices) events() <-chan fsnotify.Event {
	if n.watch == nil {
		return nil
	}
	return n.watch.events()
}

func (n *notices) errors() <-chan error {
	if n.watch == nil {
		return nil
	}
	return n.watch.errors()
}

func (n *notices) stopWatching() {
	if n.watch != nil {
		n.watch.close()
		n.watch = nil
	}
}

// followDirs watches the directories that decide what paths lead to now, and no
// other. The error says that watching is no longer possible.
func followDirs(w watcher, paths []string) error {
	want, have := filelinks.Dirs(paths...), w.list()
	for _, dir := range have {
		if !slices.Contains(want, dir) {
			w.remove(dir) // fails only if it is gone already
		}
	}
	for _, dir := range want {
		if slices.Contains(have, dir) {
			continue
		}
		if err := w.add(dir); err != nil && exhausted(err) {
			return err
		}
		// A directory that vanished again is found by the next poll.
	}
	return nil
}

// exhausted reports whether watching fails because a limit of the kernel is
// reached, rather than for one directory.
func exhausted(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
