package clientauth

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxFileSize bounds what is read of one file, so that a wrong path, say of a
// device, cannot eat the memory.
const maxFileSize = 256 << 20

// fileSet is the files of a site by what they hold.
type fileSet struct {
	ca, allow, crl []string
}

func (f fileSet) all() []string {
	var all []string
	all = append(all, f.ca...)
	all = append(all, f.allow...)
	return append(all, f.crl...)
}

// closed are the Rules while nobody may enter.
const closed = "closed"

// load reads the files into a new snapshot. Whatever is wrong is in its Err.
func (v *Verifier) load() *Snapshot {
	now := v.now()
	s := &Snapshot{Mode: v.mode, Pool: x509.NewCertPool(), Loaded: now}
	l := loader{content: sha256.New()}
	err := errors.Join(
		l.loadAnchors(v.files.ca),
		l.loadAllow(v.inline, v.files.allow),
		l.loadCRLs(v.files.crl),
	)
	if err == nil && len(v.files.crl) > 0 {
		s.crls, err = newCRLSet(l.crls, l.anchors, v.allowExpiredCRL)
	}
	if err == nil && v.mode.Verifies() && len(l.anchors) == 0 {
		err = errors.New("no certificate authority: without one nobody could be verified")
	}
	s.content = [32]byte(l.content.Sum(nil))
	if err != nil {
		s.Err = each(err, func(err error) error { return fmt.Errorf("site %q: client_auth: %w", v.site, err) })
		s.crls, s.Rules = nil, closed
		return s
	}
	s.anchors, s.allow = l.anchors, l.allow
	for _, c := range l.anchors {
		s.Pool.AddCert(c)
	}
	s.Digest = digest(v.mode, s.anchors, s.allow)
	s.Rules = v.rules(s.Digest)
	return s
}

// loader collects what the files hold.
type loader struct {
	content interface {
		io.Writer
		Sum([]byte) []byte
	}
	anchors map[[32]byte]*x509.Certificate
	allow   *allowList
	crls    []*crl
}

func (l *loader) loadAnchors(paths []string) error {
	l.anchors = make(map[[32]byte]*x509.Certificate)
	var errs []error
	for _, path := range paths {
		data, err := l.read(path)
		if err == nil {
			err = l.addAnchors(data)
		}
		if err != nil {
			errs = append(errs, inFile("ca_file", path, err))
		}
	}
	return errors.Join(errs...)
}

func (l *loader) addAnchors(data []byte) error {
	blocks, err := pemBlocks(data, "CERTIFICATE")
	if err != nil {
		return err
	}
	if len(blocks) == 0 {
		return errors.New("holds no PEM block of type CERTIFICATE")
	}
	for i, der := range blocks {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate %d: %w", i+1, err)
		}
		l.anchors[sha256.Sum256(c.Raw)] = c
	}
	return nil
}

func (l *loader) loadAllow(inline, paths []string) error {
	if len(inline)+len(paths) == 0 {
		return nil
	}
	l.allow = &allowList{}
	var errs []error
	for _, text := range inline {
		e, err := ParseAllow(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.allow.entries = append(l.allow.entries, e)
	}
	for _, path := range paths {
		data, err := l.read(path)
		if err == nil {
			var entries []AllowEntry
			entries, err = parseAllowFile(data)
			l.allow.entries = append(l.allow.entries, entries...)
		}
		if err != nil {
			errs = append(errs, inFile("allow_file", path, err))
		}
	}
	l.allow.compact()
	return errors.Join(errs...)
}

func (l *loader) loadCRLs(paths []string) error {
	var errs []error
	for _, path := range paths {
		data, err := l.read(path)
		if err == nil {
			var lists []*crl
			lists, err = parseCRLFile(path, data)
			l.crls = append(l.crls, lists...)
		}
		if err != nil {
			errs = append(errs, inFile("crl_file", path, err))
		}
	}
	return errors.Join(errs...)
}

// read returns a file's content and adds it to the digest of all of it.
func (l *loader) read(path string) ([]byte, error) {
	// Not blocking, because opening a named pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("is larger than %d MiB", maxFileSize>>20)
	}
	sum := sha256.Sum256(data)
	l.content.Write(sum[:])
	return data, nil
}

// pemBlocks decodes every PEM block and demands that each is whole and of one
// type: a damaged block must not silently drop an authority or a list.
func pemBlocks(data []byte, want string) ([][]byte, error) {
	var blocks [][]byte
	begun := bytes.Count(data, []byte("-----BEGIN "))
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != want {
			return nil, fmt.Errorf("holds a PEM block of type %q: only %s belongs here", clip(block.Type), want)
		}
		blocks = append(blocks, block.Bytes)
		data = rest
	}
	if len(blocks) != begun {
		return nil, fmt.Errorf("%d of its %d PEM blocks are damaged", begun-len(blocks), begun)
	}
	return blocks, nil
}

func inFile(field, path string, err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err // the path is named here already
	}
	return each(err, func(err error) error { return fmt.Errorf("%s %q: %w", field, path, err) })
}

// each wraps every one of joined errors, so that each stands for itself.
func each(err error, wrap func(error) error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // Only the join itself is taken apart.
	if !ok {
		return wrap(err)
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, each(e, wrap))
	}
	return errors.Join(all...)
}
