package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

func TestServerThatDoesAllWell(t *testing.T) {
	s := newSite(t, pki.Request{MustStaple: true})
	s.cert.OCSPStaple = s.staple(t, s.cert, pki.ResponderOptions{})
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	r, out := report(t, addr, "-cafile", s.caFile,
		"-require", "resumption,resumption-1.2,resumption-1.3,staple,trusted,tls1.2,tls1.3,h2,no-legacy,post-quantum")
	wantStatus(t, out, exitOK)
	if got := r.acceptedVersions(); !slices.Equal(got, []string{"1.2", "1.3"}) {
		t.Errorf("accepted versions = %v", got)
	}
	for _, v := range []string{"1.2", "1.3"} {
		res := r.resumption(t, v)
		if !res.Resumes || res.Resumed != defaultCount || res.Attempts != defaultCount || res.TicketBytes == 0 || res.Error != "" {
			t.Errorf("TLS %s: %+v", v, res)
		}
		for _, d := range []Durations{res.FullSeconds, res.ResumedSeconds} {
			if d.Count != defaultCount || d.Min <= 0 || d.Median < d.Min || d.Max < d.Median {
				t.Errorf("TLS %s: durations %+v", v, d)
			}
		}
	}
	if r.SessionIDs == nil || r.SessionIDs.Issued || r.SessionIDs.Resumes || r.SessionIDs.Error != "" {
		t.Errorf("session IDs = %+v; Go servers assign none", r.SessionIDs)
	}
	if !slices.Equal(r.ALPN, []string{"h2", "http/1.1"}) {
		t.Errorf("ALPN = %v", r.ALPN)
	}
	if !slices.Contains(r.Groups, "X25519MLKEM768") || !slices.Contains(r.Groups, "P-256") {
		t.Errorf("groups = %v", r.Groups)
	}
	if st := r.Staple; !st.Valid || !st.MustStaple || st.Status != "good" || st.NextUpdate == nil || st.Seen != st.Handshakes || st.Seen == 0 {
		t.Errorf("staple = %+v", st)
	}
	if !r.Chain.Trusted || len(r.Chain.Certificates) != 2 || r.Chain.Certificates[0].Key != "ECDSA P-256" ||
		!slices.Contains(r.Chain.Certificates[0].Names, "localhost") {
		t.Errorf("chain = %+v", r.Chain)
	}
	if len(r.Required) != 10 || r.ServerName != "localhost" || r.ClientAuth.Requested {
		t.Errorf("report = %+v", r)
	}
}

func TestTextForPeople(t *testing.T) {
	s := newSite(t, pki.Request{MustStaple: true})
	s.cert.OCSPStaple = s.staple(t, s.cert, pki.ResponderOptions{})
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	out := run(t, "-cafile", s.caFile, "-require", "resumption,staple", addr)
	wantStatus(t, out, exitOK)
	wantContains(t, out.stdout, "SNI localhost", "TLS 1.0 ", "TLS 1.3 ", "TLS_AES_128_GCM_SHA256", "h2, http/1.1",
		"5 of 5 by ticket", "resumed ", "median of 5", "must-staple", "valid", "good, signed by issuer", "next update",
		"trusted", "days left", "SHA-256", "client certificate  not asked for", "the server assigns none")
	if out.stderr != "" {
		t.Errorf("stderr = %q", out.stderr)
	}
}

func TestServerWithoutResumption(t *testing.T) {
	s := newSite(t, pki.Request{})
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}, SessionTicketsDisabled: true})
	r, out := report(t, addr, "-cafile", s.caFile, "-require", "resumption,staple", "-count", "1")
	wantStatus(t, out, exitFailed)
	for _, v := range []string{"1.2", "1.3"} {
		if res := r.resumption(t, v); res.Resumes || res.Tickets || res.Attempts != 0 || res.Error != "" {
			t.Errorf("TLS %s: %+v", v, res)
		}
	}
	wantContains(t, out.stderr, "required resumption does not hold: TLS 1.2: the server handed out no session",
		"required staple does not hold: the server sent none")
}

