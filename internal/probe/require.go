package probe

import (
	"fmt"
	"slices"
	"strings"
)

// requirement is one word of -require: why returns "" when it holds and
// otherwise the reason why it does not.
type requirement struct {
	name string
	why  func(*Report) string
}

// requirements are the known words, in the order in which help lists them.
func requirements() []requirement {
	return []requirement{
		{"resumption", whyNoResumption},
		{"resumption-1.2", func(r *Report) string { return whyVersionNotResumed(r, "1.2") }},
		{"resumption-1.3", func(r *Report) string { return whyVersionNotResumed(r, "1.3") }},
		{"also", whyNotAlso},
		{"not-also", whyAlso},
		{"staple", whyNoStaple},
		{"trusted", func(r *Report) string { return r.Chain.Error }},
		{"tls1.2", func(r *Report) string { return whyNotAccepted(r, "1.2") }},
		{"tls1.3", func(r *Report) string { return whyNotAccepted(r, "1.3") }},
		{"no-legacy", whyLegacy},
		{"h2", whyNoHTTP2},
		{"post-quantum", whyNotPostQuantum},
	}
}

func requirementNames() []string {
	var names []string
	for _, r := range requirements() {
		names = append(names, r.name)
	}
	return names
}

// checkRequirements judges the names asked for, in the order of the list.
func checkRequirements(names []string, r *Report) []Requirement {
	var out []Requirement
	for _, req := range requirements() {
		if !slices.Contains(names, req.name) {
			continue
		}
		reason := req.why(r)
		out = append(out, Requirement{Name: req.name, Holds: reason == "", Reason: reason})
	}
	return out
}

// whyNoResumption asks for resumption in every version that has sessions and
// that the server accepts.
func whyNoResumption(r *Report) string {
	if len(r.Resumption) == 0 {
		return "neither TLS 1.2 nor TLS 1.3 is accepted"
	}
	for _, res := range r.Resumption {
		if reason := whyVersionNotResumed(r, res.Version); reason != "" {
			return reason
		}
	}
	return ""
}

func whyVersionNotResumed(r *Report, version string) string {
	i := slices.IndexFunc(r.Resumption, func(res Resumption) bool { return res.Version == version })
	if i < 0 {
		return "TLS " + version + " is not accepted"
	}
	res := r.Resumption[i]
	switch {
	case res.Resumes, version == "1.2" && r.SessionIDs != nil && r.SessionIDs.Resumes:
		return ""
	case res.Error != "":
		return fmt.Sprintf("TLS %s: %s", version, res.Error)
	case !res.Tickets:
		return "TLS " + version + ": the server handed out no session"
	default:
		return fmt.Sprintf("TLS %s: none of %d offered sessions was resumed", version, res.Attempts)
	}
}

func whyNotAlso(r *Report) string {
	for _, a := range r.Also {
		if len(a.Results) == 0 {
			return "the target itself resumes nothing"
		}
		for _, t := range a.Results {
			if !t.Resumed {
				return strings.TrimSuffix(fmt.Sprintf("%s does not resume in TLS %s: %s", a.where(), t.Version, t.Error), ": ")
			}
		}
	}
	return ""
}

// whyAlso asks that sessions stay where they were made. An answer that was not
// had proves nothing, so it does not hold either.
func whyAlso(r *Report) string {
	for _, a := range r.Also {
		for _, t := range a.Results {
			switch {
			case t.Resumed:
				return fmt.Sprintf("%s resumes in TLS %s", a.where(), t.Version)
			case t.Error != "":
				return fmt.Sprintf("%s could not be tried in TLS %s: %s", a.where(), t.Version, t.Error)
			}
		}
	}
	return ""
}

func (a Also) where() string {
	if a.ServerName == "" {
		return a.Address
	}
	return a.ServerName + "@" + a.Address
}

func whyNoStaple(r *Report) string {
	switch {
	case !r.Staple.Present:
		return "the server sent none"
	case !r.Staple.Valid:
		return r.Staple.Error
	}
	return ""
}

func whyNotAccepted(r *Report, version string) string {
	for _, v := range r.Versions {
		if v.Version == version && v.Accepted {
			return ""
		} else if v.Version == version {
			return v.Error
		}
	}
	return "not tried"
}

func whyLegacy(r *Report) string {
	for _, v := range r.Versions {
		if v.Accepted && (v.Version == "1.0" || v.Version == "1.1") {
			return "TLS " + v.Version + " is accepted"
		}
	}
	return ""
}

func whyNoHTTP2(r *Report) string {
	if slices.Contains(r.ALPN, "h2") {
		return ""
	}
	return "the server does not choose h2"
}

func whyNotPostQuantum(r *Report) string {
	if slices.ContainsFunc(r.Groups, func(g string) bool { return strings.Contains(g, "MLKEM") }) {
		return ""
	}
	return "no hybrid key exchange with ML-KEM is accepted"
}
