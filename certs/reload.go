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

// reload takes over what is in the files of a source now. What does not load
// leaves the certificate that was loaded before.
func (s *Store) reload(ctx context.Context, f *fileSource) {
	r := f.read()
	f.stamp = r.stamp
	merged := s.merge(f, r)
	var fresh []*certificate
	for _, m := range merged {
		if m.cert != nil {
			fresh = append(fresh, m.cert)
		}
	}
	s.registry.prepareAll(ctx, fresh)

	s.mu.Lock()
	if !s.installed(f) {
		s.mu.Unlock()
		s.releaseAll(fresh)
		return
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
		old = append(old, s.update(m, f.retries > 0, now)...)
	}
	s.publish()
	s.mu.Unlock()
	s.releaseAll(old)
	f.plan(failed, now)
}

// plan sets when files that do not load are looked at again.
func (f *fileSource) plan(failed bool, now time.Time) {
	if !failed {
		f.retries, f.retryAt = 0, time.Time{}
		return
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
