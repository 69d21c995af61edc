package certs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestChangeOfCAWithARestart: the certificate of a CA given up is served from
// the start, until the new one has issued, if it can be.
func TestChangeOfCAWithARestart(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	const given, gone = "given.former.test", "gone.former.test"
	newest := issue(t, ca, pkiRequest(given))
	putStored(t, dir, awayCA, given, issue(t, ca, pki.Request{Names: []string{given}, NotBefore: time.Now().Add(-48 * time.Hour)}))
	putStored(t, dir, "https://127.0.0.1:1/second", given, newest)
	putStored(t, dir, awayCA, gone, issue(t, ca, pki.Request{Names: []string{gone}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}))
	putStored(t, dir, awayCA, "wrong.former.test", newest)
	s := newACMEStore(t, Options{StateDir: dir})
	s.seams.backoff = func(int) time.Duration { return time.Hour }
	load(t, s, Source{ACME: &ACME{
		Hosts: []string{given, gone, "wrong.former.test"}, Issuers: []Issuer{{Directory: "https://127.0.0.1:1/new"}}, DisableARI: true,
	}})
	check := func(when string) {
		t.Helper()
		if !serves(s, given, newest) {
			t.Errorf("%s: the certificate of the former CA is not served", when)
		}
		for _, name := range []string{gone, "wrong.former.test"} {
			if e := s.index.Load().find(name); e != nil {
				t.Errorf("%s: %s is served with what cannot be used", when, name)
			}
		}
	}
	check("at the start")
	run(t, s)
	eventually(t, 30*time.Second, "tried", func() bool { return s.Stats().ObtainFailures == 3 })
	settled(t, s, given)
	check("after an attempt")
	if st := statusOf(s, given); st.ACME.State != ACMEFailed || st.LastError == "" {
		t.Errorf("Status = %+v, ACME %+v", st, st.ACME)
	}
}

// TestStoreTakesOver: a store that is new gets what the state directory has:
// nothing is ordered twice, and the accounts stay.
func TestStoreTakesOver(t *testing.T) {
	t.Parallel()
	const name = "moved.former.test"
	dir, shared := t.TempDir(), t.TempDir()
	cert := issue(t, newCA(t), pkiRequest(name))
	putStored(t, dir, awayCA, name, cert)
	at := siteKey(awayCA, name)
	account := filepath.Join(usersPrefix((&certmagic.ACMEIssuer{CA: awayCA}).IssuerKey()), "default", "default.json")
	writeFile(t, filepath.Join(dir, "acme", account), []byte("{}"))
	s := newACMEStore(t, Options{StateDir: dir, Storage: &certmagic.FileStorage{Path: shared}})
	load(t, s, onDemandSource(nil, name, "new.former.test"))
	if !serves(s, name, cert) {
		t.Error("not served at the start")
	}
	if _, err := os.Stat(filepath.Join(shared, at.crt)); err == nil {
		t.Error("Load changed the store")
	}
	run(t, s)
	eventually(t, 20*time.Second, "waiting for the renewal", func() bool {
		st := statusOf(s, name)
		return st.ACME.State == ACMEValid && st.NextAction == "renewal"
	})
	eventually(t, 20*time.Second, "the account is there", func() bool {
		_, err := os.Stat(filepath.Join(shared, account))
		return err == nil
	})
	for _, file := range []string{at.crt, at.key, at.json} {
		if _, err := os.Stat(filepath.Join(shared, file)); err != nil {
			t.Error(err)
		}
	}
	if !serves(s, name, cert) {
		t.Error("not served any more")
	}
}
