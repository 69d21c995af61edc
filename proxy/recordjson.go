package proxy

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendJSON writes the record as one line of JSON. The order of the fields is
// fixed; fields that say nothing are left out. Times are in seconds.
func (r *Record) appendJSON(b []byte, query bool) []byte {
	b = append(b, `{"time":"`...)
	b = r.Start.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, '"')
	b = appendString(b, "request_id", r.RequestID)
	b = appendAddr(b, "client", r.Client)
	if r.Peer.Addr().Unmap() != r.Client {
		b = appendAddr(b, "peer", r.Peer.Addr())
	}
	b = appendString(b, "method", r.Method)
	b = appendString(b, "host", r.Host)
	b = appendString(b, "path", r.Path)
	if query {
		b = appendString(b, "query", r.Query)
	}
	b = appendString(b, "proto", r.Proto)
	b = appendInt(b, "status", int64(r.Status))
	b = appendInt(b, "bytes_in", r.BytesIn)
	b = appendInt(b, "bytes_out", r.BytesOut)
	b = appendSeconds(b, "duration", r.Duration)
	b = appendSeconds(b, "first_byte", r.FirstByte)
	b = appendSeconds(b, "connect", r.Connect)
	b = appendString(b, "tls_version", r.TLSVersion)
	if r.TLSVersion != "" {
		b = appendBool(b, "resumed", r.Resumed)
	}
	b = appendString(b, "sni", r.SNI)
	b = appendString(b, "site", r.Site)
	b = appendString(b, "route", r.Route)
	b = appendString(b, "upstream", r.Upstream)
	b = appendString(b, "backend", r.Backend)
	if r.Tries > 1 {
		b = appendInt(b, "tries", int64(r.Tries))
	}
	if r.Upgraded {
		b = appendBool(b, "upgraded", true)
	}
	if r.Aborted {
		b = appendBool(b, "aborted", true)
	}
	b = appendString(b, "user_agent", r.UserAgent)
	b = appendString(b, "referer", r.Referer)
	if r.Err != nil {
		b = appendString(b, "err", r.Err.Error())
	}
	return append(b, "}\n"...)
}

func appendName(b []byte, name string) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	return append(b, `":`...)
}

func appendString(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return appendQuoted(appendName(b, name), s)
}

func appendAddr(b []byte, name string, a netip.Addr) []byte {
	if !a.IsValid() {
		return b
	}
	b = append(appendName(b, name), '"')
	return append(a.Unmap().WithZone("").AppendTo(b), '"')
}

func appendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(appendName(b, name), v)
}

func appendSeconds(b []byte, name string, d time.Duration) []byte {
	if d == 0 {
		return b
	}
	return strconv.AppendFloat(appendName(b, name), d.Seconds(), 'f', 6, 64)
}

const hexDigits = "0123456789abcdef"

// appendQuoted writes a JSON string (RFC 8259, section 7); invalid UTF-8 becomes
// U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
	}
	return append(b, '"')
}
