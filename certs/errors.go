package certs

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownName is returned by [Store.GetCertificate] when no certificate
// carries the name and there is no default, or unknown names are rejected.
var ErrUnknownName = errors.New("no certificate for this name")

// ErrNotACME is returned by [Store.Renew] for a certificate that was not
// obtained by ACME, so that somebody else has to replace it.
var ErrNotACME = errors.New("certificate was not obtained by ACME")

// SourceError is something wrong with one source.
type SourceError struct {
	Source int    // index in the list given to Load
	Field  string // the field at fault by its name in the configuration, for example "acme.issuers[0].ca_file"
	File   string // the file at fault; "": none
	Err    error
}

// Error names the source, the field and, unless Err does, the file.
func (e *SourceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "certificates[%d]", e.Source)
	if e.Field != "" {
		b.WriteString("." + e.Field)
	}
	b.WriteString(": ")
	b.WriteString(e.Reason())
	return b.String()
}

// Reason is the message without the place, for callers that know a better
// one, such as a line of a file.
func (e *SourceError) Reason() string {
	msg := e.Err.Error()
	if e.File == "" || strings.Contains(msg, e.File) {
		return msg
	}
	return fmt.Sprintf("%s: %s", e.File, msg)
}

// Unwrap returns Err.
func (e *SourceError) Unwrap() error { return e.Err }

// SourceErrors is everything that is wrong with a list of sources, in their
// order; never empty when returned as an error.
type SourceErrors []*SourceError

// Error has one line for each error.
func (es SourceErrors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors.
func (es SourceErrors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}
