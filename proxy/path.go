package proxy

import "strings"

// maxUnclearPath bounds the paths that are compared in all their readings.
const maxUnclearPath = 4 << 10

// plainReading is the path decoded, encoded slashes and backslashes left alone.
func plainReading(path string) string { return decode(path, true) }

// readings calls yield with every way in which a backend may read a path as sent,
// until yield says false. Backends differ in whether they decode %2F, decode twice,
// take a backslash for a slash, drop ";parameters", merge empty segments and
// resolve dot segments, in any combination.
func readings(path string, yield func(string) bool) {
	forms := [3]string{plainReading(path), decode(path, false)}
	forms[2] = decode(forms[1], false)
	for i, form := range forms {
		if i > 0 && form == forms[i-1] {
			continue
		}
		for _, slashed := range variants(form, '\\', func(s string) string { return strings.ReplaceAll(s, `\`, "/") }) {
			for _, bare := range variants(slashed, ';', stripParameters) {
				if !yieldSegments(bare, yield) {
					return
				}
			}
		}
	}
}

// variants returns s, and change(s) if s contains c.
func variants(s string, c byte, change func(string) string) []string {
	if strings.IndexByte(s, c) < 0 {
		return []string{s}
	}
	return []string{s, change(s)}
}

// yieldSegments yields path with and without its empty and dot segments.
func yieldSegments(path string, yield func(string) bool) bool {
	return yield(path) &&
		yield(cleanSegments(path, true, false)) &&
		yield(cleanSegments(path, false, true)) &&
		yield(cleanSegments(path, true, true))
}

// cleanSegments drops empty segments, resolves dot segments (RFC 3986, section
// 5.2.4), or both.
func cleanSegments(path string, merge, dots bool) string {
	kept := make([]string, 0, 16)
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		switch {
		case merge && segment == "", dots && segment == ".":
		case dots && segment == "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// stripParameters drops what follows a semicolon in each segment.
func stripParameters(path string) string {
	var b strings.Builder
	for i, segment := range strings.Split(path, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		segment, _, _ = strings.Cut(segment, ";")
		b.WriteString(segment)
	}
	return b.String()
}

// decode resolves percent-encoding once and leaves what is not valid as it is. With
// keepSlashes, encoded slashes and backslashes stay encoded.
func decode(s string, keepSlashes bool) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			d := unhex(s[i+1])<<4 | unhex(s[i+2])
			if !keepSlashes || d != '/' && d != '\\' {
				c, i = d, i+2
			}
		}
		b = append(b, c)
	}
	return string(b)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// isClear reports whether a path has one reading only.
func isClear(path string) bool {
	for i := range len(path) {
		switch path[i] {
		case '%', '\\', ';':
			return false
		case '/', '.':
			if i > 0 && path[i-1] == '/' {
				return false
			}
		}
	}
	return true
}
