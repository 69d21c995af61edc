package proxybench

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// row is one line of the table.
type row struct {
	name    string // for -rows
	title   string
	unit    string
	h2      bool // needs HTTP/2
	fresh   bool // needs a server that has done nothing yet
	only    func(*server) bool
	measure func(*Bench, *running) result
}

// rows lists the lines of the table in their order.
func rows() []row {
	return []row{
		{name: "full13", title: "full handshake, TLS 1.3", unit: "µs", measure: handshakes(tls.VersionTLS13, false)},
		{name: "resumed13", title: "resumed handshake, TLS 1.3", unit: "µs", measure: handshakes(tls.VersionTLS13, true)},
		{name: "full12", title: "full handshake, TLS 1.2", unit: "µs", measure: handshakes(tls.VersionTLS12, false)},
		{name: "resumed12", title: "resumed handshake, TLS 1.2", unit: "µs", measure: handshakes(tls.VersionTLS12, true)},
		{name: "http1", title: "request, HTTP/1.1 kept alive", unit: "µs", measure: func(b *Bench, r *running) result { return b.h2load(r, false) }},
		{name: "http2", title: "request, HTTP/2", unit: "µs", h2: true, measure: func(b *Bench, r *running) result { return b.h2load(r, true) }},
		{name: "bulk", title: "bulk, MiB", unit: "ms", measure: bulk},
		{name: "idle", title: "idle connection", unit: "KiB", fresh: true, measure: (*Bench).idle},
		{name: "session", title: "remembered session", unit: "bytes", fresh: true, only: isTLSProxy, measure: (*Bench).sessionBytes},
	}
}

func handshakes(version uint16, resumed bool) func(*Bench, *running) result {
	return func(b *Bench, r *running) result {
		l, err := b.load(r, b.visitors(r.addr, version, resumed))
		if err != nil {
			return result{err: err}
		}
		return l.result(micros(l.cpu), 1)
	}
}

func bulk(b *Bench, r *running) result {
	l, err := b.load(r, b.downloaders(r.addr))
	if err != nil {
		return result{err: err}
	}
	return l.result(float64(l.cpu)/float64(time.Millisecond), bulkSize>>20)
}

// result divides the server's time, in the unit of the row, by operations.
func (l loaded) result(cpu float64, each int) result {
	if l.ops == 0 {
		return result{err: errors.New("nothing was done in the time")}
	}
	return result{ops: l.ops, p99: l.p99, value: cpu / float64(l.ops*each)}
}

func isTLSProxy(s *server) bool { return s.name == "tlsproxy" }

// sessionBytes asks tlsproxy what a session takes; where sessions are tickets, the
// client holds them.
func (b *Bench) sessionBytes(r *running) result {
	c := &client{bench: b, addr: r.addr, version: tls.VersionTLS13}
	for range b.idleConns {
		if err := c.stranger().visit(false); err != nil {
			return result{err: err}
		}
	}
	admin, err := os.ReadFile(filepath.Join(r.dir, "admin"))
	if err != nil {
		return result{err: err}
	}
	res, err := http.Get("http://" + string(admin) + "/api/status")
	if err != nil {
		return result{err: err}
	}
	defer res.Body.Close()
	var status struct {
		Sessions struct {
			Entries int   `json:"entries"`
			Bytes   int64 `json:"bytes"`
		} `json:"sessions"`
	}
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
		return result{err: fmt.Errorf("/api/status: %w", err)}
	}
	s := status.Sessions
	if s.Entries < b.idleConns {
		return result{err: fmt.Errorf("%d sessions after %d handshakes", s.Entries, b.idleConns)}
	}
	return result{ops: s.Entries, value: float64(s.Bytes) / float64(s.Entries)}
}
