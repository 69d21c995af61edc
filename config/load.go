package config

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// maxFile is the greatest size of a configuration file. A thousand sites take
// some 200 KiB.
const maxFile = 4 << 20

// Load reads the file at path and parses it. Its errors are an [Errors], or that
// of opening or reading the file.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Parse(path, data)
}

// Parse parses the text of a configuration file, fills in defaults and
// validates. The name is used in errors. The error is nil or an [Errors].
func Parse(name string, data []byte) (*Config, error) {
	if len(data) > maxFile {
		err := fmt.Errorf("the file is larger than %d MiB, which no configuration needs", maxFile>>20)
		return nil, Errors{{File: name, Err: err}}
	}
	c := &Config{file: name, lines: make(map[string]int)}
	var es Errors
	d := &decoder{lines: c.lines, report: func(line int, path string, err error) {
		es = append(es, &Error{File: name, Line: line, Path: path, Err: err})
	}}
	if !d.document(data, c) {
		return nil, es.sorted()
	}
	setDefaults(c)
	bad := make(map[string]bool)
	for _, e := range es {
		bad[e.Path] = true
	}
	validate(c, func(path string, err error) {
		if !bad[path] { // one complaint about a value is enough
			es = append(es, &Error{File: name, Line: c.line(path), Path: path, Err: err})
		}
	})
	if err := es.sorted(); err != nil {
		return nil, err
	}
	return c, nil
}

// IsNotFound reports whether err says that the file does not exist.
func IsNotFound(err error) bool { return errors.Is(err, os.ErrNotExist) }
