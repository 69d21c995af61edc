package main

import (
	"context"

	"github.com/caddyserver/certmagic"

	"github.com/tlsproxy/tlsproxy/admin"
	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/ocsp"
	"github.com/tlsproxy/tlsproxy/session"
)

// sharedStore is what replicas share; nil: nothing is.
type sharedStore struct{}

func (p *program) buildStore(cfg *config.Config) error { return nil }
func (s *sharedStore) certmagic() certmagic.Storage    { return nil }
func (s *sharedStore) ocsp() ocsp.Store                { return nil }
func (s *sharedStore) sessions() session.Store         { return nil }
func (s *sharedStore) run(ctx context.Context) error   { return nil }
func (s *sharedStore) status() *admin.Store            { return nil }
func (s *sharedStore) close()                          {}
