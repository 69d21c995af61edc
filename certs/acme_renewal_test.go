package certs

import (
	"crypto/tls"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// awayCA is the directory of a CA that nobody can reach.
const awayCA = "https://127.0.0.1:1/dir"

// putStored writes a certificate below a state directory as if that CA had
// issued it.
func putStored(t testing.TB, stateDir, directory, name string, cert *tls.Certificate) {
	t.Helper()
	base := filepath.Join(stateDir, "acme")
	meta, err := json.Marshal(certmagic.CertificateResource{SANs: []string{name}, IssuerData: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(base, siteKey(directory, name).crt), pki.ChainPEM(cert))
	writeFile(t, filepath.Join(base, siteKey(directory, name).key), keyPEM(t, cert))
	writeFile(t, filepath.Join(base, siteKey(directory, name).json), meta)
}

// siteKeys are the places of a certificate in the storage.
type siteKeys struct{ crt, key, json string }

func siteKey(directory, name string) siteKeys {
	issuer := (&certmagic.ACMEIssuer{CA: directory}).IssuerKey()
	return siteKeys{
		certmagic.StorageKeys.SiteCert(issuer, name),
		certmagic.StorageKeys.SitePrivateKey(issuer, name),
		certmagic.StorageKeys.SiteMeta(issuer, name),
	}
}

// settled waits until the worker of a name has gone round once more and waits.
func settled(t testing.TB, s *Store, name string) {
	t.Helper()
	s.mu.Lock()
	var h *acmeHost
	for _, a := range providersOf[*acmeSource](s.set) {
		if have := a.host(name); have != nil {
			h = have
		}
	}
	s.mu.Unlock()
	if h == nil {
		t.Fatalf("%s has no worker", name)
	}
	// The second is taken after the round of the first, the third fits when the
	// second was.
	for range 3 {
		select {
		case h.wake <- struct{}{}:
		case <-time.After(20 * time.Second):
			t.Fatalf("the worker of %s does not wait", name)
		}
	}
}

// TestFailedRenewalIsShown: a renewal that fails is in the status for as long
// as it is so, before and after the certificate has expired, and gone when the
// storage has a newer certificate.
func TestFailedRenewalIsShown(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]time.Duration{"due": time.Hour, "expired": -time.Minute} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ca, dir := newCA(t), t.TempDir()
			name := what + ".failing.test"
			old := issue(t, ca, pki.Request{Names: []string{name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(end)})
			putStored(t, dir, awayCA, name, old)
			s := newACMEStore(t, Options{StateDir: dir})
			s.seams.backoff = func(int) time.Duration { return time.Hour }
			load(t, s, Source{ACME: &ACME{Hosts: []string{name}, Issuers: []Issuer{{Directory: awayCA}}, DisableARI: true}})
			run(t, s)
			eventually(t, 30*time.Second, "tried", func() bool { return s.Stats().ObtainFailures == 1 })
			settled(t, s, name)
			st := statusOf(s, name)
			if st.ACME.State != ACMEFailed || st.ACME.Failures != 1 || !strings.Contains(st.LastError, "127.0.0.1:1") ||
				st.NextAction != "next attempt" || time.Until(st.NextActionAt) < 50*time.Minute {
				t.Errorf("Status = %+v, ACME %+v", st, st.ACME)
			}
			if !serves(s, name, old) {
				t.Error("the certificate is not served any more")
			}
			// Another replica could renew.
			renewed := issue(t, ca, pkiRequest(name))
			putStored(t, dir, awayCA, name, renewed)
			settled(t, s, name)
			if st := statusOf(s, name); st.ACME.State != ACMEValid || st.ACME.Failures != 0 || st.LastError != "" || !serves(s, name, renewed) {
				t.Errorf("after another replica's renewal: Status = %+v, ACME %+v", st, st.ACME)
			}
		})
	}
}
