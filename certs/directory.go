package certs

import (
	"cmp"
	"crypto/x509"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pairsIn lists the key pairs of a directory and its direct subdirectories by
// the files' names, in lexical order of the certificates' paths. Sub-
// directories that cannot be read are an error: their pairs would vanish.
func (d *Directory) pairsIn() ([]Files, []*fieldError) {
	var pairs []Files
	var errs []*fieldError
	visitDirs(d.Path, func(dir string, entries []fs.DirEntry, err error) {
		if err != nil {
			errs = append(errs, &fieldError{"directory", dir, err})
			return
		}
		names := make(map[string]bool)
		for _, e := range entries {
			// Stat follows links: volumes of Kubernetes consist of them. A
			// dangling one is a file that cannot be read, and is reported as
			// that when it belongs to a pair.
			info, err := os.Stat(filepath.Join(dir, e.Name()))
			if err != nil || info.Mode().IsRegular() {
				names[e.Name()] = true
			}
		}
		found, bad := pairUp(dir, names)
		for _, p := range found {
			p.PassphraseFile = d.PassphraseFile
			pairs = append(pairs, p)
		}
		errs = append(errs, bad...)
	})
	slices.SortFunc(pairs, func(a, b Files) int {
		return strings.Compare(a.label(), b.label())
	})
	return pairs, errs
}

// visitDirs visits a directory and its direct subdirectories with their
// entries, hidden ones left out.
func visitDirs(root string, visit func(dir string, entries []fs.DirEntry, err error)) {
	dirs := []string{root}
	for i := 0; i < len(dirs); i++ {
		entries, err := os.ReadDir(dirs[i])
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
		visit(dirs[i], entries, err)
		if i > 0 {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(root, e.Name())
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				dirs = append(dirs, path)
			}
		}
	}
}

// label is the file that stands for a pair.
func (f *Files) label() string { return cmp.Or(f.Cert, f.PKCS12) }

// paths are the files of a pair, the passphrase included.
func (f *Files) paths() []string {
	return slices.DeleteFunc([]string{f.Cert, f.Key, f.PKCS12, f.PassphraseFile},
		func(p string) bool { return p == "" })
}

// pairUp finds which files of one directory belong together.
func pairUp(dir string, names map[string]bool) ([]Files, []*fieldError) {
	var pairs []Files
	var errs []*fieldError
	used := make(map[string]bool)
	sorted := slices.Sorted(maps.Keys(names))
	leaf := acmeSh(names)
	for _, name := range sorted {
		path := filepath.Join(dir, name)
		ext := filepath.Ext(name)
		base := strings.TrimSuffix(name, ext)
		switch ext {
		case ".p12", ".pfx":
			pairs = append(pairs, Files{PKCS12: path})
		case ".crt", ".cer", ".pem":
			if isKeyName(base, ext) || leaf != "" && name == leaf+".cer" {
				continue
			}
			key := keyFor(name, leaf, names)
			switch {
			case key != "":
				used[key] = true
				pairs = append(pairs, Files{Cert: path, Key: filepath.Join(dir, key)})
			case holdsKey(path):
				pairs = append(pairs, Files{Cert: path})
			case !isBystander(path, base):
				errs = append(errs, &fieldError{"directory", path,
					errors.New("no key for this certificate: expected " + base + ".key beside it, or a key in the same file")})
			}
		}
	}
	for _, name := range sorted {
		ext := filepath.Ext(name)
		if used[name] || !isKeyName(strings.TrimSuffix(name, ext), ext) {
			continue
		}
		errs = append(errs, &fieldError{"directory", filepath.Join(dir, name), errors.New("no certificate for this key beside it")})
	}
	return pairs, errs
}

// isKeyName reports whether a file's name says that it holds a key.
func isKeyName(base, ext string) bool {
	return ext == ".key" || ext == ".pem" && (base == "privkey" || strings.HasSuffix(base, "-key"))
}

// keyFor finds the key of a certificate's file; leaf is what acmeSh says.
func keyFor(name, leaf string, names map[string]bool) string {
	base := strings.TrimSuffix(name, filepath.Ext(name))
	candidates := []string{base + ".key", base + "-key.pem", name + ".key"}
	if base == "fullchain" {
		candidates = append(candidates, "privkey.pem")
	}
	if leaf != "" && name == acmeShChain {
		candidates = append(candidates, leaf+".key")
	}
	for _, name := range candidates {
		if names[name] {
			return name
		}
	}
	return ""
}

// acmeShChain is what acme.sh calls the file with leaf and chain. Its key is
// named after the domain, and so is a file with the leaf alone.
const acmeShChain = "fullchain.cer"

// acmeSh returns the domain of a directory that acme.sh wrote, "" if it is none.
func acmeSh(names map[string]bool) string {
	if !names[acmeShChain] || names["fullchain.key"] {
		return ""
	}
	domain := ""
	for name := range names {
		base, ok := strings.CutSuffix(name, ".key")
		if !ok || !names[base+".cer"] {
			continue
		}
		if domain != "" {
			return "" // nobody can tell which
		}
		domain = base
	}
	return domain
}

// holdsKey reports whether a file has a private key in it, or may have: one
// that cannot be read is for the loader to complain about.
func holdsKey(path string) bool {
	data, err := readFile(path)
	return err != nil || strings.Contains(string(data), "PRIVATE KEY-----")
}

// isBystander reports whether a certificate without a key is of a sort that
// lies beside pairs: a CA certificate, as cert-manager stores it, or the parts
// from which certbot made fullchain.pem.
func isBystander(path, base string) bool {
	if base == "chain" || base == "cert" {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "fullchain.pem")); err == nil {
			return true
		}
	}
	data, err := readFile(path)
	if err != nil {
		return false
	}
	certs, err := parseCertificates(data)
	return err == nil && !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return !c.IsCA })
}
