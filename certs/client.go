package certs

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// ClientOptions say how to connect to a TLS server. The zero value presents no
// certificate and trusts the system's roots.
type ClientOptions struct {
	// CAFile is a PEM file of the CAs to trust instead of the system's; "": those.
	CAFile string
	// Cert and Key are PEM files of the certificate to present; "": none.
	Cert, Key string
	// ServerName is the name to send and to verify; "": the host connected to.
	ServerName string

	// PollInterval is as in [Options].
	PollInterval time.Duration
	// Logger; nil means slog.Default().
	Logger *slog.Logger
}

// Client is how to connect to a TLS server, as its files say now. It is safe for
// concurrent use.
type Client struct {
	options ClientOptions
	log     *slog.Logger
	seams   seams

	current atomic.Pointer[clientFiles]
	failure atomic.Pointer[clientFailure] // nil: current is what the files say
}

// clientFiles is what was in the files at one time. It is immutable.
type clientFiles struct {
	digest [32]byte // of their content
	config *tls.Config
	cert   *certificate // nil: none is presented
}

type clientFailure struct {
	errs SourceErrors
	at   time.Time
}

// NewClient reads the files. An error is a [SourceErrors], of which Source means
// nothing and Field is ca_file, cert or key.
func NewClient(o ClientOptions) (*Client, error) {
	c := &Client{options: o, log: cmp.Or(o.Logger, slog.Default()), seams: seams{newWatcher: newInotify}}
	files, errs := o.read()
	if len(errs) > 0 {
		return nil, errs
	}
	c.current.Store(files)
	return c, nil
}

// Config returns how to connect now. It is the same pointer for as long as the
// files have the same content, and must not be modified.
func (c *Client) Config() *tls.Config { return c.current.Load().config }

// GetClientCertificate is a function for [tls.Config], for those who cannot ask
// for a Config at each connection. A server that asks gets the certificate as it is
// now, or an empty one if there is none.
func (c *Client) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if cert := c.current.Load().cert; cert != nil {
		return cert.tls, nil
	}
	return new(tls.Certificate), nil
}

// Status describes the certificate presented; ok is false where there are no
// files. Without a certificate it is named after the CA file and has no dates.
func (c *Client) Status() (s Status, ok bool) {
	if len(c.options.paths()) == 0 {
		return Status{}, false
	}
	sl := &slot{label: cmp.Or(c.options.Cert, c.options.CAFile), source: SourceClient, cert: c.current.Load().cert}
	if f := c.failure.Load(); f != nil {
		sl.fail(errors.New(f.errs.reasons()), f.at)
	}
	s = sl.status(time.Now())
	s.Warnings, s.Responder, s.MustStaple = nil, false, false // are about servers
	return s, true
}

// paths are the files that there are.
func (o *ClientOptions) paths() []string {
	var paths []string
	for _, path := range []string{o.CAFile, o.Cert, o.Key} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// digest tells two contents of the files apart. A file that cannot be read is
// empty.
func (o *ClientOptions) digest() (sum [32]byte) {
	h := sha256.New()
	for _, path := range o.paths() {
		data, _ := readFile(path)
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(data)))
		h.Write(size[:])
		h.Write(data)
	}
	h.Sum(sum[:0])
	return sum
}

// read reads and checks the files. The digest is taken first, so that a change
// meanwhile is noticed afterwards.
func (o *ClientOptions) read() (*clientFiles, SourceErrors) {
	f := &clientFiles{digest: o.digest(), config: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}}
	var errs SourceErrors
	if o.CAFile != "" {
		roots, err := readRoots(o.CAFile)
		if err != nil {
			errs = append(errs, &SourceError{Field: "ca_file", File: o.CAFile, Err: err})
		}
		f.config.RootCAs = roots
	}
	if o.Cert != "" {
		cert, fieldErrs := (&Files{Cert: o.Cert, Key: o.Key}).load()
		for _, e := range fieldErrs {
			errs = append(errs, &SourceError{Field: e.field, File: e.file, Err: e.err})
		}
		if cert != nil {
			f.cert, f.config.Certificates = cert, []tls.Certificate{*cert.tls}
		}
	}
	return f, errs
}

// readRoots reads a PEM file of CA certificates; one without any is an error,
// since an empty pool must not come to mean the system's roots.
func readRoots(path string) (*x509.CertPool, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, errors.New("no CA certificate in PEM found")
	}
	return roots, nil
}
