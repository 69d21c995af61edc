package probe

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// describeChain verifies and describes the chain of the last full handshake.
func (p *prober) describeChain() Chain {
	certs := p.lastState.PeerCertificates
	c := Chain{Certificates: make([]Certificate, 0, len(certs))}
	for _, cert := range certs {
		c.Certificates = append(c.Certificates, describeCertificate(cert))
	}
	if _, err := p.verifyChain(); err != nil {
		c.Error = err.Error()
	} else {
		c.Trusted = true
	}
	return c
}

// verifyChain verifies as a client would.
func (p *prober) verifyChain() ([][]*x509.Certificate, error) {
	certs := p.lastState.PeerCertificates
	pool := x509.NewCertPool()
	for _, cert := range certs[1:] {
		pool.AddCert(cert)
	}
	chains, err := certs[0].Verify(x509.VerifyOptions{
		DNSName:       p.opts.target.verifyName(),
		Roots:         p.opts.roots,
		Intermediates: pool,
	})
	return chains, cleanVerifyError(err)
}

// cleanVerifyError drops the library's prefix.
func cleanVerifyError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	return errors.New(string(bytes.TrimPrefix([]byte(text), []byte("x509: "))))
}

func describeCertificate(cert *x509.Certificate) Certificate {
	sum := sha256.Sum256(cert.Raw)
	c := Certificate{
		Subject:            cmp.Or(cert.Subject.String(), "(empty)"),
		Issuer:             cmp.Or(cert.Issuer.String(), "(empty)"),
		Names:              append([]string{}, cert.DNSNames...),
		Serial:             cert.SerialNumber.Text(16),
		NotBefore:          cert.NotBefore.UTC(),
		NotAfter:           cert.NotAfter.UTC(),
		Key:                keyName(cert.PublicKey),
		SignatureAlgorithm: cert.SignatureAlgorithm.String(),
		SHA256:             hex.EncodeToString(sum[:]),
	}
	for _, ip := range cert.IPAddresses {
		if a, ok := netip.AddrFromSlice(ip); ok {
			c.Names = append(c.Names, a.Unmap().String())
		}
	}
	for _, u := range cert.URIs {
		c.Names = append(c.Names, u.String())
	}
	return c
}

func keyName(key any) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", key)
}

// describeStaple verifies and describes the staple of the last full handshake.
func (p *prober) describeStaple() StapleReport {
	leaf := p.lastState.PeerCertificates[0]
	raw := p.lastState.OCSPResponse
	r := StapleReport{
		Present: len(raw) > 0, Seen: p.stapled, Handshakes: p.full,
		MustStaple: mustStaple(leaf), Bytes: len(raw),
	}
	if !r.Present {
		return r
	}
	issuer := p.issuer(leaf)
	if p.verify == nil || issuer == nil {
		r.Error = "not verified: the issuer's certificate was neither sent nor found among the trusted CAs"
		if p.verify == nil {
			r.Error = "not verified: no verifier"
		}
		return r
	}
	now := time.Now()
	s, err := p.verify(raw, leaf, issuer, now)
	r.Status, r.Signer = s.Status, s.Signer
	r.ProducedAt, r.ThisUpdate, r.NextUpdate = date(s.ProducedAt), date(s.ThisUpdate), date(s.NextUpdate)
	switch {
	case err != nil:
		r.Error = err.Error()
	case s.Status != "good":
		r.Error = "status is " + s.Status
	case !s.NextUpdate.IsZero() && !now.Before(s.NextUpdate):
		r.Error = "expired at " + s.NextUpdate.UTC().Format(time.RFC3339)
	default:
		r.Valid = true
	}
	return r
}

// issuer finds the certificate of the leaf's issuer: among those sent, else
// in a chain that verifies.
func (p *prober) issuer(leaf *x509.Certificate) *x509.Certificate {
	for _, cert := range p.lastState.PeerCertificates {
		if bytes.Equal(cert.RawSubject, leaf.RawIssuer) && leaf.CheckSignatureFrom(cert) == nil {
			return cert
		}
	}
	chains, err := p.verifyChain()
	if err != nil || len(chains[0]) < 2 {
		return nil
	}
	return chains[0][1]
}

// mustStaple looks for the TLS feature extension with status_request.
func mustStaple(cert *x509.Certificate) bool {
	for _, ext := range cert.Extensions {
		if ext.Id.String() == "1.3.6.1.5.5.7.1.24" {
			return bytes.Contains(ext.Value, []byte{0x02, 0x01, 0x05}) // INTEGER 5
		}
	}
	return false
}

func date(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
