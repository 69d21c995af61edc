package front

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/clientauth"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
	"github.com/tlsproxy/tlsproxy/session"
)

// A client whose key share the policy does not take is asked for another
// (HelloRetryRequest) and resumes with its second hello.
func TestResumptionAfterHelloRetryRequest(t *testing.T) {
	r := newRig(t, rigOptions{listeners: func(r *rig) []ListenerOptions {
		return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(PolicyOptions{Curves: []tls.CurveID{tls.CurveP384}}))}}
	}})
	cache := &anyName{}
	for i, want := range []string{"resumed=false", "resumed=true", "resumed=true"} {
		config := r.client("app.example", tls.VersionTLS13, cache)
		config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP384}
		state, body := r.mustVisit(config)
		if !state.HelloRetryRequest {
			t.Fatalf("visit %d: no HelloRetryRequest", i)
		}
		wantWords(t, body, want)
	}
	if s := r.sessions.Stats(); s.Lookups[session.Hit] != 2 {
		t.Errorf("lookups %v, want 2 hits", s.Lookups)
	}
}

// A hello with a hundred identities costs as many lookups as crypto/tls looks
// at, and is a full handshake.
func TestManyIdentities(t *testing.T) {
	r := newRig(t, rigOptions{})
	cache := &anyName{}
	r.mustVisit(r.client("app.example", tls.VersionTLS13, cache))
	cache.hold = true
	config := r.client("app.example", tls.VersionTLS13, cache)
	config.CurvePreferences = []tls.CurveID{tls.X25519} // a hello of one record
	raw := r.dial()
	defer raw.Close()
	answer := sayHello(t, raw, withIdentities(t, catchHello(config), 100))
	if len(answer) == 0 || answer[0] != 2 {
		t.Fatalf("answer %v, want a ServerHello", answer)
	}
	raw.Close()
	testtool.Eventually(t, "the handshake to end", func() bool { return len(r.observer.reasons()) == 2 })
	if got := r.sessions.Stats().Lookups; got[session.Malformed] != 5 || got[session.Hit] != 0 {
		t.Errorf("lookups %v, want 5 malformed", got)
	}
}

// withIdentities replaces the pre-shared keys of a hello, its last extension,
// by n of the same size that nobody issued.
func withIdentities(t *testing.T, hello []byte, n int) []byte {
	t.Helper()
	p := 5 + 4 + 2 + 32
	p += 1 + int(hello[p])
	p += 2 + int(binary.BigEndian.Uint16(hello[p:]))
	p += 1 + int(hello[p])
	extensions := p
	for p += 2; binary.BigEndian.Uint16(hello[p:]) != 41; p += 4 + int(binary.BigEndian.Uint16(hello[p+2:])) {
		if p+4 >= len(hello) {
			t.Fatal("no pre-shared key in the hello")
		}
	}
	var identities, binders []byte
	for range n {
		identities = append(identities, 0, 32, 1)
		junk := make([]byte, 31+4)
		rand.Read(junk)
		identities = append(identities, junk...)
		binders = append(binders, append([]byte{32}, make([]byte, 32)...)...)
	}
	body := slices.Concat(binary.BigEndian.AppendUint16(nil, uint16(len(identities))), identities,
		binary.BigEndian.AppendUint16(nil, uint16(len(binders))), binders)
	out := slices.Concat(hello[:p+2], binary.BigEndian.AppendUint16(nil, uint16(len(body))), body)
	binary.BigEndian.PutUint16(out[extensions:], uint16(len(out)-extensions-2))
	binary.BigEndian.PutUint16(out[7:], uint16(len(out)-9))
	binary.BigEndian.PutUint16(out[3:], uint16(len(out)-5))
	return out
}

