package certs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// loading is one call of Load or Check under way.
type loading struct {
	store *Store
	check bool // validate only
	old   *Set // installed; nil: none
	now   time.Time
	errs  SourceErrors
}

// Check validates sources as Load does, but writes and contacts nothing: it
// makes no CA and does not look into a Storage that was given.
func (s *Store) Check(ctx context.Context, sources []Source) error {
	_, err := s.load(ctx, sources, true)
	return err
}

// Load validates and loads sources. The error, a [SourceErrors], tells all
// that is wrong. A certificate that is already installed is taken over as it
// is; a new one is prepared, which ctx may cut short. A set that will not be
// installed must be given to Discard. There must be one Load, with its Install
// or Discard, at a time.
func (s *Store) Load(ctx context.Context, sources []Source) (*Set, error) {
	set, err := s.load(ctx, sources, false)
	if err != nil {
		s.Discard(set)
		return nil, err
	}
	s.registry.prepareAll(ctx, set.certificates())
	return set, nil
}

// load returns the set even with an error, so that what it holds is released.
func (s *Store) load(ctx context.Context, sources []Source, check bool) (*Set, error) {
	s.mu.Lock()
	l := &loading{store: s, check: check, old: s.set, now: time.Now()}
	s.mu.Unlock()
	set := new(Set)
	for i := range sources {
		if err := ctx.Err(); err != nil {
			return set, err
		}
		if p := l.source(ctx, i, &sources[i]); p != nil {
			set.providers = append(set.providers, p)
		}
	}
	if len(l.errs) > 0 {
		return set, l.errs
	}
	l.carryOnDemand(set)
	return set, nil
}

func (l *loading) fail(source int, errs ...*fieldError) {
	for _, e := range errs {
		l.errs = append(l.errs, &SourceError{Source: source, Field: e.field, File: e.file, Err: e.err})
	}
}

// source loads one source. It returns nil if that is not possible, after
// having noted all reasons.
func (l *loading) source(ctx context.Context, i int, src *Source) provider {
	kinds := 0
	for _, set := range []bool{src.Files != nil, src.Directory != nil, src.ACME != nil, src.Local != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		l.fail(i, &fieldError{err: fmt.Errorf("exactly one of files, directory, acme and local is needed, not %d", kinds)})
		return nil
	case src.Files != nil:
		if errs := src.Files.validate(); len(errs) > 0 {
			l.fail(i, errs...)
			return nil
		}
		return l.files(i, &fileSource{files: src.Files, def: src.Default})
	case src.Directory != nil:
		return l.files(i, &fileSource{directory: src.Directory, def: src.Default})
	case src.Local != nil:
		return l.local(i, src)
	}
	return l.acme(ctx, i, src)
}

// files reads a source of files for the first time.
func (l *loading) files(i int, f *fileSource) provider {
	r := f.read()
	l.fail(i, r.errs...)
	for _, pair := range r.pairs {
		l.fail(i, pair.errs...)
	}
	if l.check {
		return nil
	}
	if len(r.pairs) == 0 && len(r.errs) == 0 {
		l.store.log.Warn("directory has no certificate", "directory", f.directory.Path)
	}
	f.stamp = r.stamp
	for _, pair := range r.pairs {
		if pair.cert != nil {
			f.slots = append(f.slots, f.newSlot(&pair.files, l.store.acquire(pair.cert, pair.files.label())))
		}
	}
	return f
}

// validate checks which fields are set.
func (f *Files) validate() []*fieldError {
	switch {
	case f.PKCS12 != "" && (f.Cert != "" || f.Key != ""):
		return []*fieldError{{field: "pkcs12", err: errors.New("takes the place of cert and key: set one or the other")}}
	case f.PKCS12 == "" && f.Cert == "":
		return []*fieldError{{field: "cert", err: errors.New("the file with the certificate is missing")}}
	}
	return nil
}

// acquire holds a certificate and says what is odd about a new one.
func (s *Store) acquire(c *certificate, label string) *certificate {
	held, fresh := s.registry.acquire(c)
	if !fresh {
		return held
	}
	warnings := c.warnings
	if w := c.dateWarning(time.Now()); w != "" {
		warnings = append([]string{w}, warnings...)
	}
	for _, w := range warnings {
		s.log.Warn("certificate is served in spite of a fault", "certificate", label, "names", c.names, "fault", w)
	}
	return held
}