// A server whose tickets never work: each process of a fleet with its own keys.
func TestTicketsThatNeverResume(t *testing.T) {
	s := newSite(t, pki.Request{})
	addr := serve(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{s.cert}, NextProtos: []string{"h2", "http/1.1"}}, nil
	}, UnwrapSession: nil, Certificates: []tls.Certificate{s.cert}})
	// A config without keys of its own takes those of the listener's, so
	// those are made unusable by refusing every session.
	refusing := serve(t, &tls.Config{
		Certificates:  []tls.Certificate{s.cert},
		UnwrapSession: func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return nil, nil },
	})
	if r, _ := report(t, addr, "-cafile", s.caFile, "-count", "1"); !r.resumption(t, "1.3").Resumes {
		t.Error("the server that shares its keys does not resume")
	}
	r, out := report(t, refusing, "-cafile", s.caFile, "-require", "resumption", "-count", "2")
	wantStatus(t, out, exitFailed)
	for _, v := range []string{"1.2", "1.3"} {
		if res := r.resumption(t, v); res.Resumes || !res.Tickets || res.Attempts != 2 || res.Resumed != 0 {
			t.Errorf("TLS %s: %+v", v, res)
		}
	}
	wantContains(t, out.stderr, "none of 2 offered sessions was resumed")
}

func TestAlso(t *testing.T) {
	s := newSite(t, pki.Request{})
	key := [32]byte{1}
	server := func(keys [32]byte) string {
		cfg := &tls.Config{Certificates: []tls.Certificate{s.cert}}
		cfg.SetSessionTicketKeys([][32]byte{keys})
		return serve(t, cfg)
	}
	first, same, other := server(key), server(key), server([32]byte{2})
	tests := []struct {
		name, also, require string
		status              int
		resumed             bool
	}{
		{"shared keys", same, "also", exitOK, true},
		{"shared keys, isolation wanted", same, "not-also", exitFailed, true},
		{"other keys", other, "also", exitFailed, false},
		{"other keys, isolation wanted", other, "not-also", exitOK, false},
		{"another name at the same address", "other.localhost", "also", exitOK, true},
		{"another name and address", "other.localhost@" + same, "also", exitOK, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, out := report(t, first, "-cafile", s.caFile, "-also", test.also, "-require", test.require, "-count", "1")
			wantStatus(t, out, test.status)
			if len(r.Also) != 1 || len(r.Also[0].Results) != 2 {
				t.Fatalf("also = %+v", r.Also)
			}
			for _, res := range r.Also[0].Results {
				if res.Resumed != test.resumed || res.Attempts == 0 || res.Error != "" {
					t.Errorf("result = %+v", res)
				}
			}
			if test.also == "other.localhost" && r.Also[0].ServerName != "other.localhost" {
				t.Errorf("server name = %q", r.Also[0].ServerName)
			}
		})
	}
}

// Whether sessions are kept apart cannot be told of a place that does not answer.
func TestAlsoUnreachable(t *testing.T) {
	s := newSite(t, pki.Request{})
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	for _, require := range []string{"also", "not-also"} {
		out := run(t, addr, "-cafile", s.caFile, "-also", closedPort(t), "-require", require, "-count", "1")
		wantStatus(t, out, exitFailed)
		wantContains(t, out.stderr, "required "+require+" does not hold", "connection refused")
	}
}

// closedPort returns an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func TestClientCertificates(t *testing.T) {
	s := newSite(t, pki.Request{})
	client, err := s.ca.Issue(pki.Request{Names: []string{"client"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(s.dir, "client.pem"), filepath.Join(s.dir, "client-key.pem")
	if err := pki.WritePair(client, cert, key); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.Certificate)
	cfg := func(mode tls.ClientAuthType) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{s.cert}, ClientAuth: mode, ClientCAs: pool}
	}
	required := serve(t, cfg(tls.RequireAndVerifyClientCert))
	optional := serve(t, cfg(tls.VerifyClientCertIfGiven))

	t.Run("required, none given", func(t *testing.T) {
		out := run(t, required, "-cafile", s.caFile)
		wantStatus(t, out, exitFailed)
		wantContains(t, out.stderr, "no handshake succeeded", "-cert and -key")
	})
	t.Run("required, given", func(t *testing.T) {
		r, out := report(t, required, "-cafile", s.caFile, "-cert", cert, "-key", key, "-require", "resumption", "-count", "2")
		wantStatus(t, out, exitOK)
		if !r.ClientAuth.Requested || !r.ClientAuth.Sent {
			t.Errorf("client auth = %+v", r.ClientAuth)
		}
	})
	t.Run("optional, none given", func(t *testing.T) {
		r, out := report(t, optional, "-cafile", s.caFile, "-require", "resumption", "-count", "1")
		wantStatus(t, out, exitOK)
		if !r.ClientAuth.Requested || r.ClientAuth.Sent {
			t.Errorf("client auth = %+v", r.ClientAuth)
		}
	})
}