// Sites open and close to clients without certificates, and sessions are
// revoked, while handshakes run: no connection is ever made under a policy that
// its client does not satisfy, none resumes what was revoked before it began,
// and none is refused but for want of a certificate.
func TestReloadsAndRevocationsUnderHandshakes(t *testing.T) {
	pki := newMatrixPKI(t)
	auth := verifier(t, clientauth.Options{
		Site: "closed", Mode: clientauth.Require, CAFiles: []string{write(t, t.TempDir(), "ca.pem", pki.clientCA.pem())},
	})
	build := func(r *rig, closed bool) []ListenerOptions {
		o := PolicyOptions{Site: "open"}
		if closed {
			o = PolicyOptions{Site: "closed", ClientAuth: auth}
		}
		return []ListenerOptions{{Address: listenAddr, Table: r.table(r.policy(o))}}
	}
	r := newRig(t, rigOptions{pki: pki.serverCA, cert: pki.server, limits: Limits{MaxPerClient: -1},
		listeners: func(r *rig) []ListenerOptions { return build(r, false) }})
	var revoked atomic.Int64 // when the last revocation was in force
	var resumed, refused atomic.Int64
	stop := make(chan struct{})
	var work sync.WaitGroup
	for i := range 16 {
		work.Go(func() {
			c := stormClient{r: r, t: t, cache: &anyName{}, revoked: &revoked, resumed: &resumed, refused: &refused}
			if i%2 == 0 {
				c.cert = pki.client.tls()
			}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					c.visit(versions[i/2%2])
				}
			}
		})
	}
	for i := range 24 {
		r.install(Config{Listeners: build(r, i%2 == 0), Limits: Limits{MaxPerClient: -1}})
		if i%4 == 0 {
			if err := r.sessions.Revoke(t.Context(), session.Subject{Kind: session.KindAll}); err != nil {
				t.Error(err)
			}
			revoked.Store(time.Now().UnixNano())
		}
		done := r.front.Stats().Accepted + 16
		testtool.Eventually(t, "some visits under each policy", func() bool { return r.front.Stats().Accepted >= done })
	}
	close(stop)
	work.Wait()
	if resumed.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d visits resumed and %d were refused: the test shows nothing", resumed.Load(), refused.Load())
	}
	t.Logf("%d accepted, %d resumed, %d refused", r.front.Stats().Accepted, resumed.Load(), refused.Load())
}

// stormClient is one client of TestReloadsAndRevocationsUnderHandshakes.
type stormClient struct {
	r                         *rig
	t                         *testing.T
	cache                     *anyName
	cert                      *tls.Certificate
	proven                    int64 // when its last full handshake ended
	revoked, resumed, refused *atomic.Int64
}

func (c *stormClient) visit(version uint16) {
	config := c.r.client("app.example", version, c.cache)
	if c.cert != nil {
		config.Certificates = []tls.Certificate{*c.cert}
	}
	limit := c.revoked.Load()
	_, body, err := visitOver(c.r.dial(), config)
	switch {
	case err != nil && (alertOf(err) == "" || c.cert != nil):
		// A resumption that a revocation met half-way is closed with a goodbye.
		if !strings.Contains(err.Error(), "EOF") || c.revoked.Load() == limit && !c.revocationNear() {
			c.t.Errorf("with a certificate: %v: %v", c.cert != nil, err)
		}
	case err != nil:
		c.refused.Add(1)
	case strings.Contains(body, "site=closed") && !strings.Contains(body, "client=ann.example"):
		c.t.Errorf("let in without a certificate: %s", body)
	case strings.Contains(body, "site=open") && !strings.Contains(body, "client= "):
		c.t.Errorf("vouched for by a policy that verifies nobody: %s", body)
	case strings.Contains(body, "resumed=true"):
		c.resumed.Add(1)
		if c.proven < limit {
			c.t.Errorf("resumed a session that was revoked %v before", time.Duration(limit-c.proven))
		}
	default:
		c.proven = time.Now().UnixNano()
	}
}

// revocationNear reports whether a revocation may have met the visit although
// its time was not noted yet.
func (c *stormClient) revocationNear() bool {
	return slices.Contains(c.r.observer.reasons(), ReasonSessionRevoked)
}

// Nobody renegotiates: a client that asks to is disconnected, and no second
// handshake is made.
func TestRenegotiationIsRefused(t *testing.T) {
	openssl := testtool.Require(t, "openssl", "openssl")
	r, addr := realRig(t, func(*rig) PolicyOptions { return PolicyOptions{Site: "app"} })
	cmd := exec.CommandContext(t.Context(), openssl, "s_client", "-connect", addr, "-servername", "app.example", "-tls1_2", "-msg")
	cmd.Stdin = strings.NewReader("R\n")
	out, err := cmd.CombinedOutput()
	if !strings.Contains(string(out), "RENEGOTIATING") || strings.Count(string(out), "ServerHelloDone") != 1 {
		t.Errorf("want one handshake and the wish for a second: %v\n%s", err, out)
	}
	testtool.Eventually(t, "the connection to end", func() bool { return r.front.Stats().Open == 0 })
	if n := len(r.observer.reasons()); n != 1 {
		t.Errorf("%d handshakes, want 1", n)
	}
}
