package config

// Listening finds the address of the configuration that cannot be bound beside
// the given one, and the field that has it; both are "" if there is none. Names
// of hosts are not resolved.
func (c *Config) Listening(address string) (path, taken string) {
	s, err := parseSocket(address)
	if err != nil {
		return "", ""
	}
	for _, t := range c.sockets() {
		if other, err := parseSocket(t.address); err == nil && s.overlaps(other) {
			return t.path, t.address
		}
	}
	return "", ""
}

// place is an address to listen on and the field that it stands in.
type place struct{ path, address string }

// sockets are the addresses that the configuration listens on.
func (c *Config) sockets() []place {
	var all []place
	for i, l := range c.Listeners {
		all = append(all, place{idx("listeners", i) + ".address", l.Address})
	}
	if c.HTTP.Address != "" {
		all = append(all, place{"http.address", c.HTTP.Address})
	}
	if c.Admin.Address != "off" {
		all = append(all, place{"admin.address", c.Admin.Address})
	}
	return all
}
