package certs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// quiet is how long no change may be seen before files are read: the
	// parts of a pair are written one after the other.
	quiet = 100 * time.Millisecond
	// patience bounds that wait in a directory that is never quiet.
	patience = 400 * time.Millisecond
	// pollWatched and pollUnwatched are the default intervals for looking at
	// files with and without word of changes.
	pollWatched   = 30 * time.Second
	pollUnwatched = time.Second
	// reviewInterval is how often dates are looked at when none of them is
	// about to matter.
	reviewInterval = time.Hour
)

// fileLoop is the part of Run that keeps files, the development CA's
// certificates and the order of preference by dates current.
type fileLoop struct {
	store *Store
	notices

	// Reloads run beside the loop, because preparing a certificate may take
	// seconds in which other files change too.
	wg        sync.WaitGroup
	busy      map[*fileSource]bool
	missed    map[*fileSource]bool           // a look came while it was busy
	late      chan late                      // a preparation ended that a reload did not wait for
	ready     map[*fileSource][]*certificate // held until their source is reloaded for them
	preparing bool
	done      chan *fileSource // a reload ended; nil: a preparation did
}

func (s *Store) runFiles(ctx context.Context) error {
	l := &fileLoop{
		store: s, busy: make(map[*fileSource]bool), missed: make(map[*fileSource]bool), done: make(chan *fileSource),
		ready: make(map[*fileSource][]*certificate), late: make(chan late),
	}
	defer l.stopWatching()
	defer l.forget(nil)
	defer l.wg.Wait()
	if w, err := s.seams.newWatcher(); err != nil {
		l.poll(err)
	} else {
		l.watch = w
	}
	review := time.NewTimer(0)
	defer review.Stop()
	look := time.NewTimer(0) // the next look at the files
	defer look.Stop()
	var since time.Time // the first change not looked at yet
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.filesWake:
			look.Reset(0)
			review.Reset(0)
		case <-l.events():
			now := time.Now()
			if since.IsZero() {
				since = now
			}
			look.Reset(min(quiet, max(0, patience-now.Sub(since))))
		case err := <-l.errors():
			s.log.Debug("word of changed files was lost", "err", err)
			look.Reset(0)
		case <-look.C:
			since = time.Time{}
			l.look(ctx)
			look.Reset(l.wait())
		case p := <-l.late:
			l.ready[p.source] = append(l.ready[p.source], p.cert)
			if since.IsZero() { // else a look is near
				look.Reset(0)
			}
		case f := <-l.done:
			if f == nil {
				l.preparing = false
				continue
			}
			delete(l.busy, f)
			switch {
			case !since.IsZero(): // a look is near
			case l.missed[f]:
				look.Reset(0)
			default:
				look.Reset(l.wait())
			}
			delete(l.missed, f)
		case <-review.C:
			review.Reset(l.review(ctx))
		}
	}
}

// poll gives up watching.
func (l *fileLoop) poll(reason error) {
	l.stopWatching()
	l.store.stats.watched.Store(0)
	l.store.stats.polling.Store(true)
	l.store.log.Warn("files cannot be watched, so they are polled; raising fs.inotify.max_user_watches or max_user_instances may help",
		"interval", l.interval(), "err", reason)
}

func (l *fileLoop) interval() time.Duration {
	if l.watch == nil {
		return cmp.Or(l.store.options.PollInterval, pollUnwatched)
	}
	return cmp.Or(l.store.options.PollInterval, pollWatched)
}

// look reloads what changed.
func (l *fileLoop) look(ctx context.Context) {
	sources := l.store.fileSources()
	l.follow(sources)
	l.forget(sources)
	now := time.Now()
	for _, f := range sources {
		if l.busy[f] {
			l.missed[f] = true
			continue
		}
		due := !f.retryAt.IsZero() && !now.Before(f.retryAt)
		st := f.takeStamp()
		if st.text != f.stamp.text {
			f.retries = 0
		}
		ready := l.ready[f]
		if due || len(ready) > 0 || st.differs(f.stamp) {
			l.busy[f] = true
			delete(l.ready, f)
			l.beside(ctx, f, func() { l.reload(ctx, f, ready) })
		}
	}
	// Certificates whose preparation failed get another chance.
	if left := l.store.unprepared(); len(left) > 0 && !l.preparing {
		l.preparing = true
		l.beside(ctx, nil, func() { l.store.registry.prepareAll(ctx, left) })
	}
}

