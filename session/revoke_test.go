package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A revocation ends the sessions that it names, and those alone, from the next
// hello on; what is authenticated afterwards resumes again.
func TestRevocation(t *testing.T) {
	cert := clientCert(testCA(), "someone", notAfter)
	named := CertificateSubject(cert.Leaf)
	tests := []struct {
		name    string
		subject Subject
		revoked bool
	}{
		{"all", Subject{Kind: KindAll}, true},
		{"site", Subject{Kind: KindSite, Value: "site"}, true},
		{"other site", Subject{Kind: KindSite, Value: "a.test"}, false},
		{"SNI", Subject{Kind: KindServerName, Value: "A.Test."}, true},
		{"other SNI", Subject{Kind: KindServerName, Value: "site"}, false},
		{"certificate", named, true},
		{"certificate as OpenSSL prints it", Subject{
			Kind: KindCertificate, Issuer: named.Issuer, Serial: colons(cert.Leaf.SerialNumber),
		}, true},
		{"other serial", Subject{Kind: KindCertificate, Issuer: named.Issuer, Serial: "1"}, false},
		{"other issuer", Subject{Kind: KindCertificate, Issuer: "CN=another", Serial: named.Serial}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version uint16) {
				p := newProxy(t, Options{})
				p.policy.clientAuth, p.policy.clientCAs = tls.RequireAndVerifyClientCert, testCA().Pool()
				c := client(version, "a.test")
				c.Certificates = []tls.Certificate{*cert}
				p.full(t, c)
				time.Sleep(time.Second)
				p.connect(t, c).want(t, true, Hit)
				if err := p.r.Revoke(t.Context(), tt.subject); err != nil {
					t.Fatal(err)
				}
				if tt.revoked {
					time.Sleep(time.Millisecond)
					p.connect(t, c).want(t, false, Revoked)
				}
				p.connect(t, c).want(t, true, Hit)
			})
		})
	}
}

// An internationalised name is revoked in the form that people write as well as
// in the one that hellos carry.
func TestRevocationOfAnInternationalName(t *testing.T) {
	for _, name := range []string{"bücher.test", "BÜCHER.test.", "xn--bcher-kva.test", "XN--bcher-kva.Test"} {
		eachVersion(t, func(t *testing.T, version uint16) {
			p := newProxy(t, Options{})
			c := client(version, "xn--bcher-kva.test")
			p.full(t, c)
			if err := p.r.Revoke(t.Context(), Subject{Kind: KindServerName, Value: name}); err != nil {
				t.Fatal(err)
			}
			p.connect(t, c).want(t, false, Revoked)
		})
	}
}

// A clock that was set back does not take sessions out of a revocation's reach:
// those of before the step are revoked too, also when the clock has come to the
// time of their authentication again.
func TestRevocationAfterTheClockWasSetBack(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Second, 10 * time.Minute} {
		eachVersion(t, func(t *testing.T, version uint16) {
			p := newProxy(t, Options{})
			c := client(version, "a.test")
			p.full(t, c)
			keep(c)
			p.r.now = func() time.Time { return time.Now().Add(-step) }
			time.Sleep(time.Second)
			if err := p.r.Revoke(t.Context(), Subject{Kind: KindServerName, Value: "a.test"}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if o := p.connect(t, c); o.server.DidResume {
					t.Fatalf("resumed: %q", o.result)
				}
				time.Sleep(step)
			}
		})
	}
}

// A revocation by site ends what would resume under that site, also where the
// session was made under another name of the same policy: a site that was
// renamed in a reload keeps its sessions, and they end by either name.
func TestRevocationOfARenamedSite(t *testing.T) {
	for _, name := range []string{"site", "renamed"} {
		eachVersion(t, func(t *testing.T, version uint16) {
			p := newProxy(t, Options{})
			c := client(version, "a.test")
			p.full(t, c)
			p.policy.site = "renamed"
			time.Sleep(time.Second)
			p.connect(t, c).want(t, true, Hit)
			if err := p.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: name}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			p.connect(t, c).want(t, false, Revoked)
		})
	}
}

// The same for a resumption under way.
func TestRevocationOfARenamedSiteDuringTheHandshake(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		p.policy.site = "renamed"
		time.Sleep(time.Second)
		p.beforeCommit = func() {
			if err := p.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: "renamed"}); err != nil {
				t.Error(err)
			}
		}
		if o := p.connect(t, c); !errors.Is(o.commitErr, ErrRevoked) {
			t.Errorf("commit: %v, want ErrRevoked", o.commitErr)
		}
	})
}

