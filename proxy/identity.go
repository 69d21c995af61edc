package proxy

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// Headers lists the names of headers configured here; see
// [Options].IdentityHeaders.
func (id Identity) Headers() []string {
	var names []string
	for _, n := range []string{id.Subject, id.Serial, id.Fingerprint, id.Verify} {
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// set writes the identity headers for a verified chain; for none, only the result.
func (id Identity) set(h http.Header, chain []*x509.Certificate) {
	if len(chain) == 0 {
		setNamed(h, id.Verify, "NONE")
		return
	}
	leaf := chain[0]
	setNamed(h, id.Verify, "SUCCESS")
	if id.Cert {
		h["Client-Cert"] = []string{byteSequence(leaf.Raw)}
	}
	if id.Chain && len(chain) > 2 {
		items := make([]string, 0, len(chain)-2)
		for _, c := range chain[1 : len(chain)-1] {
			items = append(items, byteSequence(c.Raw))
		}
		h["Client-Cert-Chain"] = []string{strings.Join(items, ", ")}
	}
	if id.Subject != "" {
		setNamed(h, id.Subject, printable(leaf.Subject.String()))
	}
	if id.Serial != "" {
		setNamed(h, id.Serial, fmt.Sprintf("%X", leaf.SerialNumber))
	}
	if id.Fingerprint != "" {
		sum := sha256.Sum256(leaf.Raw)
		setNamed(h, id.Fingerprint, hex.EncodeToString(sum[:]))
	}
}

func setNamed(h http.Header, name, value string) {
	if name != "" {
		h.Set(name, value)
	}
}

// byteSequence encodes as RFC 8941, section 4.1.8.
func byteSequence(b []byte) string {
	return ":" + base64.StdEncoding.EncodeToString(b) + ":"
}

// printable escapes the bytes of a distinguished name that have no place in a
// header, in the way of RFC 4514, section 2.4.
func printable(dn string) string {
	var b strings.Builder
	for i := range len(dn) {
		if c := dn[i]; c < ' ' || c > '~' {
			fmt.Fprintf(&b, `\%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
