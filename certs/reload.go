package certs

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// settle is how soon files that do not load are looked at again: mostly
// somebody is still writing.
var settle = [...]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}

// promptly is how long a reload waits for new certificates to be prepared before
// it goes on with those that are.
const promptly = 250 * time.Millisecond

// late is a certificate that a reload left out, because it was still being
// prepared. It is held.
type late struct {
	source      *fileSource
	cert        *certificate
	preparation preparation
}

// reload takes over what is in the files of a source now. What does not load
// leaves the certificate that was loaded before, and so does, for now, what is
// late: the source is to be reloaded when that is prepared.
func (s *Store) reload(ctx context.Context, f *fileSource) (left []late) {
	r := f.read()
	f.stamp = r.stamp
	merged := s.merge(f, r)
	waiting := s.prepare(ctx, merged)
	var fresh []*certificate
	for _, m := range merged {
		if p, ok := waiting[m.cert]; ok {
			left = append(left, late{f, m.cert, p})
		} else if m.cert != nil {
			fresh = append(fresh, m.cert)
		}
	}

	s.mu.Lock()
	if !s.installed(f) {
		s.mu.Unlock()
		s.releaseAll(fresh)
		return left
	}
	var old []*certificate
	now := time.Now()
	failed := false
	f.slots = f.slots[:0:0]
	for _, m := range merged {
		if m.gone {
			if m.slot.cert != nil {
				old = append(old, m.slot.cert)
				s.log.Info("certificate is gone from the directory", "certificate", m.slot.label)
			}
			continue
		}
		f.slots = append(f.slots, m.slot)
		failed = failed || m.err != nil
		if _, ok := waiting[m.cert]; !ok {
			old = append(old, s.update(m, f.retries > 0, now)...)
		}
	}
	s.publish()
	s.mu.Unlock()
	s.releaseAll(old)
	f.plan(failed, now)
	return left
}

// prepare begins to prepare what is new, and returns what did not end promptly.
// That waits for an answer which may take long; what else changed must not.
func (s *Store) prepare(ctx context.Context, merged []merge) map[*certificate]preparation {
	waiting := make(map[*certificate]preparation)
	for _, m := range merged {
		if m.cert == nil || s.registry.tried(m.cert) {
			continue
		}
		if _, twice := waiting[m.cert]; !twice {
			waiting[m.cert] = s.registry.start(ctx, m.cert)
		}
	}
	soon, cancel := context.WithTimeout(ctx, promptly)
	defer cancel()
	for c, p := range waiting {
		p.own = false // no longer than that
		p.wait(soon)
		if s.registry.tried(c) {
			delete(waiting, c)
		}
	}
	return waiting
}

// plan sets when files that do not load are looked at again.
func (f *fileSource) plan(failed bool, now time.Time) {
	if !failed {
		f.retries, f.retryAt = 0, time.Time{}
		return
	}
	if now.Before(f.retryAt) {
		return // reloaded for another reason
	}
	f.retryAt = time.Time{}
	if f.retries < len(settle) {
		f.retryAt = now.Add(settle[f.retries])
		f.retries++
	}
}

// update brings one slot up to date and returns what is to be released. Errors
// are logged when they did not pass by themselves.
func (s *Store) update(m merge, again bool, now time.Time) (old []*certificate) {
	sl := m.slot
	if m.err != nil {
		sl.fail(m.err, now)
		if again && m.err != errGone && sl.logged != m.err.Error() {
			sl.logged = m.err.Error()
			s.stats.reloadFailures.Add(1)
			s.log.Error("changed files do not load; what was loaded before is kept",
				"certificate", sl.label, "served", sl.cert != nil, "err", m.err)
		}
		return nil
	}
	sl.err, sl.logged = nil, ""
	if m.cert == sl.cert {
		return []*certificate{m.cert} // the second hold on the same one
	}
	if sl.cert != nil {
		old = append(old, sl.cert)
	}
	sl.cert, sl.reminded = m.cert, time.Time{}
	s.stats.reloads.Add(1)
	s.log.Info("certificate loaded", "certificate", sl.label, "names", m.cert.names, "not_after", m.cert.tls.Leaf.NotAfter)
	return old
}

// merge is what becomes of one slot: a certificate, which is held, an error,
// or its end.
type merge struct {
	slot *slot
	cert *certificate
	err  error
	gone bool
}

// merge matches a reading with the slots of a source.
func (s *Store) merge(f *fileSource, r reading) []merge {
	s.mu.Lock()
	old := slices.Clone(f.slots)
	s.mu.Unlock()
	byLabel := make(map[string]*slot)
	for _, sl := range old {
		byLabel[sl.label] = sl
	}
	var out []merge
	seen := make(map[string]bool)
	for _, pair := range r.pairs {
		label := pair.files.label()
		seen[label] = true
		m := merge{slot: byLabel[label]}
		if m.slot == nil {
			m.slot = f.newSlot(&pair.files, nil)
		}
		if pair.cert != nil {
			m.cert = s.acquire(pair.cert, label)
		} else {
			m.err = joined(pair.errs)
		}
		out = append(out, m)
	}
	for _, e := range r.errs {
		if !seen[e.file] && byLabel[e.file] == nil {
			seen[e.file] = true
			sl := f.newSlot(&Files{Cert: e.file}, nil)
			out = append(out, merge{slot: sl, err: e})
		}
	}
	for _, sl := range old {
		if !seen[sl.label] {
			out = append(out, f.vanished(sl, r))
		}
	}
	slices.SortStableFunc(out, func(a, b merge) int { return strings.Compare(a.slot.label, b.slot.label) })
	return out
}

// vanished decides about a slot whose pair was not found: it is gone once it
// stays away, unless that is the fault of a directory that could not be read or
// lost everything, as one does whose file system is not mounted.
func (f *fileSource) vanished(sl *slot, r reading) merge {
	for _, e := range r.errs {
		if e.file == sl.label || strings.HasPrefix(sl.label, e.file+string(filepath.Separator)) {
			return merge{slot: sl, err: e}
		}
	}
	if len(r.pairs) == 0 && sl.cert != nil {
		return merge{slot: sl, err: errEmptied}
	}
	if f.retries < len(settle) && sl.cert != nil {
		return merge{slot: sl, err: errGone}
	}
	return merge{slot: sl, gone: true}
}

func joined(errs []*fieldError) error {
	var all []error
	for _, e := range errs {
		all = append(all, e)
	}
	return errors.Join(all...)
}
