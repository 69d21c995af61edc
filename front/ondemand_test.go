package front

import (
	"context"
	"crypto/tls"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/certs"
	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// slowStorage answers only when whoever asks gives up.
type slowStorage struct{ certmagic.Storage }

func (slowStorage) Load(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (slowStorage) List(context.Context, string, bool) ([]string, error) { return nil, fs.ErrNotExist }

// TestOnDemandWaitsWithinTheHandshake: a name that is obtained on demand and is
// not there in time gets the default certificate, also when more time was
// configured for it than the handshake has.
func TestOnDemandWaitsWithinTheHandshake(t *testing.T) {
	matrix := newMatrixPKI(t)
	file := t.TempDir() + "/default"
	if err := pki.WritePair(matrix.server.tls(), file+".crt", file+".key"); err != nil {
		t.Fatal(err)
	}
	for wait, want := range map[time.Duration]time.Duration{
		30 * time.Second: DefaultHandshakeTimeout - time.Second,
		2 * time.Second:  2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			store, err := certs.New(certs.Options{Storage: slowStorage{}, Logger: testLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			set, err := store.Load(t.Context(), []certs.Source{
				{Files: &certs.Files{Cert: file + ".crt", Key: file + ".key"}},
				{ACME: &certs.ACME{OnDemand: &certs.OnDemand{Allow: []string{"*.demand.example"}, Wait: wait}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			store.Install(set)
			r := newRig(t, rigOptions{pki: matrix.serverCA, cert: matrix.server, listeners: func(r *rig) []ListenerOptions {
				p := r.policy(PolicyOptions{Site: "default", GetCertificate: store.GetCertificate, Keys: store.Keys})
				return []ListenerOptions{{Address: listenAddr, Table: r.table(p)}}
			}})
			config := r.client("x.demand.example", tls.VersionTLS13, nil)
			config.InsecureSkipVerify = true
			began := time.Now()
			state, _ := r.mustVisit(config)
			if took := time.Since(began); took != want {
				t.Errorf("wait %v: the handshake took %v; want %v", wait, took, want)
			}
			if !state.PeerCertificates[0].Equal(matrix.server.cert) {
				t.Errorf("wait %v: served %v", wait, state.PeerCertificates[0].DNSNames)
			}
		})
	}
}