func TestTrust(t *testing.T) {
	good := newSite(t, pki.Request{})
	expired := newSite(t, pki.Request{NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	foreign := newSite(t, pki.Request{Names: []string{"elsewhere.test"}})
	tests := []struct {
		name string
		site *site
		args []string
		want string
	}{
		{"unknown CA", good, nil, "unknown authority"},
		{"expired", expired, []string{"-cafile", expired.caFile}, "expired"},
		{"another name", foreign, []string{"-cafile", foreign.caFile}, "elsewhere.test"},
		{"name asked for", good, []string{"-cafile", good.caFile, "-servername", "nobody.test"}, "nobody.test"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := serve(t, &tls.Config{Certificates: []tls.Certificate{test.site.cert}})
			args := append([]string{addr, "-count", "1", "-require", "resumption"}, test.args...)
			r, out := report(t, args...)
			wantStatus(t, out, exitFailed)
			wantContains(t, out.stderr, "certificate not trusted", test.want, "-insecure")
			if r.Chain.Trusted || !strings.Contains(r.Chain.Error, test.want) {
				t.Errorf("chain = %+v", r.Chain)
			}
			// The rest of the report does not depend on trust.
			if !r.resumption(t, "1.3").Resumes || !r.resumption(t, "1.2").Resumes {
				t.Errorf("resumption = %+v", r.Resumption)
			}
			_, out = report(t, append(args, "-insecure")...)
			wantStatus(t, out, exitOK)
			_, out = report(t, append(args, "-insecure", "-require", "trusted")...)
			wantStatus(t, out, exitFailed)
		})
	}
}

func TestBadStaples(t *testing.T) {
	s := newSite(t, pki.Request{})
	other, err := s.ca.Issue(pki.Request{Names: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	yesterday := func() time.Time { return time.Now().Add(-24 * time.Hour) }
	tests := []struct {
		name   string
		staple []byte
		want   string
	}{
		{"expired", s.staple(t, s.cert, pki.ResponderOptions{Now: yesterday}), "expired"},
		{"revoked", s.staple(t, s.cert, pki.ResponderOptions{Default: pki.Revoked}), "status is revoked"},
		{"unknown", s.staple(t, s.cert, pki.ResponderOptions{Default: pki.Unknown}), "status is unknown"},
		{"of another certificate", s.staple(t, *other, pki.ResponderOptions{}), "no response matching"},
		{"not a response", []byte("<html>busy</html>"), "asn1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cert := s.cert
			cert.OCSPStaple = test.staple
			addr := serve(t, &tls.Config{Certificates: []tls.Certificate{cert}})
			r, out := report(t, addr, "-cafile", s.caFile, "-require", "staple", "-count", "1")
			wantStatus(t, out, exitFailed)
			wantContains(t, out.stderr, "required staple does not hold", test.want)
			if !r.Staple.Present || r.Staple.Valid || !strings.Contains(r.Staple.Error, test.want) {
				t.Errorf("staple = %+v", r.Staple)
			}
			wantContains(t, run(t, addr, "-cafile", s.caFile, "-count", "1").stdout, "NOT VALID", test.want)
		})
	}
}

func TestStapleWithoutVerifierIsNotValid(t *testing.T) {
	s := newSite(t, pki.Request{})
	s.cert.OCSPStaple = s.staple(t, s.cert, pki.ResponderOptions{})
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	var stderr strings.Builder
	status := Command{}.Run(t.Context(), []string{addr, "-cafile", s.caFile, "-require", "staple", "-count", "1"}, io.Discard, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "no verifier") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

// The issuer that a server does not send is found among the trusted CAs.
func TestStapleIssuerFromTrust(t *testing.T) {
	s := newSite(t, pki.Request{})
	s.cert.OCSPStaple = s.staple(t, s.cert, pki.ResponderOptions{})
	s.cert.Certificate = s.cert.Certificate[:1]
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	_, out := report(t, addr, "-cafile", s.caFile, "-require", "staple,trusted", "-count", "1")
	wantStatus(t, out, exitOK)
}

func TestOldServer(t *testing.T) {
	s := newSite(t, pki.Request{KeyType: pki.RSA2048})
	addr := serve(t, &tls.Config{
		Certificates: []tls.Certificate{s.cert},
		MinVersion:   tls.VersionTLS10, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA},
		NextProtos:   []string{"http/1.1"},
	})
	r, out := report(t, addr, "-cafile", s.caFile, "-require", "resumption,no-legacy,tls1.3,h2,post-quantum,resumption-1.3", "-count", "1")
	wantStatus(t, out, exitFailed)
	if got := r.acceptedVersions(); !slices.Equal(got, []string{"1.0", "1.1", "1.2"}) {
		t.Errorf("accepted = %v", got)
	}
	if v := r.Versions[0]; v.CipherSuite != "TLS_RSA_WITH_AES_128_CBC_SHA" || v.Group != "" {
		t.Errorf("TLS 1.0 = %+v", v)
	}
	wantContains(t, out.stderr, "TLS 1.0 is accepted", "does not choose h2", "ML-KEM", "required tls1.3 does not hold",
		"required resumption-1.3 does not hold: TLS 1.3 is not accepted")
	if strings.Contains(out.stderr, "required resumption does not") {
		t.Error("TLS 1.2 alone resumes, and that is all there is")
	}
}

func TestAddressWithoutName(t *testing.T) {
	s := newSite(t, pki.Request{})
	addr := strings.Replace(serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}}), "localhost", "127.0.0.1", 1)
	r, out := report(t, addr, "-cafile", s.caFile, "-require", "resumption", "-count", "1")
	wantStatus(t, out, exitOK)
	if r.ServerName != "" || !r.Chain.Trusted {
		t.Errorf("server name %q, chain %+v", r.ServerName, r.Chain)
	}
}

