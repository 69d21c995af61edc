package config

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

func (v *validator) clientAuth(path string, a *ClientAuth) {
	if !a.Mode.Verifies() {
		why := fmt.Sprintf("with mode %s: no certificate would be verified; say mode: require", a.Mode)
		v.needless(path, "mode", why, "allow", "allow_file", "crl_file", "allow_expired_crl", "forward")
		if a.Mode == ClientAuthNone {
			v.needless(path, "mode", why, "ca_file")
		}
		if a.OCSP != ClientOCSPOff {
			v.needless(path, "mode", why, "ocsp")
		}
		return
	}
	if len(a.CAFile) == 0 {
		v.add(path+".ca_file", "missing: mode %s needs the CAs that may have issued client certificates", a.Mode)
	}
	v.files(path+".ca_file", a.CAFile)
	v.files(path+".allow_file", a.AllowFile)
	v.files(path+".crl_file", a.CRLFile)
	if len(a.CRLFile) == 0 {
		v.needless(path, "crl_file", "without crl_file", "allow_expired_crl")
	}
	v.allow(path+".allow", a.Allow)
	v.forward(path+".forward", &a.Forward)
}

// files checks that no name in a list is empty or there twice.
func (v *validator) files(path string, names []string) {
	for i, name := range names {
		switch {
		case name == "":
			v.add(idx(path, i), "empty: name a file")
		case slices.Contains(names[:i], name):
			v.add(idx(path, i), "duplicate")
		}
	}
	if len(names) == 0 && v.c.Has(path) {
		v.add(path, "empty: name a file")
	}
}

// allow checks the form of an allow-list; what the kinds mean is the business
// of those who compare.
func (v *validator) allow(path string, entries []string) {
	if len(entries) == 0 && v.c.Has(path) {
		v.add(path, "is empty: list whom to let in, or remove it to let in every holder of a valid certificate")
	}
	kinds := []string{"dns", "email", "uri", "ip", "cn", "ou", "sha256"}
	for i, e := range entries {
		at := idx(path, i)
		kind, value, ok := strings.Cut(e, ":")
		switch {
		case !ok || strings.TrimSpace(value) == "":
			v.add(at, "%q is not kind:value: write it like dns:client.example.com, ou:payments or sha256:…", clip(e))
		case !slices.Contains(kinds, strings.ToLower(strings.TrimSpace(kind))):
			_, hint := suggest(kind, kinds)
			v.add(at, "unknown kind %q: %s", clip(kind), hint)
		case strings.EqualFold(kind, "sha256"):
			if b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(value), ":", "")); err != nil || len(b) != 32 {
				v.add(at, "%q is not a SHA-256 fingerprint: 64 hexadecimal digits, with or without colons (openssl x509 -noout -fingerprint -sha256)", clip(value))
			}
		}
	}
}

// forward checks the names of identity headers.
func (v *validator) forward(path string, f *Forward) {
	seen := map[string]string{"Client-Cert": "cert", "Client-Cert-Chain": "chain"}
	for _, h := range []struct{ field, name string }{
		{"subject", f.Subject}, {"serial", f.Serial}, {"fingerprint", f.Fingerprint}, {"verify", f.Verify},
	} {
		if h.name == "" {
			continue
		}
		at := path + "." + h.field
		v.headerName(at, h.name)
		canonical := http.CanonicalHeaderKey(h.name)
		if first, ok := seen[canonical]; ok {
			v.add(at, "%s is the header of %s already", canonical, first)
		}
		seen[canonical] = h.field
	}
}
