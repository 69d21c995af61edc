package certs

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Run follows the files until ctx is done, and returns nil then. A change holds for
// the next connection; what does not load leaves what was loaded before, which the
// log and [Client.Status] say.
func (c *Client) Run(ctx context.Context) error {
	if len(c.options.paths()) == 0 {
		<-ctx.Done()
		return nil
	}
	l := clientLoop{client: c}
	l.open()
	defer l.stopWatching()
	look := time.NewTimer(0) // what changed between NewClient and now
	defer look.Stop()
	var since time.Time // the first change not looked at yet
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.events():
			now := time.Now()
			if since.IsZero() {
				since = now
			}
			look.Reset(min(quiet, max(0, patience-now.Sub(since))))
		case <-l.errors():
			look.Reset(0)
		case <-look.C:
			since = time.Time{}
			l.follow()
			look.Reset(l.look())
		}
	}
}

// clientLoop is what Run needs while it runs.
type clientLoop struct {
	client *Client
	notices
	retries int    // in a row
	logged  string // the error that was logged last
}

func (l *clientLoop) open() {
	w, err := l.client.seams.newWatcher()
	if err != nil {
		l.poll(err)
		return
	}
	l.watch = w
}

func (l *clientLoop) poll(reason error) {
	l.stopWatching()
	l.client.log.Warn("files cannot be watched, so they are polled; raising fs.inotify.max_user_watches or max_user_instances may help",
		"files", l.client.options.paths(), "interval", l.interval(), "err", reason)
}

func (l *clientLoop) follow() {
	if l.watch == nil {
		return
	}
	if err := followDirs(l.watch, l.client.options.paths()); err != nil {
		l.poll(err)
	}
}

func (l *clientLoop) interval() time.Duration {
	if l.watch == nil {
		return cmp.Or(l.client.options.PollInterval, pollUnwatched)
	}
	return cmp.Or(l.client.options.PollInterval, pollWatched)
}

// look takes over what changed, and returns when to look again if nothing happens.
// An error is logged when it did not pass by itself.
func (l *clientLoop) look() time.Duration {
	c := l.client
	errs := c.reload()
	if len(errs) == 0 {
		l.retries, l.logged = 0, ""
		return l.interval()
	}
	if text := errs.reasons(); l.retries > 0 && text != l.logged {
		l.logged = text
		c.log.Error("changed files for connections to servers do not load; what was loaded before is kept", "files", c.options.paths(), "err", text)
	}
	wait := l.interval()
	if l.retries < len(settle) {
		wait = min(wait, settle[l.retries])
		l.retries++
	}
	return wait
}

// reload reads files that differ from what is in use.
func (c *Client) reload() SourceErrors {
	if c.options.digest() == c.current.Load().digest {
		c.failure.Store(nil)
		return nil
	}
	files, errs := c.options.read()
	if len(errs) > 0 {
		c.failure.Store(&clientFailure{errs, time.Now()})
		return errs
	}
	c.current.Store(files)
	c.failure.Store(nil)
	if files.cert != nil {
		c.log.Info("client certificate loaded", "certificate", c.options.Cert, "not_after", files.cert.tls.Leaf.NotAfter)
	} else {
		c.log.Info("CA certificates loaded", "file", c.options.CAFile)
	}
	return nil
}

// reasons has all messages in one line, without the places.
func (es SourceErrors) reasons() string {
	all := make([]string, len(es))
	for i, e := range es {
		all[i] = e.Reason()
	}
	return strings.Join(all, "; ")
}
