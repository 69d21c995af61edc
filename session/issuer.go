package session

import (
	"cmp"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// attributeOIDs are the names of attribute types that OpenSSL and Go write.
// Everything else is written as a dotted number.
var attributeOIDs = map[string]string{
	"CN": "2.5.4.3", "SN": "2.5.4.4", "SERIALNUMBER": "2.5.4.5", "C": "2.5.4.6", "L": "2.5.4.7", "ST": "2.5.4.8",
	"STREET": "2.5.4.9", "O": "2.5.4.10", "OU": "2.5.4.11", "TITLE": "2.5.4.12", "BUSINESSCATEGORY": "2.5.4.15",
	"POSTALCODE": "2.5.4.17", "NAME": "2.5.4.41", "GN": "2.5.4.42", "INITIALS": "2.5.4.43", "DNQUALIFIER": "2.5.4.46",
	"PSEUDONYM": "2.5.4.65", "ORGANIZATIONIDENTIFIER": "2.5.4.97", "UID": "0.9.2342.19200300.100.1.1",
	"DC": "0.9.2342.19200300.100.1.25", "EMAILADDRESS": "1.2.840.113549.1.9.1",
}

// issuerOf is the one form of a certificate's issuer that equal ones share.
// Order and grouping of the attributes are not in it, since the string that Go
// makes of a name has neither.
func issuerOf(name pkix.Name) string {
	var all []string
	for _, a := range name.Names {
		all = append(all, attribute(a.Type.String(), fmt.Sprint(a.Value)))
	}
	return joinAttributes(all)
}

// parseIssuer is the same for a name as RFC 2253 writes it.
func parseIssuer(s string) (string, error) {
	var all []string
	for rest := s; ; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return "", fmt.Errorf("session: issuer %q is not a name such as %q", s, "CN=Example CA,O=Example")
		}
		oid, err := attributeType(strings.TrimSpace(name))
		if err != nil {
			return "", fmt.Errorf("session: issuer %q: %w", s, err)
		}
		value, tail, err := attributeValue(strings.TrimLeft(after, " "))
		if err != nil {
			return "", fmt.Errorf("session: issuer %q: %s: %w", s, name, err)
		}
		all = append(all, attribute(oid, value))
		if tail == "" {
			return joinAttributes(all), nil
		}
		rest = tail[1:]
	}
}

func attribute(oid, value string) string {
	return strconv.Itoa(len(oid)+1+len(value)) + ":" + oid + "=" + value
}

func joinAttributes(all []string) string {
	slices.SortFunc(all, cmp.Compare[string])
	return strings.Join(all, ",")
}

func attributeType(name string) (oid string, err error) {
	if oid, ok := attributeOIDs[strings.ToUpper(name)]; ok {
		return oid, nil
	}
	if name != "" && strings.Trim(name, "0123456789.") == "" {
		return name, nil
	}
	return "", fmt.Errorf("unknown attribute %q: write its number, such as 2.5.4.3", name)
}

// attributeValue reads one value. The tail is empty or starts with the
// separator that ended it.
func attributeValue(s string) (value, tail string, err error) {
	if strings.HasPrefix(s, "#") {
		end := strings.IndexAny(s, ",+")
		if end < 0 {
			end = len(s)
		}
		value, err = encodedValue(strings.TrimSpace(s[1:end]))
		return value, s[end:], err
	}
	var b []byte
	kept := 0 // bytes that trailing spaces are not taken from
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case ',', '+':
			return trimValue(b, kept), s[i:], nil
		case '"', ';':
			return "", "", fmt.Errorf("it has %q without a backslash before: write it as openssl x509 -issuer -nameopt rfc2253 does", c)
		case '\\':
			if i+1 == len(s) {
				return "", "", errors.New("it ends in the middle of an escape")
			}
			if code, herr := hex.DecodeString(s[i+1 : min(i+3, len(s))]); herr == nil {
				b, i = append(b, code...), i+2
			} else {
				b, i = append(b, s[i+1]), i+1
			}
			kept = len(b)
		default:
			b = append(b, c)
		}
	}
	return trimValue(b, kept), "", nil
}

func trimValue(b []byte, kept int) string {
	return string(b[:kept]) + strings.TrimRight(string(b[kept:]), " ")
}

// encodedValue is a value written as the hexadecimal form of its encoding.
func encodedValue(s string) (string, error) {
	der, err := hex.DecodeString(s)
	if err != nil {
		return "", err
	}
	var v any
	if rest, err := asn1.Unmarshal(der, &v); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("#%s is no encoded value", s)
	}
	return fmt.Sprint(v), nil
}
