package config

import (
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
	p := &problems{config: c, broken: make(map[string]bool)}
	d := &decoder{lines: c.lines, problems: p}
	if d.document(data, c) {
		setDefaults(c)
		validate(c, p)
	}
	if err := p.found.sorted(); err != nil {
		return nil, err
	}
	return c, nil
}
