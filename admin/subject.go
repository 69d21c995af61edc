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
	errWhat        = errors.New(`say what to revoke, by one of {"kind":"all"}, {"kind":"site","value":"NAME"}, ` +
		`{"kind":"sni","value":"NAME"} and {"kind":"certificate","issuer":"NAME","serial":"HEX"}`)
)

// fields are the words of a revocation request: those of [session.Subject].
var fields = []string{"kind", "value", "issuer", "serial"}

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

// parseObject reads one flat JSON object of strings. It goes by tokens because
// encoding/json would take a name that comes twice, or in another case,
// without a word.
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
		if !isText && slices.Contains(fields, name) {
			return nil, fmt.Errorf("%q: must be a string", name)
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
	if strings.TrimSpace(value) == "" {
		return fmt.Errorf("%q is empty", name)
	}
	words[name] = value
	return nil
}

// subjectOf accepts the words that belong to the kind, all of them and no
// others.
func subjectOf(words map[string]string) (session.Subject, error) {
	s := session.Subject{Kind: session.Kind(words["kind"]), Value: words["value"], Issuer: words["issuer"], Serial: words["serial"]}
	var needs []string
	switch s.Kind {
	case session.KindAll:
	case session.KindSite, session.KindServerName:
		needs = []string{"value"}
	case session.KindCertificate:
		needs = []string{"issuer", "serial"}
	case "":
		return session.Subject{}, errWhat
	default:
		return session.Subject{}, fmt.Errorf("unknown kind %q: %w", s.Kind, errWhat)
	}
	for _, name := range fields[1:] {
		_, there := words[name]
		switch needed := slices.Contains(needs, name); {
		case needed && !there:
			return session.Subject{}, fmt.Errorf("kind %q needs %q", s.Kind, name)
		case !needed && there:
			return session.Subject{}, fmt.Errorf("kind %q goes without %q", s.Kind, name)
		}
	}
	if s.Kind == session.KindCertificate && !isHex(s.Serial) {
		return session.Subject{}, fmt.Errorf("serial %q is not hexadecimal", s.Serial)
	}
	return s, nil
}

// isHex accepts hexadecimal as OpenSSL prints it, with or without colons.
func isHex(s string) bool {
	digits := strings.ReplaceAll(s, ":", "")
	return digits != "" && !strings.ContainsFunc(digits, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'f' || 'A' <= r && r <= 'F')
	})
}

// unknownSite says that no site has the name of s now, or nothing. Sessions may have
// been made under a site that had it.
func (h *handler) unknownSite(s session.Subject) string {
	if s.Kind != session.KindSite || h.opts.Sites == nil {
		return ""
	}
	sites := h.opts.Sites()
	if slices.Contains(sites, s.Value) {
		return ""
	}
	known := fmt.Sprintf("there are %d others", len(sites))
	if len(sites) <= 20 {
		slices.Sort(sites)
		known = "known are " + strings.Join(sites, ", ")
	}
	return fmt.Sprintf("site %q is unknown, %s: ended are sessions made under a site that had this name", s.Value, known)
}
