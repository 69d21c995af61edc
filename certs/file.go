package certs

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"software.sslmate.com/src/go-pkcs12"
)

// maxFile bounds what is read of one file: no honest one comes near, and a
// wrong path may lead to something endless.
const maxFile = 4 << 20

// readFile reads a regular file.
func readFile(path string) ([]byte, error) {
	// Read-only, and not blocking: opening a named pipe would wait for its writer.
	f, err := os.OpenFile(path, syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d MiB", path, maxFile>>20)
	}
	return data, nil
}

// readPassphrase returns nil for no file.
func readPassphrase(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimSuffix(data, []byte("\n"))
	data = bytes.TrimSuffix(data, []byte("\r"))
	if len(data) == 0 {
		return nil, fmt.Errorf("%s: empty", path)
	}
	return data, nil
}

// fieldError is an error of one field of Files, before its source is known.
type fieldError struct {
	field, file string
	err         error
}

func (e *fieldError) Error() string {
	return (&SourceError{File: e.file, Err: e.err}).Reason()
}

func (e *fieldError) Unwrap() error { return e.err }

// load reads and checks the pair. Errors are all that is wrong with it.
func (f *Files) load() (*certificate, []*fieldError) {
	passphrase, err := readPassphrase(f.PassphraseFile)
	if err != nil {
		return nil, []*fieldError{{"passphrase_file", f.PassphraseFile, err}}
	}
	if f.PKCS12 != "" {
		return loadPKCS12(f.PKCS12, passphrase)
	}
	var errs []*fieldError
	certs, key := []*x509.Certificate(nil), crypto.Signer(nil)
	certData, err := readFile(f.Cert)
	if err == nil {
		certs, err = parseCertificates(certData)
	}
	if err != nil {
		errs = append(errs, &fieldError{"cert", f.Cert, err})
	}
	keyFile, keyField := cmp.Or(f.Key, f.Cert), "key"
	if f.Key == "" {
		keyField = "cert"
	}
	keyData := certData
	if keyFile != f.Cert {
		keyData, err = readFile(keyFile)
	} else if certData == nil {
		return nil, errs // already told
	}
	if err == nil || keyFile == f.Cert {
		key, err = parseKey(keyData, passphrase)
	}
	if err != nil {
		errs = append(errs, &fieldError{keyField, keyFile, hint(err, f)})
	}
	if len(errs) > 0 {
		return nil, errs
	}
	c, err := newCertificate(key, certs)
	if err != nil {
		return nil, []*fieldError{{keyField, keyFile, fmt.Errorf("%w in %s", err, f.Cert)}}
	}
	return c, nil
}

// hint adds what to do about an error.
func hint(err error, f *Files) error {
	if errors.Is(err, errNoKey) && f.Key == "" {
		return fmt.Errorf("%w: set key to the file that has it", err)
	}
	return err
}

func loadPKCS12(path string, passphrase []byte) (*certificate, []*fieldError) {
	data, err := readFile(path)
	if err != nil {
		return nil, []*fieldError{{"pkcs12", path, err}}
	}
	c, err := parsePKCS12(data, passphrase)
	if err != nil {
		return nil, []*fieldError{{"pkcs12", path, err}}
	}
	return c, nil
}

// parsePKCS12 returns the pair of a PKCS#12 file (RFC 7292).
func parsePKCS12(data, passphrase []byte) (*certificate, error) {
	if err := checkKDF(data, maxIterations); err != nil {
		return nil, err
	}
	key, leaf, chain, err := pkcs12.DecodeChain(data, string(passphrase))
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword) && len(passphrase) == 0:
		return nil, errEncrypted
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return nil, errWrongPassphrase
	case err != nil:
		return nil, err
	}
	signer, err := usableKey(key)
	if err != nil {
		return nil, err
	}
	return newCertificate(signer, append([]*x509.Certificate{leaf}, chain...))
}
