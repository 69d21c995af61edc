package config

import (
	"crypto/tls"
	"maps"
	"slices"
	"strings"
)

// cipherSuite is what is known of a suite by its name.
type cipherSuite struct {
	tls12    bool // may be configured
	insecure bool
}

func cipherSuites() map[string]cipherSuite {
	out := make(map[string]cipherSuite)
	for _, s := range tls.CipherSuites() {
		out[s.Name] = cipherSuite{tls12: slices.Contains(s.SupportedVersions, tls.VersionTLS12)}
	}
	for _, s := range tls.InsecureCipherSuites() {
		out[s.Name] = cipherSuite{insecure: true}
	}
	return out
}

// CurveID returns the number of a key exchange by its name.
func CurveID(name string) (tls.CurveID, bool) {
	id, ok := curves()[name]
	return id, ok
}

func curves() map[string]tls.CurveID {
	return map[string]tls.CurveID{
		"X25519":             tls.X25519,
		"P-256":              tls.CurveP256,
		"P-384":              tls.CurveP384,
		"P-521":              tls.CurveP521,
		"X25519MLKEM768":     tls.X25519MLKEM768,
		"SecP256r1MLKEM768":  tls.SecP256r1MLKEM768,
		"SecP384r1MLKEM1024": tls.SecP384r1MLKEM1024,
	}
}

// Number returns the version as crypto/tls counts, 0 if it is not known.
func (v TLSVersion) Number() uint16 {
	switch v {
	case "1.2":
		return tls.VersionTLS12
	case "1.3":
		return tls.VersionTLS13
	}
	return 0
}

// policy checks a TLS policy. What is inherited is checked where it stands.
func (v *validator) policy(path string, t *TLS) {
	if t.MinVersion > t.MaxVersion {
		switch {
		case v.c.Has(path + ".min_version"):
			v.add(path+".min_version", "%s is above max_version %s", t.MinVersion, t.MaxVersion)
		case v.c.Has(path + ".max_version"):
			v.add(path+".max_version", "%s is below min_version %s", t.MaxVersion, t.MinVersion)
		}
	}
	if v.c.Has(path + ".cipher_suites") {
		v.cipherSuites(path+".cipher_suites", t)
	}
	if v.c.Has(path + ".curves") {
		v.curves(path+".curves", t.Curves)
	}
}

func (v *validator) cipherSuites(path string, t *TLS) {
	known := cipherSuites()
	modern := false
	for i, name := range t.CipherSuites {
		s, ok := known[name]
		switch at := idx(path, i); {
		case !ok:
			v.add(at, "unknown cipher suite %q: %s", clip(name), suiteHint(name, known))
		case s.insecure:
			v.add(at, "%s is insecure: remove it", name)
		case !s.tls12:
			v.add(at, "%s belongs to TLS 1.3, whose suites are always on: remove it", name)
		case slices.Contains(t.CipherSuites[:i], name):
			v.add(at, "duplicate")
		}
		modern = modern || !strings.Contains(name, "_CBC_")
	}
	if t.MinVersion == "1.3" && len(t.CipherSuites) > 0 {
		v.add(path, "has no effect with min_version 1.3: remove it")
	} else if !modern && len(t.CipherSuites) > 0 && t.HTTP2.On() {
		v.add(path, "has CBC suites alone, which HTTP/2 forbids (RFC 9113, 9.2.2): add a GCM or ChaCha20 suite, or say http2: off")
	}
}

// suiteHint suggests a suite for a name that is not known, which may be
// OpenSSL's name of it.
func suiteHint(name string, known map[string]cipherSuite) string {
	squeeze := func(s string) string {
		return strings.NewReplacer("TLS_", "", "WITH_", "", "_", "", "-", "").Replace(strings.ToUpper(s))
	}
	var choices []string
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if !known[k].tls12 || known[k].insecure {
			continue
		}
		if got, full := squeeze(name), squeeze(k); got != "" && len(got) > 12 && strings.HasPrefix(full, got) {
			return "did you mean \"" + k + "\"?"
		}
		choices = append(choices, k)
	}
	_, hint := suggest(name, choices)
	return hint
}

func (v *validator) curves(path string, names []string) {
	known := curves()
	for i, name := range names {
		if _, ok := known[name]; !ok {
			v.add(idx(path, i), "unknown curve %q: %s", clip(name), curveHint(name, sortedKeys(known)))
		} else if slices.Contains(names[:i], name) {
			v.add(idx(path, i), "duplicate")
		}
	}
}

// curveHint suggests a curve; OpenSSL and the standards have other names.
func curveHint(name string, known []string) string {
	other := map[string]string{
		"prime256v1": "P-256", "secp256r1": "P-256", "p256": "P-256", "curvep256": "P-256",
		"secp384r1": "P-384", "p384": "P-384", "curvep384": "P-384",
		"secp521r1": "P-521", "p521": "P-521", "curvep521": "P-521",
	}
	if same, ok := other[strings.ToLower(name)]; ok {
		return "did you mean \"" + same + "\"?"
	}
	_, hint := suggest(name, known)
	return hint
}

// sortedKeys returns the keys of m in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
