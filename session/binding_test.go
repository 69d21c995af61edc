package session

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// A session resumes under the binding that it was made under and no other; in
// every case the handshake succeeds.
func TestBinding(t *testing.T) {
	scope := func(values ...string) Scope { return NewScope().Add("policy", values...).Sum() }
	otherKey := serverCert(pki.Request{})
	renewed := serverCert(pki.Request{Key: defaultCert().PrivateKey.(interface {
		pkiSigner
	})})
	tests := []struct {
		name   string
		change func(p *proxy, c *tls.Config)
		result Result
	}{
		{"nothing changed", func(*proxy, *tls.Config) {}, Hit},
		{"policy loaded again", func(p *proxy, _ *tls.Config) { p.policy.scope = scope("x") }, Hit},
		{"other SNI", func(_ *proxy, c *tls.Config) { c.ServerName = "b.test" }, SNI},
		{"SNI in other case", func(_ *proxy, c *tls.Config) { c.ServerName = "A.tEST" }, Hit},
		{"other scope", func(p *proxy, _ *tls.Config) { p.policy.scope = scope("y") }, ScopeMiss},
		{"scope split otherwise", func(p *proxy, _ *tls.Config) { p.policy.scope = scope("x", "") }, ScopeMiss},
		{"key replaced", func(p *proxy, _ *tls.Config) { p.policy.cert = otherKey }, Key},
		{"certificate renewed with its key", func(p *proxy, _ *tls.Config) { p.policy.cert = renewed }, Hit},
		{"second certificate added", func(p *proxy, _ *tls.Config) {
			p.policy.keys = [][32]byte{keyID(otherKey), keyID(defaultCert())}
		}, Hit},
		{"no certificate any more", func(p *proxy, _ *tls.Config) { p.policy.keys = [][32]byte{} }, Key},
		{"other protocols offered", func(_ *proxy, c *tls.Config) { c.NextProtos = []string{"h2"} }, Hit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version uint16) {
				p := newProxy(t, Options{})
				p.policy.scope = scope("x")
				p.policy.protocols = []string{"h2", "http/1.1"}
				c := client(version, "a.test")
				p.full(t, c)
				keep(c)
				tt.change(p, c)
				p.connect(t, c).want(t, tt.result == Hit, tt.result)
				if n := p.r.Stats().Lookups[tt.result]; n != 1 {
					t.Errorf("counted %d times as %q", n, tt.result)
				}
				// What missed is not lost.
				if tt.result != Hit {
					p.wantEntries(t, 2)
				}
			})
		})
	}
}

// The key is that of the full handshake, over any number of resumptions.
func TestKeyIsInherited(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		c := client(version, "a.test")
		p.full(t, c)
		both := serverCert(pki.Request{})
		p.policy.cert, p.policy.keys = both, [][32]byte{keyID(defaultCert()), keyID(both)}
		p.connect(t, c).want(t, true, Hit)
		p.connect(t, c).want(t, true, Hit)
		p.policy.keys = [][32]byte{keyID(both)} // the old key is gone
		p.connect(t, c).want(t, false, Key)
	})
}

// The time of the original authentication is inherited: a lineage ends exactly
// at its lifetime, however often it was resumed, with a full handshake.
func TestLineageEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		after  time.Duration
		result Result
	}{
		{"one second before", -time.Second, Hit},
		{"at the deadline", 0, Lineage},
		{"one second after", time.Second, Lineage},
		{"long after", time.Hour, Absent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version uint16) {
				p := newProxy(t, Options{Limits: Limits{Lifetime: time.Hour}})
				c := client(version, "a.test")
				p.full(t, c)
				start := time.Now()
				for range 3 {
					time.Sleep(10 * time.Minute)
					p.connect(t, c).want(t, true, Hit)
				}
				time.Sleep(time.Hour + tt.after - time.Since(start))
				p.connect(t, c).want(t, tt.result == Hit, tt.result)
			})
		})
	}
}

