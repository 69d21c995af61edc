package config

import "errors"

// validate reports everything in c that cannot work or must not.
func validate(c *Config, report func(path string, err error)) {
	if len(c.Listeners) == 0 {
		report("listeners", errors.New("none: give at least one, such as {address: \":8443\"}"))
	}
}
