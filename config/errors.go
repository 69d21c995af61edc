package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing wrong with a configuration.
type Error struct {
	File string // as given to Load; may be empty
	Line int    // from 1; 0: not in the file
	Path string // the field, such as sites[0].tls.client_auth.ca_file; empty: the whole file
	Err  error  // what is wrong and what to do
}

// Error is FILE:LINE: PATH: what is wrong.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(cmp.Or(e.File, "config"))
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Errors is everything that is wrong with a configuration, in the order of the
// file's lines.
type Errors []*Error

// Error is one line for each error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors one by one.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// sorted returns the errors by line, those of one line in the order in which
// they were found, or nil if there are none.
func (es Errors) sorted() error {
	if len(es) == 0 {
		return nil
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Compare(a.Line, b.Line)
	})
	return es
}

// problems collects what is wrong with one configuration.
type problems struct {
	config *Config
	found  Errors
	broken map[string]bool // paths of values that could not be read
}

// decoding adds an error of the value at path, which has no good value now.
func (p *problems) decoding(line int, path string, err error) {
	p.found = append(p.found, &Error{File: p.config.file, Line: line, Path: path, Err: err})
	p.broken[path] = true
}

// add adds an error of the value at path, unless it could not even be read: one
// complaint about a value is enough.
func (p *problems) add(path, format string, args ...any) {
	if p.unread(path) {
		return
	}
	err := fmt.Errorf(format, args...)
	p.found = append(p.found, &Error{File: p.config.file, Line: p.config.line(path), Path: path, Err: err})
}

// unread reports whether the value at path, or one that it is a part of, could
// not be read, so that nothing can be concluded from its absence.
func (p *problems) unread(path string) bool {
	for ; path != ""; path = parent(path) {
		if p.broken[path] {
			return true
		}
	}
	return false
}

// At gives err the place of the value at path, such as "certificates[1].key",
// for errors that show only when the value is used: a file that is missing, an
// address in use. A path that is not in the file, because the value is a
// default, gets the line of what it would stand in. A nil err stays nil.
func (c *Config) At(path string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{File: c.file, Line: c.line(path), Path: path, Err: err}
}

// Has reports whether the file itself gives a value at path, so that what is
// there is not a default.
func (c *Config) Has(path string) bool {
	_, ok := c.lines[path]
	return ok
}

// line returns the line of the value at path, or of the nearest value around
// it; 0 if there is none.
func (c *Config) line(path string) int {
	for ; path != ""; path = parent(path) {
		if n, ok := c.lines[path]; ok {
			return n
		}
		// A single issuer's fields may stand in acme itself.
		if n, ok := c.lines[strings.Replace(path, ".issuers[0]", "", 1)]; ok {
			return n
		}
	}
	return 0
}

// parent returns the path of what the value at path is a part of.
func parent(path string) string {
	if cut, ok := strings.CutSuffix(path, `"]`); ok {
		return path[:max(0, strings.LastIndex(cut, `["`))]
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
