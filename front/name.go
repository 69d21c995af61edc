package front

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxName is the longest host name in DNS, RFC 1035, section 2.3.4.
const maxName = 253

// CanonicalName brings a server name or the host of a request into the one form
// that everything compares: lower case, no trailing dot, internationalised
// labels in ASCII. The empty name stays empty. It reports false for a name that
// no host can have; such a name matches nothing.
func CanonicalName(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxName {
		return "", false
	}
	lower, ascii := true, true
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == ':', c == '*':
		case 'A' <= c && c <= 'Z':
			lower = false
		case c >= 0x80:
			ascii = false
		default:
			return "", false
		}
	}
	if !ascii {
		if !utf8.ValidString(name) {
			return "", false
		}
		converted, err := idna.Lookup.ToASCII(name)
		if err != nil || len(converted) > maxName {
			return "", false
		}
		return converted, wellFormed(converted)
	}
	if !lower {
		name = strings.ToLower(name)
	}
	return name, wellFormed(name)
}

// wellFormed refuses empty labels; the empty name is fine.
func wellFormed(name string) bool {
	return name == "" || name[0] != '.' && name[len(name)-1] != '.' && !strings.Contains(name, "..")
}