// reload reloads a source, for the sake of certificates that are ready now if
// there are any, and has it done again when what is late is prepared.
func (l *fileLoop) reload(ctx context.Context, f *fileSource, ready []*certificate) {
	left := l.store.reload(ctx, f)
	l.store.releaseAll(ready)
	for _, p := range left {
		l.wg.Go(func() {
			p.preparation.wait(ctx)
			select {
			case l.late <- p:
			case <-ctx.Done():
				l.store.registry.release(p.cert)
			}
		})
	}
}

// forget releases what is ready for sources that are gone.
func (l *fileLoop) forget(sources []*fileSource) {
	for f, certs := range l.ready {
		if !slices.Contains(sources, f) {
			l.store.releaseAll(certs)
			delete(l.ready, f)
		}
	}
}

// beside runs work beside the loop, and tells it when that has ended.
func (l *fileLoop) beside(ctx context.Context, f *fileSource, work func()) {
	l.wg.Go(func() {
		work()
		select {
		case l.done <- f:
		case <-ctx.Done():
		}
	})
}

// wait is how long it is until files must be looked at even if nothing
// happens.
func (l *fileLoop) wait() time.Duration {
	wait := l.interval()
	for _, f := range l.store.fileSources() {
		if !l.busy[f] && !f.retryAt.IsZero() {
			wait = min(wait, max(0, time.Until(f.retryAt)))
		}
	}
	return wait
}

// unprepared returns the certificates in use that are not prepared.
func (s *Store) unprepared() []*certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		return nil
	}
	return s.registry.unprepared(s.set.certificates())
}

func (s *Store) fileSources() []*fileSource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return providersOf[*fileSource](s.set)
}

// follow watches the directories that matter now.
func (l *fileLoop) follow(sources []*fileSource) {
	if l.watch == nil {
		return
	}
	var paths []string
	for _, f := range sources {
		paths = append(paths, f.watched()...)
	}
	if err := followDirs(l.watch, paths); err != nil {
		l.poll(err)
		return
	}
	l.store.stats.watched.Store(int64(len(l.watch.list())))
}

// review looks at dates and returns when to do so again.
func (l *fileLoop) review(ctx context.Context) time.Duration {
	s := l.store
	now := time.Now()
	next := now.Add(reviewInterval)
	earlier := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	earlier(s.renewLocal(ctx, now))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set != nil {
		s.publish() // certificates may have become valid, or have expired
		for _, sl := range s.set.slots() {
			s.remind(sl, now)
			if sl.cert != nil {
				earlier(sl.cert.tls.Leaf.NotBefore)
				earlier(sl.cert.tls.Leaf.NotAfter)
			}
		}
	}
	return next.Sub(now) + time.Second // dates are exact to the second
}

// remind logs once a day that a certificate nears its end, which nobody may be
// looking after.
func (s *Store) remind(sl *slot, now time.Time) {
	if sl.cert == nil || now.Sub(sl.reminded) < 24*time.Hour {
		return
	}
	leaf := sl.cert.tls.Leaf
	left := leaf.NotAfter.Sub(now)
	switch {
	case left <= 0:
		s.log.Error("certificate has expired", "certificate", sl.label, "names", sl.cert.names, "not_after", leaf.NotAfter)
	case left < expiryMargin(leaf.NotAfter.Sub(leaf.NotBefore)):
		s.log.Warn("certificate expires soon", "certificate", sl.label, "names", sl.cert.names, "not_after", leaf.NotAfter)
	default:
		return
	}
	sl.reminded = now
}

// expiryMargin is the time before its end at which a certificate should long
// have been renewed: a fifth of its lifetime, two weeks at most.
func expiryMargin(lifetime time.Duration) time.Duration {
	return min(lifetime/5, 14*24*time.Hour)
}

var (
	errEmptied = errors.New("no certificate is left in the directory: those it had are kept")
	errGone    = errors.New("its files are gone: it will go too unless they come back")
)
