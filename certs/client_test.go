package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tlsproxy/tlsproxy/internal/pki"
	"github.com/tlsproxy/tlsproxy/internal/testtool"
)

// runClient runs c until the end of the test.
func runClient(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// presented is the common name of what a server is shown; "": nothing.
func presented(t *testing.T, c *Client) string {
	t.Helper()
	cert, err := c.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	var inConfig *tls.Certificate
	if all := c.Config().Certificates; len(all) > 0 {
		inConfig = &all[0]
	}
	if cert.Leaf == nil {
		if inConfig != nil {
			t.Error("the configuration has a certificate, and GetClientCertificate none")
		}
		return ""
	}
	if inConfig == nil || !inConfig.Leaf.Equal(cert.Leaf) {
		t.Error("the configuration has another certificate than GetClientCertificate")
	}
	return cert.Leaf.Subject.CommonName
}

func TestClientFollowsFiles(t *testing.T) {
	t.Parallel()
	for name, seam := range map[string]func() (watcher, error){
		"watching": newInotify,
		"polling":  func() (watcher, error) { return nil, errors.New("no watches left") },
	} {
		ca, dir := newCA(t), t.TempDir()
		issueTo := func(name string) *tls.Certificate { return issue(t, ca, pki.Request{CommonName: name, Client: true}) }
		pair := writePair(t, dir, "us", issueTo("first"))
		caFile := filepath.Join(dir, "ca.pem")
		writeFile(t, caFile, pki.CertificatePEM(ca.Root()))
		options := ClientOptions{CAFile: caFile, Cert: pair.Cert, Key: pair.Key, ServerName: "backend.test"}
		if name == "watching" {
			options.PollInterval = time.Hour // word of changes must do
		}
		c, err := NewClient(options)
		if err != nil {
			t.Fatal(err)
		}
		c.seams.newWatcher = seam
		runClient(t, c)
		first := c.Config()
		if got := presented(t, c); got != "first" || first.ServerName != "backend.test" || !first.RootCAs.Equal(ca.Pool()) {
			t.Errorf("%s: at first %q is presented, to %q", name, got, first.ServerName)
		}
		is := func(want string) func() bool { return func() bool { return presented(t, c) == want } }
		failing := func() bool { s, _ := c.Status(); return s.LastError != "" }

		next := writePair(t, dir, "next", issueTo("second"))
		for from, to := range map[string]string{next.Key: pair.Key, next.Cert: pair.Cert} {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		testtool.Eventually(t, name+": the second is presented", is("second"))
		if s, ok := c.Status(); !ok || s.Name != pair.Cert || s.Source != SourceClient || !s.NotAfter.Equal(c.Config().Certificates[0].Leaf.NotAfter) {
			t.Errorf("%s: status %+v", name, s)
		}

		// What does not load changes nothing; the same content is no change.
		second := c.Config()
		whole, err := os.ReadFile(pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, pair.Key, whole[:len(whole)/2])
		testtool.Eventually(t, name+": the half key is told", failing)
		writeFile(t, pair.Key, whole)
		testtool.Eventually(t, name+": all is well", func() bool { return !failing() })
		if err := os.Remove(caFile); err != nil {
			t.Fatal(err)
		}
		testtool.Eventually(t, name+": the missing CA file is told", failing)
		if c.Config() != second {
			t.Errorf("%s: the configuration changed without new content", name)
		}
		other := newCA(t)
		writeFile(t, caFile, pki.CertificatePEM(other.Root()))
		testtool.Eventually(t, name+": the other CA is trusted", func() bool { return c.Config().RootCAs.Equal(other.Pool()) })
		if presented(t, c) != "second" || failing() {
			t.Errorf("%s: at the end %q is presented, failing: %v", name, presented(t, c), failing())
		}
	}
}

func TestClientWithoutFiles(t *testing.T) {
	c, err := NewClient(ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runClient(t, c)
	if got := presented(t, c); got != "" || c.Config().RootCAs != nil {
		t.Errorf("%q is presented, with roots %v", got, c.Config().RootCAs)
	}
	if s, ok := c.Status(); ok {
		t.Errorf("status %+v", s)
	}
}

// Every fault is told, with its field.
func TestClientErrors(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	one := writePair(t, dir, "one", issue(t, ca, pki.Request{CommonName: "one", Client: true}))
	two := writePair(t, dir, "two", issue(t, ca, pki.Request{CommonName: "two", Client: true}))
	for _, test := range []struct {
		options ClientOptions
		want    map[string]string // fields and reasons
	}{
		{ClientOptions{CAFile: one.Key}, map[string]string{"ca_file": "no CA certificate"}},
		{ClientOptions{CAFile: dir}, map[string]string{"ca_file": "not a regular file"}},
		{ClientOptions{Cert: one.Cert, Key: two.Key}, map[string]string{"key": "belongs to none"}},
		{ClientOptions{CAFile: "/none", Cert: one.Key, Key: one.Cert}, map[string]string{"ca_file": "no such file", "cert": "certificate", "key": "key"}},
	} {
		_, err := NewClient(test.options)
		errs, ok := errors.AsType[SourceErrors](err)
		if !ok || len(errs) != len(test.want) {
			t.Errorf("%+v: %v", test.options, err)
		}
		for _, e := range errs {
			if want := test.want[e.Field]; want == "" || !strings.Contains(e.Reason(), want) {
				t.Errorf("%+v: %s: %s, want %q", test.options, e.Field, e.Reason(), want)
			}
		}
	}
}
