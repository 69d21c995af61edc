package main

import (
	"github.com/tlsproxy/tlsproxy/admin"
	"github.com/tlsproxy/tlsproxy/config"
	"github.com/tlsproxy/tlsproxy/store"
)

// buildStore connects the parts to what replicas share, where a store is
// configured. It contacts nothing.
func (p *program) buildStore(cfg *config.Config) error {
	redis := cfg.Store.Redis
	if redis == nil {
		return nil
	}
	options := store.Options{
		Mode: store.Mode(redis.Mode), Addresses: redis.Addresses, MasterName: redis.MasterName,
		Username: redis.Username, PasswordFile: redis.PasswordFile,
		SentinelUsername: redis.SentinelUsername, SentinelPasswordFile: redis.SentinelPasswordFile,
		DB: redis.DB, Prefix: redis.Prefix, PoolSize: redis.PoolSize, KeyFile: cfg.Store.KeyFile, Timeout: cfg.Store.Timeout, Logger: p.log,
	}
	if redis.TLS != nil {
		client, err := newClient(cfg, "store.redis.tls", *redis.TLS, p.log)
		if err != nil {
			return err
		}
		p.storeClient = client
		options.TLS = client.Config().Clone()
		options.TLS.Certificates, options.TLS.GetClientCertificate = nil, client.GetClientCertificate
	}
	store.LogLibrary(p.log)
	shared, err := store.New(options)
	if err != nil {
		return cfg.At("store", err)
	}
	p.shared = shared
	return nil
}

// reloadStoreKeys reads the store's key file again. It is no part of the
// configuration: a broken one leaves the keys of before in use, is logged and
// counted, and does not keep a reload from happening.
func (p *program) reloadStoreKeys() {
	if p.shared == nil {
		return
	}
	if err := p.shared.ReloadKeys(); err != nil {
		p.log.Error("store keys not reloaded, the old ones stay in use", "err", err)
	}
}

// storeStatus sums up the servers of the store; nil where nothing is shared.
func (p *program) storeStatus() *admin.Store {
	if p.shared == nil {
		return nil
	}
	status := p.shared.Status()
	sum := &admin.Store{Up: true, State: "closed", Details: status}
	for _, server := range status.Servers {
		if server.Since.After(sum.Since) {
			sum.Since = server.Since
		}
		if !server.Up {
			sum.Up, sum.State, sum.LastError = false, "open", server.LastError
		}
	}
	return sum
}
