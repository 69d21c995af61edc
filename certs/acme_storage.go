package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

// stored is a certificate in the storage.
type stored struct {
	cert      *certificate
	issuerKey string // the issuer's directory in the storage
	directory string // the issuer's URL
	ari       acme.RenewalInfo
}

// errDamaged is returned for a certificate in the storage that cannot be used.
var errDamaged = errors.New("stored certificate is damaged")

// load reads the newest certificate for a name of all issuers. It is nil if
// there is none.
func (a *acmeSource) load(ctx context.Context, name string) (*stored, error) {
	var best *stored
	var damaged error
	for i := range a.issuers {
		st, err := a.loadFrom(ctx, &a.issuers[i], name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, errDamaged):
			damaged = err
		case err != nil:
			return nil, err
		case best == nil || st.cert.tls.Leaf.NotBefore.After(best.cert.tls.Leaf.NotBefore):
			best = st
		}
	}
	if best == nil {
		return nil, damaged
	}
	return best, nil
}

func (a *acmeSource) loadFrom(ctx context.Context, is *acmeIssuer, name string) (*stored, error) {
	st := &stored{issuerKey: is.key(), directory: is.directory}
	var err error
	if st.cert, err = loadPair(ctx, a.storage, st.issuerKey, name); err != nil {
		return nil, err
	}
	if !a.config.DisableARI {
		// Without it, or with that of another certificate, there is none yet.
		if _, data, err := a.loadMeta(ctx, st.issuerKey, name); err == nil && data.RenewalInfo != nil {
			if id, err := acme.ARIUniqueIdentifier(st.cert.tls.Leaf); err == nil && id == data.RenewalInfo.UniqueIdentifier {
				st.ari = *data.RenewalInfo
			}
		}
	}
	return st, nil
}

// issueLock and a name are the lock that the ACME library holds while it works on
// the name.
const issueLock = "issue_cert_"

// damage is a file in the storage that cannot be used.
type damage struct {
	key string // its place in the storage
	err error
}

func (d *damage) Error() string        { return fmt.Sprintf("%v: %s: %v", errDamaged, d.key, d.err) }
func (d *damage) Unwrap() error        { return d.err }
func (d *damage) Is(target error) bool { return target == errDamaged }

// loadPair reads a certificate and its key.
func loadPair(ctx context.Context, storage certmagic.Storage, issuerKey, name string) (*certificate, error) {
	keyAt, chainAt := certmagic.StorageKeys.SitePrivateKey(issuerKey, name), certmagic.StorageKeys.SiteCert(issuerKey, name)
	key, err := storage.Load(ctx, keyAt)
	if err != nil {
		return nil, err
	}
	chain, err := storage.Load(ctx, chainAt)
	if err != nil {
		return nil, err
	}
	signer, err := parseKey(key, nil)
	if err != nil {
		return nil, &damage{keyAt, err}
	}
	certs, err := parseCertificates(chain)
	if err != nil {
		return nil, &damage{chainAt, err}
	}
	c, err := newCertificate(signer, certs)
	if err != nil {
		return nil, &damage{chainAt, err}
	}
	return c, nil
}

// discardDamaged deletes what cannot be used of a name's files, which the
// library would try to read before everything else, and fail for ever. A
// certificate stays usable without its metadata.
func (a *acmeSource) discardDamaged(ctx context.Context, name string) error {
	if len(a.damaged(ctx, name)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, obtainTimeout)
	defer cancel()
	// The lock of the library: another replica may be writing them anew.
	if err := a.storage.Lock(ctx, issueLock+name); err != nil {
		return err
	}
	defer a.storage.Unlock(context.WithoutCancel(ctx), issueLock+name)
	for _, d := range a.damaged(ctx, name) {
		if err := a.storage.Delete(ctx, d.key); err != nil {
			return fmt.Errorf("%w, and was not deleted: %w", d, err)
		}
	}
	return nil
}

// damaged returns what cannot be used of a name's files, of all issuers.
func (a *acmeSource) damaged(ctx context.Context, name string) []*damage {
	var all []*damage
	for i := range a.issuers {
		key := a.issuers[i].key()
		_, err := loadPair(ctx, a.storage, key, name)
		_, _, metaErr := a.loadMeta(ctx, key, name)
		for _, err := range []error{err, metaErr} {
			if d, ok := errors.AsType[*damage](err); ok {
				all = append(all, d)
			}
		}
	}
	return all
}

// damagedAccounts tells which files of the issuers' accounts cannot be read.
// They are left alone: an account may be worth mending.
func (a *acmeSource) damagedAccounts(ctx context.Context) error {
	var errs []error
	for i := range a.issuers {
		files, err := a.storage.List(ctx, usersPrefix(a.issuers[i].key()), true)
		if err != nil {
			continue // none is there, or the storage is away, which others tell
		}
		for _, file := range files {
			if err := a.checkAccount(ctx, file); err != nil {
				errs = append(errs, fmt.Errorf("account file %s is damaged, delete it for a new account: %w", file, err))
			}
		}
	}
	return errors.Join(errs...)
}

// checkAccount reads one file of an account.
func (a *acmeSource) checkAccount(ctx context.Context, file string) error {
	switch path.Ext(file) {
	case ".key":
		data, err := a.storage.Load(ctx, file)
		if err == nil {
			_, err = parseKey(data, nil)
		}
		return err
	case ".json":
		data, err := a.storage.Load(ctx, file)
		if err == nil {
			err = json.Unmarshal(data, new(acme.Account))
		}
		return err
	}
	return nil
}

// key is the issuer's directory in the storage.
func (is *acmeIssuer) key() string {
	return (&certmagic.ACMEIssuer{CA: is.directory}).IssuerKey()
}

// loadMeta reads what the ACME library keeps about a certificate; data is its
// IssuerData.
func (a *acmeSource) loadMeta(ctx context.Context, issuerKey, name string) (res certmagic.CertificateResource, data acme.Certificate, err error) {
	at := certmagic.StorageKeys.SiteMeta(issuerKey, name)
	raw, err := a.storage.Load(ctx, at)
	if err != nil {
		return res, data, err
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return res, data, &damage{at, err}
	}
	if len(res.IssuerData) > 0 {
		if err := json.Unmarshal(res.IssuerData, &data); err != nil {
			return res, data, &damage{at, err}
		}
	}
	return res, data, nil
}

// saveARI keeps renewal information where the ACME library looks for it when
// it decides, holding the lock, whether a renewal is still needed, and where
// other replicas find it. Nothing is kept if the certificate was replaced.
func (a *acmeSource) saveARI(ctx context.Context, name string, st *stored) error {
	chain, err := a.storage.Load(ctx, certmagic.StorageKeys.SiteCert(st.issuerKey, name))
	if err != nil {
		return err
	}
	certs, err := parseCertificates(chain)
	if err != nil || !bytes.Equal(certs[0].Raw, st.cert.tls.Leaf.Raw) {
		return err
	}
	res, data, err := a.loadMeta(ctx, st.issuerKey, name)
	if err != nil {
		return err
	}
	data.RenewalInfo = &st.ari
	if res.IssuerData, err = json.Marshal(data); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(res, "", "\t")
	if err != nil {
		return err
	}
	return a.storage.Store(ctx, certmagic.StorageKeys.SiteMeta(st.issuerKey, name), raw)
}
