package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/tlsproxy/tlsproxy/ocsp"
)

const (
	defaultOCSPTimeout = 5 * time.Second
	maxOCSPFile        = 1 << 20
)

func defineOCSPFetch(f *ocspFlags) {
	f.StringVar(&f.url, "url", "", "ask the responder at `URL`, not the one that the certificate names")
	f.StringVar(&f.out, "out", "", "write the response to `FILE`, as DER")
	f.DurationVar(&f.timeout, "timeout", defaultOCSPTimeout, "give up on one exchange after `TIME`")
}

// ocspFetch asks the responder of a certificate.
func ocspFetch(ctx context.Context, f *ocspFlags, certFile string) (*ocspReport, error) {
	leaf, issuer, err := readLeafAndIssuer(certFile, f.issuer)
	if err != nil {
		return nil, err
	}
	report := newOCSPReport(certFile, leaf)
	r, err := ocsp.Fetch(ctx, leaf, issuer, ocsp.FetchOptions{Responder: f.url, Timeout: f.timeout})
	report.decide(r, err)
	if r != nil && f.out != "" {
		report.raw = r.Raw
	}
	return report, ctx.Err()
}

func defineOCSPShow(f *ocspFlags) {
	f.StringVar(&f.serverName, "servername", "", "ask a server for the certificate of `NAME`, if it is not HOST")
	f.DurationVar(&f.timeout, "timeout", defaultOCSPTimeout, "give up on a server after `TIME`")
}

// ocspShow prints a response, or verifies the staple of a running server.
func ocspShow(ctx context.Context, f *ocspFlags, target string) (*ocspReport, error) {
	if _, err := os.Stat(target); err == nil || target == "-" {
		return ocspShowFile(target)
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a file nor HOST:PORT", target)
	}
	if f.serverName != "" {
		host = f.serverName
	}
	state, err := ocspHandshake(ctx, target, host, f.timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", target, err)
	}
	return ocspShowStaple(f, target, state)
}

func ocspShowFile(path string) (*ocspReport, error) {
	der, err := readOCSPFile(path)
	if err != nil {
		return nil, err
	}
	report := newOCSPReport(path, nil)
	report.Contents, err = ocsp.Parse(der)
	if err != nil {
		report.decide(nil, err)
		return report, nil
	}
	report.Verdict, report.Words = verdictUnverified, "not verified: that takes the certificate (tlsproxy ocsp verify)"
	return report, nil
}

// ocspHandshake connects as a client that asks for a staple. What it is shown
// is to be reported, not trusted: nothing is sent over the connection.
func ocspHandshake(ctx context.Context, address, name string, timeout time.Duration) (tls.ConnectionState, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} //nolint:gosec // see above
	// In TLS 1.2 a server that demands a client certificate ends the handshake,
	// after it has shown all that is asked about.
	var shown *tls.ConnectionState
	dialer.Config.VerifyConnection = func(state tls.ConnectionState) error {
		shown = &state
		return nil
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		defer conn.Close()
	}
	if shown == nil {
		return tls.ConnectionState{}, err
	}
	return *shown, nil
}

func ocspShowStaple(f *ocspFlags, target string, state tls.ConnectionState) (*ocspReport, error) {
	leaf := state.PeerCertificates[0]
	report := newOCSPReport(target, leaf)
	if len(state.OCSPResponse) == 0 {
		report.Verdict, report.Words = verdictNone, "the server staples no response"
		switch {
		case report.Certificate.MustStaple:
			report.Words += ", although the certificate demands one (must-staple): strict clients refuse it"
		case len(leaf.OCSPServer) == 0:
			report.Words += "; the certificate names no responder, so there is nothing to staple"
		}
		return report, nil
	}
	report.Contents, _ = ocsp.Parse(state.OCSPResponse) // decide says what is wrong with it
	issuer, err := pickIssuer(leaf, state.PeerCertificates[1:], f.issuer)
	if err != nil {
		return nil, err
	}
	report.decide(ocsp.Verify(state.OCSPResponse, leaf, issuer, time.Now()))
	return report, nil
}

func defineOCSPVerify(f *ocspFlags) {
	f.StringVar(&f.cert, "cert", "", "the certificate is in `FILE`")
	f.StringVar(&f.at, "at", "", "verify as if it were `TIME` (2006-01-02T15:04:05Z)")
}

// ocspVerify decides about a response in a file.
func ocspVerify(_ context.Context, f *ocspFlags, path string) (*ocspReport, error) {
	if f.cert == "" {
		return nil, errors.New("ocsp verify: -cert is missing")
	}
	at := time.Now()
	if f.at != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, f.at); err != nil {
			return nil, fmt.Errorf("ocsp verify: -at %q is no time like 2006-01-02T15:04:05Z", f.at)
		}
	}
	leaf, issuer, err := readLeafAndIssuer(f.cert, f.issuer)
	if err != nil {
		return nil, err
	}
	der, err := readOCSPFile(path)
	if err != nil {
		return nil, err
	}
	report := newOCSPReport(path, leaf)
	report.at = at
	report.Contents, _ = ocsp.Parse(der) // decide says what is wrong with it
	r, err := ocsp.Verify(der, leaf, issuer, at)
	if err == nil {
		err = r.Usable(at)
	}
	report.decide(r, err)
	return report, nil
}

// readLeafAndIssuer reads the first certificate of a file, and its issuer from
// another file or from the rest of this one.
func readLeafAndIssuer(certFile, issuerFile string) (leaf, issuer *x509.Certificate, err error) {
	chain, err := readCertificates(certFile)
	if err != nil {
		return nil, nil, err
	}
	issuer, err = pickIssuer(chain[0], chain[1:], issuerFile)
	return chain[0], issuer, err
}

func pickIssuer(leaf *x509.Certificate, candidates []*x509.Certificate, issuerFile string) (*x509.Certificate, error) {
	if issuerFile != "" {
		var err error
		if candidates, err = readCertificates(issuerFile); err != nil {
			return nil, err
		}
	}
	for _, c := range append(candidates, leaf) { // which may be self-signed
		if leaf.CheckSignatureFrom(c) == nil {
			return c, nil
		}
	}
	if issuerFile != "" {
		return nil, fmt.Errorf("%s: no certificate there signed that of %q", issuerFile, leaf.Subject)
	}
	return nil, fmt.Errorf("the issuer %q is not in the chain: give its certificate with -issuer FILE", leaf.Issuer)
}

// readCertificates reads the certificates of a PEM file, or one of a DER file.
func readCertificates(path string) ([]*x509.Certificate, error) {
	data, err := readOCSPFile(path)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(data, []byte("-----BEGIN")) {
		c, err := x509.ParseCertificate(data)
		if err != nil {
			return nil, fmt.Errorf("%s: neither PEM nor a DER certificate: %w", path, err)
		}
		return []*x509.Certificate{c}, nil
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", path, len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s: no CERTIFICATE block", path)
	}
	return certs, nil
}

// readOCSPFile reads a file, or standard input for "-", of a sane size.
func readOCSPFile(path string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxOCSPFile+1))
	if err == nil && len(data) > maxOCSPFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxOCSPFile)
	}
	return data, err
}