func colons(serial *big.Int) string {
	hex := fmt.Sprintf("%X", serial)
	if len(hex)%2 == 1 {
		hex = "0" + hex
	}
	var parts []string
	for ; hex != ""; hex = hex[2:] {
		parts = append(parts, hex[:2])
	}
	return strings.Join(parts, ":")
}

// A revocation holds for handshakes under way: a full one leaves no session, a
// resumed one is turned away.
func TestRevocationDuringTheHandshake(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		revoke := func() {
			p.beforeCommit = nil
			if err := p.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: "site"}); err != nil {
				t.Fatal(err)
			}
		}
		c := client(version, "a.test")
		p.beforeCommit = revoke
		if o := p.full(t, c); o.commitErr != nil {
			t.Errorf("a full handshake: %v", o.commitErr)
		}
		p.wantEntries(t, 0)
		time.Sleep(time.Second)
		p.full(t, c)
		time.Sleep(time.Second)
		p.beforeCommit = revoke
		if o := p.connect(t, c); !errors.Is(o.commitErr, ErrRevoked) || o.result != Revoked {
			t.Errorf("a resumed handshake: %v, %q", o.commitErr, o.result)
		}
		time.Sleep(time.Second)
		if o := p.connect(t, c); o.server.DidResume {
			t.Error("resumed afterwards")
		}
	})
}

// Revocations survive a restart.
func TestRevocationsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		store := newFakeStore()
		p := newProxy(t, Options{StateDir: dir, Store: store})
		c := client(tls.VersionTLS13, "a.test")
		p.full(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.r.Run(ctx); err != nil { // writes the session to the store
			t.Fatal(err)
		}
		subjects := []Subject{
			{Kind: KindServerName, Value: "a.test"}, {Kind: KindSite, Value: "x"},
			{Kind: KindCertificate, Issuer: "CN=<&>", Serial: "ff"},
		}
		for _, s := range subjects {
			if err := p.r.Revoke(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		store.records = nil // the store lost them
		again := newProxy(t, Options{StateDir: dir, Store: store})
		if got := again.r.Status().Revoked; len(got) != len(subjects) {
			t.Fatalf("%d revocations after a restart, want %d: %v", len(got), len(subjects), got)
		}
		again.r.current.Store(true)
		again.connect(t, c).want(t, false, Revoked)
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 || files[0].Name() != journalName {
			t.Errorf("in the state directory: %v, %v", files, err)
		}
		info, err := os.Stat(filepath.Join(dir, journalName))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
}

// A damaged file revokes everything up to now, is set aside, and is explained.
func TestDamagedJournalFailsClosed(t *testing.T) {
	damage := map[string]func([]byte) []byte{
		"empty":      func([]byte) []byte { return nil },
		"cut short":  func(b []byte) []byte { return b[:len(b)/2] },
		"one letter": func(b []byte) []byte { return []byte(strings.Replace(string(b), "a.test", "b.test", 1)) },
		"not JSON":   func([]byte) []byte { return []byte("\x00\xff") },
		"newer":      func(b []byte) []byte { return []byte(strings.Replace(string(b), `"version":1`, `"version":2`, 1)) },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, store := t.TempDir(), newFakeStore()
				p := newProxy(t, Options{StateDir: dir, Store: store})
				p.run(t)
				c := client(tls.VersionTLS13, "b.test")
				p.full(t, c)
				if err := p.r.Revoke(t.Context(), Subject{Kind: KindServerName, Value: "a.test"}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				path := filepath.Join(dir, journalName)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, f(b), 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				var log strings.Builder
				again := newProxy(t, Options{StateDir: dir, Store: store, Logger: textLogger(&log)})
				again.r.current.Store(true)
				again.connect(t, c).want(t, false, Revoked)
				if _, err := os.Stat(path + ".corrupt"); err == nil {
					t.Error("New wrote to the state directory")
				}
				again.run(t)
				synctest.Wait()
				if _, err := os.Stat(path + ".corrupt"); err != nil {
					t.Error(err)
				}
				if !strings.Contains(log.String(), "every session made before this start is revoked") {
					t.Errorf("log: %s", log.String())
				}
				third := newProxy(t, Options{StateDir: dir, Store: store})
				if got := third.r.Status().Revoked[0]; got.Kind != KindAll || !got.Local {
					t.Errorf("after another restart: %v", got)
				}
				store.mu.Lock()
				defer store.mu.Unlock()
				if len(store.records) != 1 {
					t.Errorf("the damage of one replica reached the others: %q", store.records)
				}
			})
		})
	}
}

