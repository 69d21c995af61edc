package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/ocsp"
)

// certificate is what is told of all certificates that share a name.
type certificate struct {
	notAfter time.Time     // the earliest
	lifetime time.Duration // of the one that ends then
	obtained bool
	failing  bool
	staple   time.Time // the earliest; zero: one of them has none
	staples  bool      // at least one names a responder
	failures int       // fetches failed in a row, the most
}

func certificateCollector(read func() []certs.Status, staples func() []ocsp.CertificateStatus) prometheus.Collector {
	var (
		expiry   = gauge("certificate_expiry_timestamp_seconds", "When the certificate expires; absent until it was obtained. Certificates obtained on demand share one value, the earliest.", "certificate")
		lifetime = gauge("certificate_lifetime_seconds", "The whole lifetime of the certificate whose expiry is told.", "certificate")
		failing  = gauge("certificate_failing", "1 while what is served is not what should be served: the last load, issuance or renewal failed.", "certificate")
		fetches  = gauge("ocsp_staple_fetch_failures", "Fetches of the staple that failed in a row; 0: the last one succeeded. Only certificates that name a responder have it.", "certificate")
		staple   = gauge("ocsp_staple_expiry_timestamp_seconds", "Until when the staple held is served; 0: none is held. Only certificates that name a responder have it.", "certificate")
	)
	return pull{
		metrics: []metric{expiry, lifetime, failing, staple, fetches},
		collect: func(emit emit) {
			byName := join(read(), staples)
			for _, name := range slices.Sorted(maps.Keys(byName)) {
				c := byName[name]
				if c.obtained {
					emit(expiry, unix(c.notAfter), name)
					emit(lifetime, c.lifetime.Seconds(), name)
				}
				emit(failing, boolean(c.failing), name)
				if c.staples {
					emit(staple, unix(c.staple), name)
					emit(fetches, float64(c.failures), name)
				}
			}
		},
	}
}

// join puts the certificates and their staples together by name. Several may
// share one; then the earliest end counts, since that is what has to be acted
// upon.
func join(all []certs.Status, staples func() []ocsp.CertificateStatus) map[string]certificate {
	held := map[string]ocsp.CertificateStatus{}
	if staples != nil {
		for _, s := range staples() {
			held[s.Certificate] = s
		}
	}
	byName := map[string]certificate{}
	for _, s := range all {
		c := byName[label(s.Name)]
		if !s.NotAfter.IsZero() && (!c.obtained || s.NotAfter.Before(c.notAfter)) {
			c.notAfter, c.lifetime, c.obtained = s.NotAfter, s.NotAfter.Sub(s.NotBefore), true
		}
		c.failing = c.failing || s.LastError != ""
		if st, ok := held[s.Fingerprint]; ok && s.Fingerprint != "" && st.State != ocsp.StateNoResponder {
			end := st.Expires
			if st.State != ocsp.StateGood {
				end = time.Time{}
			}
			if !c.staples || end.Before(c.staple) {
				c.staple = end
			}
			c.staples = true
			c.failures = max(c.failures, st.Failures)
		}
		byName[label(s.Name)] = c
	}
	return byName
}

func certStatsCollector(read func() certs.Stats) prometheus.Collector {
	var (
		reloads  = counter("certificate_reloads_total", "Changed certificate files, by whether they could be loaded.", "result")
		obtained = counter("certificates_obtained_total", "Attempts to obtain certificates by ACME, renewals included, by result.", "result")
		refused  = counter("certificates_on_demand_refused_total", "Names for which no certificate was obtained on demand: not allowed, or too many.")
		polling  = gauge("certificate_files_polled", "1 while certificate files are polled because they cannot be watched.")
	)
	return pull{
		metrics: []metric{reloads, obtained, refused, polling},
		collect: func(emit emit) {
			s := read()
			emit(reloads, float64(s.Reloads), "success")
			emit(reloads, float64(s.ReloadFailures), "failure")
			emit(obtained, float64(s.Obtained), "success")
			emit(obtained, float64(s.ObtainFailures), "failure")
			emit(refused, float64(s.OnDemandRefused))
			emit(polling, boolean(s.Polling))
		},
	}
}

func clientOCSPCollector(read func() ocsp.CheckerStats) prometheus.Collector {
	checks := counter("client_ocsp_checks_total", "OCSP checks of client certificates, by result: good, revoked, unknown or unavailable.", "result")
	return pull{
		metrics: []metric{checks},
		collect: func(emit emit) {
			s := read()
			for _, r := range union([]string{"good", "revoked", "unknown", "unavailable"}, s.Checks) {
				emit(checks, float64(s.Checks[r]), r)
			}
		},
	}
}

func ocspCollector(read func() ocsp.Stats) prometheus.Collector {
	var (
		fetches = counter("ocsp_fetches_total", "Exchanges with OCSP responders, by result.", "result")
		count   = gauge("ocsp_certificates", "Certificates by what stapling has for them: stapled, revoked, missing (a responder, but no staple now) or no_responder.", "state")
		missing = gauge("ocsp_must_staple_missing", "Certificates that ask for a staple (must-staple) and have none now.")
		persist = counter("ocsp_persist_errors_total", "Responses that could not be written to the state directory.")
		shared  = counter("ocsp_store_operations_total", "Use of the shared store for responses: hit, write or error.", "result")
	)
	return pull{
		metrics: []metric{fetches, count, missing, persist, shared},
		collect: func(emit emit) {
			s := read()
			byResult := map[string]uint64{}
			for r, n := range s.Fetches {
				byResult[string(r)] = n // not String, which is for people
			}
			for _, r := range union([]string{string(ocsp.ResultGood)}, byResult) {
				emit(fetches, float64(byResult[r]), r)
			}
			emit(count, float64(s.Stapled), "stapled")
			emit(count, float64(s.Revoked), "revoked")
			emit(count, float64(s.WithResponder-s.Stapled-s.Revoked), "missing")
			emit(count, float64(s.Certificates-s.WithResponder), "no_responder")
			emit(missing, float64(s.MustStapleMissing))
			emit(persist, float64(s.PersistErrors))
			emit(shared, float64(s.Store.Hits), "hit")
			emit(shared, float64(s.Store.Writes), "write")
			emit(shared, float64(s.Store.Errors), "error")
		},
	}
}

func clientAuthCollector(read func() []ClientAuth) prometheus.Collector {
	var (
		available = gauge("client_auth_available", "0 while a CA, CRL or allow-list file of the site is broken and the site refuses every client.", "site")
		crl       = gauge("client_auth_crl_expiry_timestamp_seconds", "Earliest nextUpdate of the CRLs that decide for the site; absent without any.", "site")
		soft      = counter("client_auth_ocsp_soft_failures_total", "Clients let in without an answer of their OCSP responder (OCSP soft).", "site")
	)
	return pull{
		metrics: []metric{available, crl, soft},
		collect: func(emit emit) {
			seen := map[string]bool{}
			for _, a := range read() {
				site := label(a.Site)
				if seen[site] {
					continue
				}
				seen[site] = true
				emit(available, boolean(a.Available), site)
				if !a.CRLExpiry.IsZero() {
					emit(crl, unix(a.CRLExpiry), site)
				}
				emit(soft, float64(a.SoftFails), site)
			}
		},
	}
}
