package probe

import (
	"context"
	"crypto/tls"
	"slices"
	"time"
)

// alsoAttempts is how often a session is offered at another place before the
// answer is no.
const alsoAttempts = 3

// probeResumption measures, for TLS 1.2 and 1.3, a few full handshakes and as
// many that offer the newest ticket.
func (p *prober) probeResumption(ctx context.Context, r *Report) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if accepted(r, v) {
			r.Resumption = append(r.Resumption, p.resumption(ctx, v))
		}
	}
}

func (p *prober) resumption(ctx context.Context, version uint16) Resumption {
	res := Resumption{Version: versionName(version)}
	last, full, err := p.fullSeries(ctx, version)
	res.FullSeconds = sum(full)
	res.Tickets = last != nil
	if err != nil {
		res.Error = reason(err, p.opts.timeout)
		return res
	}
	if last == nil {
		return res
	}
	cache := &sessions{held: last}
	var resumed []time.Duration
	for range p.opts.count {
		res.TicketBytes = ticketBytes(cache.held)
		s, err := p.handshake(ctx, hello{version: version, alpn: p.alpn, sessions: cache})
		if err != nil {
			res.Error = reason(err, p.opts.timeout)
			break
		}
		res.Attempts++
		if s.state.DidResume {
			resumed = append(resumed, s.handshake)
		}
	}
	res.Resumed = len(resumed)
	res.Resumes = res.Resumed > 0
	res.ResumedSeconds = sum(resumed)
	return res
}

// fullSeries makes the full handshakes and returns the last ticket. A server
// that sent none to the first is asked once more, with a request for it to
// answer, and then not waited for again.
func (p *prober) fullSeries(ctx context.Context, version uint16) (*tls.ClientSessionState, []time.Duration, error) {
	var took []time.Duration
	var last *tls.ClientSessionState
	for i := range p.opts.count + 1 {
		cache := &sessions{}
		s, err := p.handshake(ctx, hello{version: version, alpn: p.alpn, sessions: cache,
			ask: i > 0, noTicket: i > 1 && last == nil})
		if err != nil {
			return last, took, err
		}
		if cache.held != nil {
			last = cache.held
		}
		// The first handshake pays for what a server prepares on demand.
		if i > 0 {
			took = append(took, s.handshake)
		}
	}
	return last, took, nil
}

// ticketBytes is the size of what the client sends to be recognised.
func ticketBytes(s *tls.ClientSessionState) int {
	ticket, _, err := s.ResumptionState()
	if err != nil {
		return 0
	}
	return len(ticket)
}

// probeAlso offers sessions made at the target in other places, a fresh one
// each time since a server may accept each only once.
func (p *prober) probeAlso(ctx context.Context, r *Report) {
	for _, t := range p.opts.also {
		also := Also{Address: t.given, ServerName: t.serverName, Results: []AlsoTried{}}
		for _, res := range r.Resumption {
			if !res.Resumes {
				continue
			}
			i := slices.IndexFunc(versions(), func(v uint16) bool { return versionName(v) == res.Version })
			also.Results = append(also.Results, p.resumeAt(ctx, t, versions()[i]))
		}
		r.Also = append(r.Also, also)
	}
}

func (p *prober) resumeAt(ctx context.Context, there target, version uint16) AlsoTried {
	out := AlsoTried{Version: versionName(version)}
	for range alsoAttempts {
		cache := &sessions{}
		if _, err := p.handshake(ctx, hello{version: version, alpn: p.alpn, sessions: cache, ask: true}); err != nil {
			out.Error = "at the target: " + reason(err, p.opts.timeout)
			return out
		}
		if cache.held == nil {
			continue
		}
		s, err := p.shake(ctx, there, hello{version: version, alpn: p.alpn, sessions: cache})
		if err != nil {
			out.Error = reason(err, p.opts.timeout)
			return out
		}
		out.Attempts++
		if s.state.DidResume {
			out.Resumed = true
			return out
		}
	}
	if out.Attempts == 0 {
		out.Error = "at the target: no session was handed out"
	}
	return out
}

// sum sums durations up.
func sum(ds []time.Duration) Durations {
	if len(ds) == 0 {
		return Durations{}
	}
	sorted := slices.Sorted(slices.Values(ds))
	median := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		median = (sorted[len(sorted)/2-1] + median) / 2
	}
	return Durations{
		Count:  len(ds),
		Median: median.Seconds(),
		Min:    sorted[0].Seconds(),
		Max:    sorted[len(sorted)-1].Seconds(),
	}
}
