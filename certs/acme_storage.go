package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

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
	issuer := certmagic.ACMEIssuer{CA: is.directory}
	st := &stored{issuerKey: issuer.IssuerKey(), directory: is.directory}
	key, err := a.storage.Load(ctx, certmagic.StorageKeys.SitePrivateKey(st.issuerKey, name))
	if err != nil {
		return nil, err
	}
	chain, err := a.storage.Load(ctx, certmagic.StorageKeys.SiteCert(st.issuerKey, name))
	if err != nil {
		return nil, err
	}
	if st.cert, err = parsePair(chain, key); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDamaged, certmagic.StorageKeys.SiteCert(st.issuerKey, name), err)
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

func parsePair(chain, key []byte) (*certificate, error) {
	certs, err := parseCertificates(chain)
	if err != nil {
		return nil, err
	}
	signer, err := parseKey(key, nil)
	if err != nil {
		return nil, err
	}
	return newCertificate(signer, certs)
}

// loadMeta reads what the ACME library keeps about a certificate; data is its
// IssuerData.
func (a *acmeSource) loadMeta(ctx context.Context, issuerKey, name string) (res certmagic.CertificateResource, data acme.Certificate, err error) {
	raw, err := a.storage.Load(ctx, certmagic.StorageKeys.SiteMeta(issuerKey, name))
	if err != nil {
		return res, data, err
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return res, data, err
	}
	if len(res.IssuerData) > 0 {
		err = json.Unmarshal(res.IssuerData, &data)
	}
	return res, data, err
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