// A directory that cannot be written leaves the revocation in force and says so.
func TestRevocationNotKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, Options{StateDir: filepath.Join(file, "state")})
		time.Sleep(time.Second)
		c := client(tls.VersionTLS13, "a.test")
		p.full(t, c)
		time.Sleep(time.Second)
		if err := p.r.Revoke(t.Context(), Subject{Kind: KindAll}); !errors.Is(err, ErrNotKept) {
			t.Errorf("Revoke: %v", err)
		}
		p.connect(t, c).want(t, false, Revoked)
	})
}

// What is not a subject is refused with a reason, and nothing is revoked.
func TestRevokeRefusesNonsense(t *testing.T) {
	p := newProxy(t, Options{})
	for _, s := range []Subject{
		{}, {Kind: "everything"}, {Kind: KindAll, Value: "x"}, {Kind: KindSite}, {Kind: KindServerName},
		{Kind: KindSite, Value: "x", Serial: "1"}, {Kind: KindCertificate, Issuer: "CN=x"},
		{Kind: KindCertificate, Serial: "1"}, {Kind: KindCertificate, Issuer: "CN=x", Serial: "xyz"},
		{Kind: KindCertificate, Issuer: "CN=x", Serial: "-1"}, {Kind: KindCertificate, Issuer: "CN=x", Serial: " : "},
		{Kind: KindServerName, Value: "*.a.test"}, {Kind: KindServerName, Value: "a.test:443"}, {Kind: KindServerName, Value: " a.test"},
		{Kind: KindServerName, Value: "https://a.test/"}, {Kind: KindServerName, Value: "a..test"}, {Kind: KindServerName, Value: "."},
	} {
		if err := p.r.Revoke(t.Context(), s); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if n := p.r.Stats().Revocations; n != 0 {
		t.Errorf("%d revocations are in force", n)
	}
}

// Records end when no session can fall under them any more.
func TestRevocationsArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, Options{StateDir: t.TempDir()})
		p.run(t)
		for i := range 100 {
			if err := p.r.Revoke(t.Context(), Subject{Kind: KindSite, Value: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(MaxLifetime)
		if n := p.r.Stats().Revocations; n != 100 {
			t.Errorf("%d revocations within the lifetime, want 100", n)
		}
		time.Sleep(2 * time.Hour)
		if n := p.r.Stats().Revocations; n != 0 {
			t.Errorf("%d revocations after it", n)
		}
		if records, err := p.r.journal.load(); err != nil || len(records) != 0 {
			t.Errorf("on disk: %v, %v", records, err)
		}
	})
}

// More revocations than are kept become one of everything.
func TestTooManyRevocations(t *testing.T) {
	v := newRevocations(0)
	now := time.Now()
	for i := range maxRecords {
		v.apply(now, Record{Subject: Subject{Kind: KindSite, Value: fmt.Sprint(i)}, At: now})
	}
	other := entry{auth: now.UnixNano(), site: siteKey("unrelated")}
	if v.covers(&other, 0) {
		t.Fatal("an unrelated session is revoked")
	}
	v.apply(now, Record{Subject: Subject{Kind: KindSite, Value: "one more"}, At: now})
	if !v.covers(&other, 0) || len(v.list()) != 1 {
		t.Errorf("%d records, covers all: %v", len(v.list()), v.covers(&other, 0))
	}
}

