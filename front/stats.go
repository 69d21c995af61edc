package front

import "sync/atomic"

// Stats are the counters of a [Front].
type Stats struct {
	// Accepted counts connections accepted from the kernel, AcceptErrors the
	// times that failed.
	Accepted     uint64 `json:"accepted"`
	AcceptErrors uint64 `json:"accept_errors"`
	// Handshaking, Ready and Open are connections now: in PROXY header or
	// handshake, finished and waiting for http.Server, and all that are open
	// (the other two included).
	Handshaking int `json:"handshaking"`
	Ready       int `json:"ready"`
	Open        int `json:"open"`
	// Full counts the times a listener began to wait because of a limit on all
	// connections or handshakes. HeldBack are the connections that wait for it
	// now: one at most for each listening socket, the others are in the kernel.
	// They do not count in Open.
	Full     uint64 `json:"full"`
	HeldBack int    `json:"held_back"`
	// Handshakes counts finished handshakes by version ("1.2", "1.3"), Resumed
	// those of them that resumed a session.
	Handshakes map[string]uint64 `json:"handshakes"`
	Resumed    map[string]uint64 `json:"resumed"`
	// Challenges counts connections that were ACME challenges.
	Challenges uint64 `json:"challenges"`
	// Failures counts connections that did not reach HTTP, by reason; every one
	// of [Reasons] is a key.
	Failures map[Reason]uint64 `json:"failures"`
}

// Status is the state of one listener.
type Status struct {
	// Address is as configured, Bound the addresses that really listen.
	Address string   `json:"address"`
	Bound   []string `json:"bound"`
	// ProxyProtocol is off, optional or required.
	ProxyProtocol string `json:"proxy_protocol"`
	// Sites are the names of the sites with their policies' IDs.
	Sites map[string]string `json:"sites"`
}

// counters is what Stats is made of.
type counters struct {
	accepted, acceptErrors, challenges atomic.Uint64
	waits                              waits
	handshaking, ready, open           atomic.Int64
	done, resumed                      [2]atomic.Uint64 // by version: 1.2, 1.3
	failures                           map[Reason]*atomic.Uint64
}

func newCounters() *counters {
	c := &counters{failures: make(map[Reason]*atomic.Uint64)}
	for _, r := range Reasons() {
		c.failures[r] = new(atomic.Uint64)
	}
	return c
}

func (c *counters) snapshot() Stats {
	s := Stats{
		Accepted:     c.accepted.Load(),
		AcceptErrors: c.acceptErrors.Load(),
		Handshaking:  int(c.handshaking.Load()),
		Ready:        int(c.ready.Load()),
		Open:         int(c.open.Load()),
		Full:         c.waits.begun.Load(),
		HeldBack:     int(c.waits.now.Load()),
		Challenges:   c.challenges.Load(),
		Handshakes:   make(map[string]uint64, len(c.done)),
		Resumed:      make(map[string]uint64, len(c.done)),
		Failures:     make(map[Reason]uint64, len(c.failures)),
	}
	for i, version := range [...]string{"1.2", "1.3"} {
		s.Handshakes[version] = c.done[i].Load()
		s.Resumed[version] = c.resumed[i].Load()
	}
	for r, n := range c.failures {
		s.Failures[r] = n.Load()
	}
	return s
}
