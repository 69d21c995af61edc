package certs

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/caddyserver/certmagic"
)

// place is where certificates of one issuer lie.
type place struct {
	storage   certmagic.Storage
	issuerKey string
}

// places returns where certificates of any issuer lie, of those given up too: in
// the storage, and in the state directory that it took over from.
func (a *acmeSource) places(ctx context.Context) []place {
	var all []place
	for _, s := range []certmagic.Storage{a.storage, a.local} {
		if s == nil {
			continue
		}
		dirs, err := s.List(ctx, certmagic.StorageKeys.CertsPrefix(""), false)
		if err != nil {
			continue // there is nothing yet, or others tell that it is away
		}
		for _, dir := range dirs {
			all = append(all, place{s, path.Base(dir)})
		}
	}
	return all
}

// former returns the newest certificate for a name that can be served until one
// of the configured issuers has issued; nil if there is none.
func (a *acmeSource) former(ctx context.Context, name string, places []place) *certificate {
	var best *certificate
	for _, p := range places {
		c, err := loadPair(ctx, p.storage, p.issuerKey, name)
		if err != nil || !c.current(time.Now()) || !c.carries(name) {
			continue
		}
		if best == nil || c.tls.Leaf.NotBefore.After(best.tls.Leaf.NotBefore) {
			best = c
		}
	}
	return best
}

// importLocal copies what the state directory has for a name, and the accounts,
// into a store that is new and has neither, so that nothing is ordered twice.
func (a *acmeSource) importLocal(ctx context.Context, name string) error {
	if a.local == nil {
		return nil
	}
	for i := range a.issuers {
		key := a.issuers[i].key()
		if err := a.importCertificate(ctx, key, name); err != nil {
			return err
		}
		if err := a.importAccounts(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (a *acmeSource) importCertificate(ctx context.Context, issuerKey, name string) error {
	c, err := loadPair(ctx, a.local, issuerKey, name)
	if err != nil || !c.current(time.Now()) {
		return nil // not worth having
	}
	keys := certmagic.StorageKeys
	return a.importFiles(ctx, issueLock+name, keys.CertsSitePrefix(issuerKey, name), []string{
		keys.SitePrivateKey(issuerKey, name), keys.SiteMeta(issuerKey, name), keys.SiteCert(issuerKey, name),
	})
}

func (a *acmeSource) importAccounts(ctx context.Context, issuerKey string) error {
	accounts, err := a.local.List(ctx, usersPrefix(issuerKey), false)
	if err != nil {
		return nil // there are none
	}
	for _, account := range accounts {
		files, err := a.local.List(ctx, account, false)
		if err != nil {
			continue
		}
		if err := a.importFiles(ctx, "import_account", account, files); err != nil {
			return err
		}
	}
	return nil
}

// importFiles copies files of one directory while holding a lock, unless the
// storage has that directory.
func (a *acmeSource) importFiles(ctx context.Context, lock, dir string, files []string) error {
	if a.storage.Exists(ctx, dir) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
	defer cancel()
	if err := a.storage.Lock(ctx, lock); err != nil {
		return err
	}
	defer a.storage.Unlock(context.WithoutCancel(ctx), lock)
	if a.storage.Exists(ctx, dir) {
		return nil
	}
	for _, file := range files {
		data, err := a.local.Load(ctx, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = a.storage.Store(ctx, file, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// usersPrefix is where the library keeps the accounts at an issuer.
func usersPrefix(issuerKey string) string {
	return path.Join("acme", certmagic.StorageKeys.Safe(issuerKey), "users")
}
