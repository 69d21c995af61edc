package certs

import (
	"errors"
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

// exhausted reports whether watching fails because a limit of the kernel is
// reached, rather than for one directory.
func exhausted(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
