package upstream

import "time"

// State is what a pool thinks of a backend.
type State string

const (
	// StateUp takes requests.
	StateUp State = "up"
	// StateDown was taken out by its health checks.
	StateDown State = "down"
	// StateEjected was taken out for a while after failed connection attempts; no
	// backend is, while it has nobody to stand in for it.
	StateEjected State = "ejected"
)

// Status describes a pool at one moment.
type Status struct {
	Name     string          `json:"name"`
	Backends []BackendStatus `json:"backends"`
}

// admitEjected calls up what gets requests for want of a better backend.
func (s *Status) admitEjected() {
	for i := range s.Backends {
		if s.Backends[i].State == StateEjected {
			s.Backends[i].State = StateUp
		}
	}
}

// BackendStatus describes one backend of a pool at one moment.
type BackendStatus struct {
	Backend   string    `json:"backend"`
	State     State     `json:"state"`
	InFlight  int64     `json:"in_flight"`            // requests and upgraded connections, of predecessors too
	Requests  uint64    `json:"requests"`             // tries since the backend was first configured
	Failures  uint64    `json:"failures"`             // tries that gave no response
	LastError string    `json:"last_error,omitempty"` // of a request or a check
	LastCheck time.Time `json:"last_check,omitzero"`
	Since     time.Time `json:"since,omitzero"` // of the last change between up and down
}

// Up reports whether the backend takes requests.
func (b BackendStatus) Up() bool { return b.State == StateUp }