// The start of the handshake counts, not its end.
func TestLineageStartsWithTheHandshake(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{Limits: Limits{Lifetime: time.Hour}})
		p.age = 59 * time.Minute
		c := client(version, "a.test")
		p.full(t, c)
		p.age = 0
		p.connect(t, c).want(t, true, Hit)
		time.Sleep(time.Minute)
		p.connect(t, c).want(t, false, Lineage)
	})
}

// A handshake longer than the lifetime leaves nothing that could be resumed.
func TestNoLifeLeft(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{Limits: Limits{Lifetime: time.Minute}})
		p.age = time.Minute
		c := client(version, "a.test")
		p.full(t, c)
		p.wantEntries(t, 0)
		if n := p.r.Stats().NotStored[string(tooOld)]; n != 1 {
			t.Errorf("%d sessions without life, want 1", n)
		}
	})
}

// The clock that runs on while the machine sleeps decides.
func TestWallClockDecides(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{Limits: Limits{Lifetime: time.Hour}})
		c := client(version, "a.test")
		p.full(t, c)
		keep(c)
		p.r.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		p.connect(t, c).want(t, false, Lineage)
		p.r.now = func() time.Time { return time.Now().Add(-4 * time.Second) }
		p.connect(t, c).want(t, true, Hit) // within the skew allowed between replicas
		p.r.now = func() time.Time { return time.Now().Add(-6 * time.Second) }
		p.connect(t, c).want(t, false, Lineage)
	})
}

// Sessions with client certificates live shorter, and no longer than those.
func TestClientCertificateLifetime(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  time.Duration // of the certificate
		life time.Duration
	}{
		{"an hour", 24 * time.Hour, DefaultClientAuthLifetime},
		{"the certificate's end", 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version uint16) {
				p := newProxy(t, Options{})
				p.policy.clientAuth, p.policy.clientCAs = tls.RequireAnyClientCert, nil
				c := client(version, "a.test")
				c.Certificates = []tls.Certificate{*clientCert(testCA(), "someone", time.Now().Add(tt.end))}
				o := p.full(t, c)
				subject := o.server.PeerCertificates[0].Subject.String()
				time.Sleep(tt.life - time.Second)
				o = p.connect(t, c)
				o.want(t, true, Hit)
				if got := o.server.PeerCertificates[0].Subject.String(); got != subject {
					t.Errorf("resumed as %q, want %q", got, subject)
				}
				time.Sleep(time.Second)
				p.connect(t, c).want(t, false, Lineage)
				accounts(t, p.r)
			})
		})
	}
}

// Authorisation runs on resumed connections too, and refuses.
func TestAuthorisationRunsOnResumption(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		p.policy.clientAuth, p.policy.clientCAs = tls.RequireAndVerifyClientCert, testCA().Pool()
		c := client(version, "a.test")
		c.Certificates = []tls.Certificate{*clientCert(testCA(), "someone", notAfter)}
		p.full(t, c)
		resumed := false
		p.policy.authorise = func(cs tls.ConnectionState) error {
			resumed = cs.DidResume && len(cs.VerifiedChains) > 0
			return errRefused
		}
		if o := p.try(c); o.serverErr == nil {
			t.Fatal("the handshake succeeded")
		}
		if !resumed {
			t.Error("the session was not offered for authorisation with its chain")
		}
	})
}

// A CA that is no longer trusted ends sessions even under an equal scope.
func TestOtherCAIsDeclined(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		p := newProxy(t, Options{})
		p.policy.clientAuth, p.policy.clientCAs = tls.RequireAndVerifyClientCert, testCA().Pool()
		c := client(version, "a.test")
		c.Certificates = []tls.Certificate{*clientCert(testCA(), "someone", notAfter)}
		p.full(t, c)
		keep(c)
		other := must(pki.NewRoot(pki.CAOptions{Name: "other root", NotBefore: notBefore, NotAfter: notAfter}))
		p.policy.clientCAs = other.Pool()
		if o := p.try(c); o.serverErr == nil {
			t.Error("a certificate of an unknown CA was let in")
		}
		c.Certificates = []tls.Certificate{*clientCert(other, "someone", notAfter)}
		p.connect(t, c).want(t, false, Declined)
	})
}
