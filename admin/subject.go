package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tlsproxy/tlsproxy/session"
)

var (
	errContentType = errors.New("send application/json or application/x-www-form-urlencoded")
	errWhat        = errors.New(`say what to revoke: exactly one of {"all":true}, {"site":"NAME"}, {"sni":"NAME"} or {"issuer":"NAME","serial":"HEX"}`)
)

// fields are the words of a revocation request and what each needs beside it.
var fields = []string{"all", "site", "sni", "issuer", "serial"}

// parseSubject reads the body of a revocation request, JSON or a form, with
// the same words in both. It is strict: a word too many, twice or misspelled
// is an error, for what is revoked cannot be called back, and what is not
// revoked goes on.
func parseSubject(r *http.Request) (session.Subject, error) {
	if r.URL.RawQuery != "" {
		return session.Subject{}, errors.New("parameters belong in the body, not in the query")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return session.Subject{}, err
	}
	if len(body) == 0 {
		return session.Subject{}, errWhat
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return session.Subject{}, errContentType
	}
	var words map[string]string
	switch mediaType {
	case "application/json":
		words, err = parseObject(body)
	case "application/x-www-form-urlencoded":
		words, err = parseForm(string(body))
	default:
		return session.Subject{}, errContentType
	}
	if err != nil {
		return session.Subject{}, err
	}
	return subjectOf(words)
}

// parseObject reads one flat JSON object of strings and true. It goes by
// tokens because encoding/json would take a name that comes twice, or in
// another case, without a word.
func parseObject(body []byte) (map[string]string, error) {
	dec := json.NewDecoder(strings.NewReader(string(body)))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the body is not a JSON object")
	}
	words := map[string]string{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("the body is not JSON: %w", err)
		}
		value, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("the body is not JSON: %w", err)
		}
		name := key.(string) // inside an object, between values, it is one
		text, isText := value.(string)
		switch {
		case !slices.Contains(fields, name):
			// addWord says so; what its value is does not matter.
		case value == true && name == "all":
			text = "true"
		case !isText || name == "all":
			want := "a string"
			if name == "all" {
				want = "true"
			}
			return nil, fmt.Errorf("%q: must be %s", name, want)
		}
		if err := addWord(words, name, text); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, fmt.Errorf("the body is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body goes on after the JSON object")
	}
	return words, nil
}

func parseForm(body string) (map[string]string, error) {
	values, err := url.ParseQuery(body)
	if err != nil {
		return nil, fmt.Errorf("the body is not a form: %w", err)
	}
	words := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[name] {
			if err := addWord(words, name, v); err != nil {
				return nil, err
			}
		}
	}
	return words, nil
}

func addWord(words map[string]string, name, value string) error {
	if !slices.Contains(fields, name) {
		return fmt.Errorf("unknown field %q; known are %s", name, strings.Join(fields, ", "))
	}
	if _, twice := words[name]; twice {
		return fmt.Errorf("%q is given twice", name)
	}
	if name == "all" && value != "true" && value != "1" {
		return fmt.Errorf("%q: must be true", name)
	}
	if strings.TrimSpace(value) == "" {
		return fmt.Errorf("%q is empty", name)
	}
	words[name] = value
	return nil
}

// subjectOf accepts exactly one way to say what to revoke.
func subjectOf(words map[string]string) (session.Subject, error) {
	_, all := words["all"]
	_, site := words["site"]
	_, sni := words["sni"]
	_, issuer := words["issuer"]
	_, serial := words["serial"]
	switch {
	case issuer != serial:
		return session.Subject{}, errors.New(`"issuer" and "serial" belong together: a serial number is unique for one issuer only`)
	case all && len(words) == 1:
		return session.Subject{Kind: session.KindAll}, nil
	case site && len(words) == 1:
		return session.Subject{Kind: session.KindSite, Value: words["site"]}, nil
	case sni && len(words) == 1:
		return session.Subject{Kind: session.KindServerName, Value: words["sni"]}, nil
	case issuer && serial && len(words) == 2:
		if !isHex(words["serial"]) {
			return session.Subject{}, fmt.Errorf("serial %q is not hexadecimal", words["serial"])
		}
		return session.Subject{Kind: session.KindCertificate, Issuer: words["issuer"], Serial: words["serial"]}, nil
	}
	return session.Subject{}, errWhat
}

// isHex accepts hexadecimal as OpenSSL prints it, with or without colons.
func isHex(s string) bool {
	digits := strings.ReplaceAll(s, ":", "")
	return digits != "" && !strings.ContainsFunc(digits, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'f' || 'A' <= r && r <= 'F')
	})
}

// knownSite refuses a site that does not exist.
func (h *handler) knownSite(s session.Subject) error {
	if s.Kind != session.KindSite || h.opts.Sites == nil {
		return nil
	}
	sites := h.opts.Sites()
	if slices.Contains(sites, s.Value) {
		return nil
	}
	slices.Sort(sites)
	if len(sites) > 20 {
		return fmt.Errorf("site %q is unknown; there are %d others", s.Value, len(sites))
	}
	return fmt.Errorf("site %q is unknown; known are %s", s.Value, strings.Join(sites, ", "))
}
