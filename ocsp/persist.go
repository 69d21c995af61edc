package ocsp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The names in the directory: the SHA-256 of the leaf and one of these.
const (
	goodSuffix    = ".der"
	revokedSuffix = ".revoked.der" // a file of its own, so that no good response can replace it
	tempPrefix    = ".new-"

	unusedFor = 30 * 24 * time.Hour // after which the good response of an unknown certificate goes
)

// disk keeps responses in files, as plain DER, the time of receipt being the
// time of modification. Nothing it does is fatal.
type disk struct {
	dir    string // "": nothing is kept
	log    *slog.Logger
	errors atomic.Uint64

	mu     sync.Mutex
	broken map[string]bool // files that could not be written when last tried
}

func newDisk(stateDir string, log *slog.Logger) *disk {
	d := &disk{log: log, broken: make(map[string]bool)}
	if stateDir != "" {
		d.dir = filepath.Join(stateDir, "ocsp")
	}
	return d
}

func (d *disk) path(e *entry, suffix string) string { return filepath.Join(d.dir, e.id()+suffix) }

// load takes over what is kept for e, after full verification.
func (d *disk) load(s *Stapler, e *entry) {
	if d.dir == "" {
		return
	}
	var kept receipts
	for _, suffix := range []string{revokedSuffix, goodSuffix} {
		r, received, err := d.read(e, suffix, s.opts.Now())
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			s.log.Warn("stored ocsp response is not used", "certificate", e.name(), "file", d.path(e, suffix), "err", err)
		default:
			kept = append(kept, receipt{r, received})
		}
	}
	for _, k := range kept.sorted() {
		s.accept(e, k.response, k.received)
	}
}

func (d *disk) read(e *entry, suffix string, now time.Time) (r *Response, received time.Time, err error) {
	// Not blocking, because opening a named pipe would wait for its writer.
	f, err := os.OpenFile(d.path(e, suffix), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, received, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, received, err
	}
	if !info.Mode().IsRegular() {
		return nil, received, errors.New("not a regular file")
	}
	der, err := io.ReadAll(io.LimitReader(f, maxResponse+1))
	if err != nil {
		return nil, received, err
	}
	received = earliest(info.ModTime(), now)
	r, err = verifyKept(der, e.target, received, now)
	if err == nil && (r.Status == Revoked) != (suffix == revokedSuffix) {
		err = fmt.Errorf("it says %s, which does not belong there", r.Status)
	}
	return r, received, err
}

// verifyKept is [Verify] for a response that was verified when it was received. A
// revocation for good goes on to count when the certificate of the delegate that
// signed it has ended, as it does after its own nextUpdate.
func verifyKept(der []byte, t *target, received, now time.Time) (*Response, error) {
	r, err := Verify(der, t.leaf, t.issuer, now)
	if ReasonOf(err) != ReasonSignerExpired {
		return r, err
	}
	if then, err := Verify(der, t.leaf, t.issuer, received); err == nil && then.final() {
		return then, nil
	}
	return r, err
}

// save writes what e holds.
func (d *disk) save(e *entry) {
	e.mu.Lock()
	r, suffix := e.held, goodSuffix
	if e.revoked != nil {
		r, suffix = e.revoked, revokedSuffix
	}
	e.mu.Unlock()
	if d.dir == "" || r == nil {
		return
	}
	path := d.path(e, suffix)
	d.note(path, d.write(path, r.Raw))
	if suffix == revokedSuffix {
		// Should the revocation not have been written, as on a full disk, the
		// good one must not come back with the next start.
		d.remove(e, goodSuffix)
	}
}

// again tries to write a revocation that could not be: nothing else would, as
// its certificate is not asked about any more.
func (d *disk) again(e *entry) {
	if d.dir == "" || !e.isRevoked() {
		return
	}
	d.mu.Lock()
	broken := d.broken[d.path(e, revokedSuffix)]
	d.mu.Unlock()
	if broken {
		d.save(e)
	}
}

// note counts a failed write, and says when the trouble begins and when the
// last of it is over.
func (d *disk) note(path string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.broken)
	if err == nil {
		delete(d.broken, path)
		if before > 0 && len(d.broken) == 0 {
			d.log.Info("ocsp responses can be stored again", "dir", d.dir)
		}
		return
	}
	d.errors.Add(1)
	d.broken[path] = true
	if before == 0 {
		d.log.Warn("ocsp responses cannot be stored: they are kept in memory alone", "dir", d.dir, "err", err)
	}
}

// write replaces the file at path, or leaves it as it is.
func (d *disk) write(path string, data []byte) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (d *disk) remove(e *entry, suffix string) {
	if d.dir == "" {
		return
	}
	if err := os.Remove(d.path(e, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.errors.Add(1)
	}
}

// prune removes what a killed process left half written, good responses that
// nobody has use for any more, and revocations when no certificate can come back
// that they are about: one may be registered long after Run began, on demand for
// instance, and be offered a good response from before.
func (d *disk) prune(inUse map[string]bool, now time.Time) {
	if d.dir == "" {
		return
	}
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return // it is made by the first write
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		age := now.Sub(info.ModTime())
		id, suffix, isResponse := strings.Cut(f.Name(), ".")
		keep := unusedFor
		if "."+suffix == revokedSuffix {
			keep = revokedForever
		}
		switch {
		case strings.HasPrefix(f.Name(), tempPrefix) && age > time.Hour,
			isResponse && len(id) == 64 && age > keep && !inUse[id]:
			_ = os.Remove(filepath.Join(d.dir, f.Name())) // next time, then
		}
	}
}