// A terminal is not to be written to by whoever makes certificates.
func TestEscapes(t *testing.T) {
	s := newSite(t, pki.Request{Template: func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "evil\x1b[2Jname\nvalid  forged"}
	}})
	addr := serve(t, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	out := run(t, addr, "-cafile", s.caFile, "-count", "1")
	if strings.ContainsRune(out.stdout, '\x1b') || strings.Contains(out.stdout, "\nvalid  forged") {
		t.Errorf("control characters reach the terminal:\n%q", out.stdout)
	}
	wantContains(t, out.stdout, `\x1b[2J`)
}

func TestUnreachable(t *testing.T) {
	out := run(t, closedPort(t))
	wantStatus(t, out, exitFailed)
	wantContains(t, out.stderr, "connection refused")
	if out.stdout != "" {
		t.Errorf("stdout = %q", out.stdout)
	}
	// Programs read an object whatever became of the probe.
	target := closedPort(t)
	out = run(t, target, "-json")
	wantStatus(t, out, exitFailed)
	var failure Failure
	if err := json.Unmarshal([]byte(out.stdout), &failure); err != nil || failure.Target != target || !strings.Contains(failure.Error, "connection refused") || failure.Time.IsZero() {
		t.Errorf("-json printed %q: %+v, %v", out.stdout, failure, err)
	}
}

// accept serves raw connections with f until the test ends.
func accept(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func TestServersThatAreNone(t *testing.T) {
	readHello := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	tests := []struct {
		name string
		f    func(net.Conn)
		want string
	}{
		{"silence", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "no answer within 100ms"},
		{"plain HTTP", func(c net.Conn) { readHello(c); _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, "does not look like a TLS handshake"},
		{"close", readHello, "connection closed by the server"},
		{"alert", func(c net.Conn) { readHello(c); _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) }, "alert from the server: handshake failure"},
		{"half a record", func(c net.Conn) { readHello(c); _, _ = c.Write([]byte{22, 3, 3, 1, 0, 2}) }, "connection closed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out := run(t, accept(t, test.f), "-timeout", "100ms")
			wantStatus(t, out, exitFailed)
			wantContains(t, out.stderr, "no handshake succeeded", test.want)
		})
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	addr := accept(t, func(c net.Conn) { cancel(); _, _ = io.Copy(io.Discard, c) })
	var stderr strings.Builder
	status := Command{}.Run(ctx, []string{addr, "-timeout", "1h"}, io.Discard, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

// A server that never closes and never stops talking does not hold the probe up.
func TestServerThatKeepsTalking(t *testing.T) {
	s := newSite(t, pki.Request{})
	addr := accept(t, func(c net.Conn) {
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{s.cert}})
		for conn.SetDeadline(time.Now().Add(5*time.Second)) == nil {
			if _, err := conn.Write(make([]byte, 16<<10)); err != nil {
				return
			}
		}
	})
	began := time.Now()
	r, out := report(t, addr, "-insecure", "-count", "1")
	wantStatus(t, out, exitOK)
	if !r.resumption(t, "1.2").Tickets {
		t.Errorf("resumption = %+v", r.Resumption)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}
