package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ocsp"
)

// ResponderOptions says how a [Responder] answers. The zero value answers
// good for every serial, signed by the CA itself, valid for one hour.
type ResponderOptions struct {
	Default      Status           // of serials without an entry of their own
	Validity     time.Duration    // from thisUpdate to nextUpdate; 0: one hour; negative: no nextUpdate
	Signer       *tls.Certificate // a delegated signer, embedded in the response; nil: the CA signs
	EmbedIssuer  bool             // embed the CA's own certificate too, before any delegate
	IdentifyName bool             // identify the responder by name instead of by key hash
	PSS          bool             // sign with RSA-PSS
	Now          func() time.Time // nil: time.Now
}

// Responder is an OCSP responder for one CA (RFC 6960, appendix A: GET and
// POST). It is safe for concurrent use.
type Responder struct {
	ca *CA

	mu       sync.Mutex
	opts     ResponderOptions
	statuses map[string]SingleSpec // by serial; only Status, RevokedAt and Reason are used
	requests int
}

var _ http.Handler = (*Responder)(nil)

// NewResponder returns a responder for the certificates that ca issued.
func NewResponder(ca *CA, o ResponderOptions) *Responder {
	return &Responder{ca: ca, opts: o, statuses: make(map[string]SingleSpec)}
}

// Configure changes how the responder answers from now on.
func (r *Responder) Configure(o ResponderOptions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opts = o
}

// Set gives the certificate with that serial a status of its own. A revoked
// one gets the present as its time of revocation and no reason; see
// [Responder.Revoke].
func (r *Responder) Set(serial *big.Int, s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[serial.String()] = SingleSpec{Status: s, RevokedAt: r.now(), Reason: -1}
}

// Revoke marks a certificate as revoked at a time for a reason (the CRLReason
// of RFC 5280, section 5.3.1; negative: none).
func (r *Responder) Revoke(serial *big.Int, at time.Time, reason int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[serial.String()] = SingleSpec{Status: Revoked, RevokedAt: at, Reason: reason}
}

// Requests returns how many requests were answered over HTTP.
func (r *Responder) Requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// ServeHTTP answers an OCSP request by GET or POST.
func (r *Responder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests++
	r.mu.Unlock()
	der, err := readRequest(req)
	if err != nil {
		http.Error(w, "not an OCSP request", http.StatusBadRequest)
		return
	}
	answer, err := r.Respond(der)
	if err != nil {
		http.Error(w, "cannot sign", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/ocsp-response")
	_, _ = w.Write(answer) // the client is gone: nothing to be done
}

func readRequest(req *http.Request) ([]byte, error) {
	if req.Method == http.MethodPost {
		return io.ReadAll(io.LimitReader(req.Body, 64<<10))
	}
	// The base64 may come unescaped, with slashes in it, below any path.
	path := req.URL.EscapedPath()
	for {
		_, rest, ok := strings.Cut(path, "/")
		if !ok {
			return nil, errors.New("no request in the path")
		}
		path = rest
		encoded, err := url.PathUnescape(path)
		if err != nil {
			return nil, err
		}
		if der, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(der) > 0 && der[0] == derSequence {
			return der, nil
		}
	}
}

// derSequence is the first byte of every OCSP request.
const derSequence = 0x30

// Respond answers one DER-encoded request. What is no request gets a
// malformedRequest answer, a certificate of another issuer unauthorized.
func (r *Responder) Respond(request []byte) ([]byte, error) {
	parsed, err := ocsp.ParseRequest(request)
	if err != nil {
		return ResponseSpec{ResponseStatus: 1}.Sign()
	}
	if !r.mine(parsed) {
		return ResponseSpec{ResponseStatus: 6}.Sign()
	}
	return r.spec(parsed).Sign()
}

func (r *Responder) mine(req *ocsp.Request) bool {
	return string(req.IssuerKeyHash) == string(sum(req.HashAlgorithm, publicKeyBits(r.ca.Certificate))) &&
		string(req.IssuerNameHash) == string(sum(req.HashAlgorithm, r.ca.Certificate.RawSubject))
}

func (r *Responder) spec(req *ocsp.Request) ResponseSpec {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	single, ok := r.statuses[req.SerialNumber.String()]
	if !ok {
		single = SingleSpec{Status: r.opts.Default, RevokedAt: now, Reason: -1}
	}
	single.CertID = CertID{Hash: req.HashAlgorithm, Serial: req.SerialNumber, Issuer: r.ca.Certificate}
	single.ThisUpdate = now
	switch {
	case r.opts.Validity == 0:
		single.NextUpdate = now.Add(time.Hour)
	case r.opts.Validity > 0:
		single.NextUpdate = now.Add(r.opts.Validity)
	}
	spec := ResponseSpec{
		Singles: []SingleSpec{single}, ProducedAt: now,
		Signer: r.ca.Key, SignerCert: r.ca.Certificate,
		ByName: r.opts.IdentifyName, PSS: r.opts.PSS,
	}
	if r.opts.EmbedIssuer {
		spec.Certificates = append(spec.Certificates, r.ca.Certificate)
	}
	if d := r.opts.Signer; d != nil {
		spec.Signer, _ = d.PrivateKey.(crypto.Signer)
		spec.SignerCert = d.Leaf
		spec.Certificates = append(spec.Certificates, d.Leaf)
	}
	return spec
}

func (r *Responder) now() time.Time {
	if r.opts.Now != nil {
		return r.opts.Now()
	}
	return time.Now()
}

// IssuedBy reports whether cert was signed by ca.
func (ca *CA) IssuedBy(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(ca.Certificate) == nil
}
