package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The files that [LoadOrCreate] keeps in its directory.
const (
	authorityFile = "ca.pem" // certificate and private key, mode 0600: the CA itself
	publicFile    = "ca.crt" // certificate alone, for trust stores
)

// PublicFile returns the path of the file in dir that holds the certificate
// of the CA kept there, for `curl --cacert` and trust stores.
func PublicFile(dir string) string { return filepath.Join(dir, publicFile) }

// LoadOrCreate returns the CA kept in dir, making dir (mode 0700) and the CA
// when there is none. Two processes that create at once end up with the same
// CA. An expired CA is replaced. A damaged file is an error, never
// overwritten: somebody may have put trust in it.
func LoadOrCreate(dir string, o CAOptions) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, authorityFile)
	ca, err := load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		ca, err = create(path, o)
	case err == nil && time.Now().After(ca.Certificate.NotAfter):
		if err = os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			ca, err = create(path, o)
		}
	}
	if err != nil {
		return nil, err
	}
	return ca, publish(ca, PublicFile(dir))
}

// Check reports what would keep [LoadOrCreate] from using what is in dir, and
// writes nothing. A directory that is not there yet is fine.
func Check(dir string) error {
	if _, err := load(filepath.Join(dir, authorityFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func load(path string) (*CA, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cert, key, err := parsePair(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (delete the file to have a new CA made)", path, err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("%s: the certificate is not that of a CA (delete the file to have a new CA made)", path)
	}
	return &CA{Certificate: cert, Key: key}, nil
}

// create makes a CA and puts it at path unless another process was faster, in
// which case the other's CA is returned.
func create(path string, o CAOptions) (*CA, error) {
	ca, err := NewRoot(o)
	if err != nil {
		return nil, err
	}
	key, err := KeyPEM(ca.Key)
	if err != nil {
		return nil, err
	}
	tmp, err := writeTemp(filepath.Dir(path), append(key, CertificatePEM(ca.Certificate)...))
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp)
	// A hard link fails when the name exists, which a rename does not.
	err = os.Link(tmp, path)
	if errors.Is(err, fs.ErrExist) {
		return load(path)
	}
	if err != nil { // a file system without hard links
		err = os.Rename(tmp, path)
	}
	return ca, err
}

// publish keeps the certificate alone in a file of its own.
func publish(ca *CA, path string) error {
	want := CertificatePEM(ca.Certificate)
	if have, err := os.ReadFile(path); err == nil && string(have) == string(want) {
		return nil
	}
	tmp, err := writeTemp(filepath.Dir(path), want)
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o644); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

// writeTemp writes data to a new file of mode 0600 in dir and syncs it.
func writeTemp(dir string, data []byte) (string, error) {
	f, err := os.CreateTemp(dir, ".ca-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
