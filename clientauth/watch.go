package clientauth

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tlsproxy/tlsproxy/internal/filelinks"
)

const (
	// defaultPoll is how often files are looked at when nothing was noticed.
	defaultPoll = 30 * time.Second
	// pollUnwatched is the same where the kernel does not let us watch.
	pollUnwatched = time.Second
	// settle is how long a directory must be quiet before its files are read,
	// so that several files written together are read together.
	settle = 100 * time.Millisecond
	// settleAtMost bounds the wait in a directory that is never quiet.
	settleAtMost = time.Second
)

// Run follows the files until ctx is done, and returns nil then. A change puts
// new rules in force; a file that is gone or broken closes the site, and the
// next good version opens it again. The directories of files, and of all links on
// the way to them, are watched, so that files replaced by renaming and
// Kubernetes' swap of the ..data link are noticed; the files are also looked at
// every PollInterval, for file systems that tell nothing.
func (v *Verifier) Run(ctx context.Context) error {
	files := v.files.all()
	if len(files) == 0 {
		<-ctx.Done()
		return nil
	}
	w := watcher{v: v, files: files, seen: make(map[string]sight)}
	w.open()
	defer w.close()
	w.run(ctx)
	return nil
}

// Reload reads the files again and puts what they say in force at once. The
// error says why the site is closed now, nil if it is open.
func (v *Verifier) Reload() error {
	v.reload.Lock()
	defer v.reload.Unlock()
	before, next := v.current.Load(), v.load()
	if next.same(before) {
		return before.Err
	}
	v.current.Store(next)
	switch {
	case next.Err != nil:
		v.log.Error("client authentication closed: every client is refused", "site", v.site, "err", next.Err)
	case before.Err != nil:
		v.log.Info("client authentication open again", "site", v.site, "authorities", len(next.anchors))
	default:
		v.log.Info("client authentication reloaded", "site", v.site, "authorities", len(next.anchors))
	}
	return next.Err
}

// same reports whether two snapshots come from the same content.
func (s *Snapshot) same(other *Snapshot) bool {
	if (s.Err == nil) != (other.Err == nil) {
		return false
	}
	if s.Err != nil && s.Err.Error() != other.Err.Error() {
		return false
	}
	return s.content == other.content
}

// watcher is what Run needs while it runs.
type watcher struct {
	v        *Verifier
	files    []string
	seen     map[string]sight  // by path, when last looked at
	notify   *fsnotify.Watcher // nil: polling only
	blind    bool              // not all directories can be watched
	outdated map[string]bool   // lists already reported as out of date
}

func (w *watcher) open() {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.blind = true
		w.v.log.Warn("client authentication files are polled: no file system notices", "site", w.v.site, "err", err)
		return
	}
	w.notify = notify
	w.watch(true)
}

func (w *watcher) close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

// watch follows the directories that matter now, again and again: a link may
// lead elsewhere by now, and a directory that was removed and made anew has lost
// its watch.
func (w *watcher) watch(report bool) {
	if w.notify == nil {
		return
	}
	want := filelinks.Dirs(w.files...)
	for _, dir := range w.notify.WatchList() {
		if !slices.Contains(want, dir) {
			_ = w.notify.Remove(dir) // fails only if it is gone already
		}
	}
	for _, dir := range want {
		if err := w.notify.Add(dir); err != nil && report {
			w.blind = true
			w.v.log.Warn("client authentication files are polled: directory not watched", "site", w.v.site, "dir", dir, "err", err)
		}
	}
}

// interval is how often the files are looked at: a revocation must not wait for
// long only because the kernel allows no more watches.
func (w *watcher) interval() time.Duration {
	if w.blind {
		return min(w.v.poll, pollUnwatched)
	}
	return w.v.poll
}

func (w *watcher) run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	ticker := time.NewTicker(w.interval())
	defer ticker.Stop()
	quiet := time.NewTimer(0) // what changed between New and now
	defer quiet.Stop()
	var first time.Time // of the events not yet acted on
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(min(settle, max(0, settleAtMost-time.Since(first))))
		case <-errs: // events were lost
			quiet.Reset(settle)
		case <-quiet.C:
			first = time.Time{}
			w.look()
		case <-ticker.C:
			w.look()
			w.reportOutdated()
		}
	}
}

// look reads the files again if one of them changed, which an event in a
// directory alone does not say: others may write there all the time. It watches
// before it looks, so that what changes in between is noticed.
func (w *watcher) look() {
	w.watch(false)
	if w.changed() {
		w.v.Reload()
	}
}

// changed reports whether a file may be another one than at the last call.
func (w *watcher) changed() bool {
	changed := false
	for _, path := range w.files {
		now := time.Now()
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		before, seen := w.seen[path]
		if !seen || before.fresh() || !sameFile(before.info, info) {
			changed = true
		}
		w.seen[path] = sight{info, now}
	}
	return changed
}

// sight is what a path led to at one time.
type sight struct {
	info os.FileInfo // nil: no file
	at   time.Time
}

// coarse is more than the step of any file system's clock.
const coarse = 2 * time.Second

// fresh reports whether the file was written so shortly before it was looked at
// that a later write could look the same.
func (s sight) fresh() bool {
	if s.info == nil {
		return false
	}
	age := s.at.Sub(s.info.ModTime())
	return age >= 0 && age < coarse
}

func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// reportOutdated logs each list that decides once when it runs out.
func (w *watcher) reportOutdated() {
	outdated := make(map[string]bool)
	for _, c := range w.v.Status().CRLs {
		if c.Current || !c.Decides {
			continue
		}
		key := c.File + "\x00" + c.Issuer
		outdated[key] = true
		if !w.outdated[key] {
			w.v.log.Warn("client revocation list out of date", "site", w.v.site, "file", c.File,
				"issuer", c.Issuer, "next_update", c.NextUpdate, "still_used", w.v.allowExpiredCRL)
		}
	}
	w.outdated = outdated
}