// Too many become one once: those that it stands for, met again in a store that
// still has them, and one more, end nothing that was authenticated since.
func TestTooManyRevocationsOnce(t *testing.T) {
	records := make([]Record, maxRecords+1)
	start := time.Now()
	for i := range records {
		records[i] = Record{Subject: Subject{Kind: KindSite, Value: fmt.Sprint(i)}, At: start.Add(time.Duration(i)), Shared: true}
	}
	v := newRevocations(0)
	if _, collapsed := v.apply(start.Add(time.Minute), records...); !collapsed {
		t.Fatal("nothing became one")
	}
	want := Record{Subject: Subject{Kind: KindAll}, At: records[maxRecords].At}
	if got := v.list(); len(got) != 1 || got[0] != want {
		t.Fatalf("they became %v, want %v", got, want)
	}

	since := entry{auth: start.Add(time.Hour).UnixNano(), site: siteKey("unrelated")}
	later := start.Add(2 * time.Hour)
	for i := range 3 {
		v.apply(later, records...)
		v.apply(later, Record{Subject: Subject{Kind: KindSite, Value: fmt.Sprint("new", i)}, At: later})
	}
	if v.covers(&since, 0) {
		t.Error("what was authenticated since ended too")
	}
	if n := len(v.list()); n != 4 {
		t.Errorf("%d records are in force, want that of everything and the 3 of after it", n)
	}

	// Another replica that reads them later, and in another order, comes to the same one.
	slices.Reverse(records)
	other := newRevocations(0)
	other.apply(later, records...)
	if got := other.list(); len(got) != 1 || got[0] != want {
		t.Errorf("another replica came to %v, want %v", got, want)
	}
}

// A revocation of everything takes the place of those before it, and only those.
// One for this replica alone takes the place of none.
func TestRevocationOfEverythingTakesOthersIn(t *testing.T) {
	now := time.Now()
	record := func(kind Kind, value string, at int) Record {
		return Record{Subject: Subject{Kind: kind, Value: value}, At: now.Add(time.Duration(at))}
	}
	v := newRevocations(0)
	v.apply(now, record(KindSite, "before", 1), record(KindSite, "after", 3), record(KindAll, "", 2), record(KindSite, "before again", 2))
	if got := v.list(); len(got) != 2 || got[0].Value != "after" || got[1].Kind != KindAll {
		t.Errorf("in force: %v", got)
	}
	local := record(KindAll, "", 4)
	local.Local = true
	v.apply(now, local)
	if got := v.list(); len(got) != 3 || got[0] != local || v.count.Load() != 3 {
		t.Errorf("with a local one, in force: %v", got)
	}
	if e := (entry{auth: now.Add(4).UnixNano()}); !v.covers(&e, 0) {
		t.Error("the local one covers nothing")
	}
	v.prune(now.Add(recordLife + 5))
	if got := v.list(); len(got) != 0 || v.count.Load() != 0 {
		t.Errorf("after their life: %v", got)
	}
}

// A record from a replica whose clock is wrong revokes no future.
func TestRecordFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(t, Options{})
		fromTheFuture := []SharedRecord{{Record: []byte(`{"kind":"all","at":"2099-01-01T00:00:00Z"}`)}}
		p.r.applyShared(fromTheFuture, true)
		time.Sleep(maxSkew + time.Second)
		c := client(tls.VersionTLS13, "a.test")
		p.full(t, c)
		p.connect(t, c).want(t, true, Hit)
		time.Sleep(time.Minute) // and none of what comes later, when it is met again
		p.r.applyShared(fromTheFuture, true)
		p.connect(t, c).want(t, true, Hit)
	})
}

// A record that this version does not understand revokes everything up to it.
func TestUnknownRecordFailsClosed(t *testing.T) {
	for _, record := range []string{`{"kind":"country","value":"x"}`, `junk`, ``} {
		synctest.Test(t, func(t *testing.T) {
			p := newProxy(t, Options{})
			c := client(tls.VersionTLS13, "a.test")
			p.full(t, c)
			held := []SharedRecord{{Record: []byte(record), End: time.Now().Add(recordLife)}}
			p.r.applyShared(held, true)
			p.connect(t, c).want(t, false, Revoked)
			time.Sleep(time.Minute) // what is made afterwards resumes, though it is read again
			c = client(tls.VersionTLS13, "a.test")
			p.full(t, c)
			p.r.applyShared(held, true)
			p.connect(t, c).want(t, true, Hit)
			if got := p.r.revoked.unshared(time.Now(), 10); len(got) != 0 {
				t.Errorf("it would be given to the other replicas: %v", got)
			}
		})
	}
}

// Looking a revocation up costs the same however many there are, and nothing
// is allocated for it.
func TestRevocationLookupIsConstant(t *testing.T) {
	v := newRevocations(0)
	now := time.Now()
	for i := range maxRecords {
		v.apply(now, Record{Subject: Subject{Kind: KindServerName, Value: fmt.Sprint(i)}, At: now})
	}
	e := entry{auth: now.UnixNano(), site: siteKey("site"), sni: serverName("name"), cert: 1}
	if n := testing.AllocsPerRun(100, func() {
		if v.covers(&e, 0) {
			t.Fatal("covered")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
