package probe

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// writeText writes the report for people.
func writeText(w io.Writer, r *Report) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := func(format string, args ...any) { fmt.Fprintf(tw, format+"\n", args...) }
	name := "no SNI"
	if r.ServerName != "" {
		name = "SNI " + r.ServerName
	}
	p("%s (%s, %s), connects in %s", r.Target, r.Address, name, ms(r.ConnectSeconds))
	textProtocols(p, r)
	textResumption(p, r)
	textStaple(p, r.Staple)
	textChain(p, r.Chain, r.Time)
	if len(r.Required) > 0 {
		p("\nrequired")
		for _, q := range r.Required {
			p("  %s\t%s\t%s", q.Name, yes(q.Holds), clean(q.Reason))
		}
	}
	return tw.Flush()
}

type printf func(format string, args ...any)

func textProtocols(p printf, r *Report) {
	p("\nprotocols")
	for _, v := range r.Versions {
		detail := v.Error
		if v.Accepted {
			detail = strings.TrimSuffix(v.CipherSuite+", "+v.Group, ", ")
		}
		p("  TLS %s\t%s\t%s", v.Version, yes(v.Accepted), clean(detail))
	}
	p("  ALPN\t%s", orNone(strings.Join(r.ALPN, ", ")))
	p("  key exchange\t%s", orNone(strings.Join(r.Groups, ", ")))
	switch {
	case r.ClientAuth.Sent:
		p("  client certificate\tasked for, sent")
	case r.ClientAuth.Requested:
		p("  client certificate\tasked for, none sent")
	default:
		p("  client certificate\tnot asked for")
	}
}

func textResumption(p printf, r *Report) {
	p("\nresumption")
	for _, res := range r.Resumption {
		p("  TLS %s\t%s\t%s", res.Version, yes(res.Resumes), clean(resumptionDetail(res)))
		p("    full\t%s", durations(res.FullSeconds))
		if res.Resumes {
			p("    resumed\t%s", durations(res.ResumedSeconds))
		}
	}
	if s := r.SessionIDs; s != nil {
		detail := s.Error
		switch {
		case s.Resumes:
			detail = "in about " + ms(s.ResumedSeconds)
		case s.Error == "" && !s.Issued:
			detail = "the server assigns none"
		case s.Error == "":
			detail = "assigned, but not resumed"
		}
		p("  TLS 1.2 session ID\t%s\t%s", yes(s.Resumes), clean(detail))
	}
	for _, a := range r.Also {
		p("  also at %s", a.where())
		for _, t := range a.Results {
			p("    TLS %s\t%s\t%s", t.Version, yes(t.Resumed), clean(t.Error))
		}
		if len(a.Results) == 0 {
			p("    nothing to offer: the target itself does not resume")
		}
	}
}

func resumptionDetail(r Resumption) string {
	switch {
	case r.Error != "":
		return r.Error
	case !r.Tickets:
		return "no ticket handed out"
	default:
		return fmt.Sprintf("%d of %d by ticket of %d bytes", r.Resumed, r.Attempts, r.TicketBytes)
	}
}

func durations(d Durations) string {
	if d.Count == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s\tmedian of %d, from %s to %s", ms(d.Median), d.Count, ms(d.Min), ms(d.Max))
}

func textStaple(p printf, s StapleReport) {
	p("\nstaple")
	if s.MustStaple {
		p("  must-staple\tthe certificate asks for one")
	}
	if !s.Present {
		p("  none\t%s", fmt.Sprintf("in %d of %d full handshakes", s.Seen, s.Handshakes))
		return
	}
	if s.Valid {
		p("  valid\t%s, signed by %s", clean(s.Status), clean(s.Signer))
	} else {
		p("  NOT VALID\t%s", clean(s.Error))
	}
	for _, d := range []struct {
		name string
		at   *time.Time
	}{{"produced", s.ProducedAt}, {"this update", s.ThisUpdate}, {"next update", s.NextUpdate}} {
		if d.at != nil {
			p("  %s\t%s", d.name, d.at.Format(time.RFC3339))
		}
	}
	p("  sent\tin %d of %d full handshakes, %d bytes", s.Seen, s.Handshakes, s.Bytes)
}

func textChain(p printf, c Chain, now time.Time) {
	p("\nchain")
	if c.Trusted {
		p("  trusted")
	} else {
		p("  NOT TRUSTED\t%s", clean(c.Error))
	}
	for i, cert := range c.Certificates {
		p("  %d subject\t%s", i, clean(cert.Subject))
		p("    issuer\t%s", clean(cert.Issuer))
		if len(cert.Names) > 0 {
			p("    names\t%s", clean(strings.Join(cert.Names, ", ")))
		}
		p("    valid\t%s to %s, %s", cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), remaining(now, cert.NotAfter))
		p("    key\t%s, signed with %s", cert.Key, cert.SignatureAlgorithm)
		p("    serial\t%s", cert.Serial)
		p("    SHA-256\t%s", cert.SHA256)
	}
}

// remaining says how long a certificate still lasts.
func remaining(now, end time.Time) string {
	left := end.Sub(now)
	switch {
	case left <= 0:
		return "EXPIRED"
	case left < 48*time.Hour:
		return fmt.Sprintf("%d hours left", int(left.Hours()))
	}
	return fmt.Sprintf("%d days left", int(left.Hours()/24))
}

func ms(seconds float64) string { return strconv.FormatFloat(seconds*1000, 'f', 2, 64) + " ms" }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// clean makes text from the server safe to print on a terminal and in one
// column: what cannot be printed is escaped.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}
