package certs

import (
	"context"
	"crypto/tls"
	"testing"
	"time"
)

// TestRevokedBeforeUse: a revocation that becomes known while a certificate is
// prepared, as one does that the state directory tells of, has it replaced.
func TestRevokedBeforeUse(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	dir := t.TempDir()
	one := newACMEStore(t, Options{StateDir: dir})
	p.add(one)
	load(t, one, p.source(nil, "early.test"))
	stop := run(t, one)
	obtained(t, one, 20*time.Second, "early.test")
	old := served(one, "early.test")
	stop()

	var two *Store
	two = newACMEStore(t, Options{StateDir: dir, Prepare: func(_ context.Context, cert *tls.Certificate) error {
		if cert.Leaf.Equal(old) {
			return two.Renew(old)
		}
		return nil
	}})
	p.add(two)
	load(t, two, p.source(nil, "early.test"))
	if !served(two, "early.test").Equal(old) {
		t.Fatal("the stored certificate was not loaded")
	}
	run(t, two)
	eventually(t, 30*time.Second, "replaced", func() bool { return !served(two, "early.test").Equal(old) })
	eventually(t, 10*time.Second, "waiting again", func() bool { return statusOf(two, "early.test").NextAction == "renewal" })
	if p.issued() != 2 {
		t.Errorf("%d certificates were issued; want 2", p.issued())
	}
}

// TestRevokedButReplacedAlready: a replica that still serves a certificate which
// another one has replaced takes the new one from the storage and orders none.
func TestRevokedButReplacedAlready(t *testing.T) {
	t.Parallel()
	p := newPebble(t, pebbleOptions{})
	dir := t.TempDir()
	one, two := newACMEStore(t, Options{StateDir: dir}), newACMEStore(t, Options{StateDir: dir})
	p.add(one)
	load(t, one, p.source(nil, "late.test"))
	run(t, one)
	obtained(t, one, 20*time.Second, "late.test")
	old := served(one, "late.test")
	load(t, two, p.source(nil, "late.test"))
	run(t, two)
	eventually(t, 10*time.Second, "waiting", func() bool { return statusOf(two, "late.test").NextAction == "renewal" })
	if err := one.Renew(old); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "replaced", func() bool { return !served(one, "late.test").Equal(old) })
	if !served(two, "late.test").Equal(old) {
		t.Fatal("the other replica has looked at the storage already")
	}
	if err := two.Renew(old); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "serving what the storage has", func() bool { return served(two, "late.test").Equal(served(one, "late.test")) })
	if p.issued() != 2 {
		t.Errorf("%d certificates were issued; want 2", p.issued())
	}
}
