package ocsp

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tlsproxy/tlsproxy/internal/pki"
)

// TestRedirectKeepsTheRequest: a redirect, and one after it, is followed with
// the request as it was, question and method. 303 alone asks for GET.
func TestRedirectKeepsTheRequest(t *testing.T) {
	ca := newCA(t, pki.CAOptions{})
	for code, want := range map[int][]string{
		301: {"POST", "POST", "POST"},
		302: {"POST", "POST", "POST"},
		303: {"POST", "GET", "GET"},
		307: {"POST", "POST", "POST"},
		308: {"POST", "POST", "POST"},
	} {
		var methods []string
		responder := pki.NewResponder(ca, pki.ResponderOptions{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			methods = append(methods, r.Method)
			switch {
			case strings.HasPrefix(r.URL.Path, "/long"):
				http.Redirect(w, r, "/again", code)
			case r.URL.Path == "/again":
				http.Redirect(w, r, "/ocsp", http.StatusFound)
			case r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/ocsp-request":
				w.WriteHeader(http.StatusUnsupportedMediaType)
			default:
				responder.ServeHTTP(w, r)
			}
		}))
		cert := issue(t, ca, pki.Request{Names: []string{"a.test"}, OCSPServers: []string{server.URL + "/long" + strings.Repeat("-", maxGET)}})
		r, err := Fetch(t.Context(), cert.Leaf, ca.Certificate, FetchOptions{})
		if !slices.Equal(methods, want) {
			t.Errorf("%d: methods = %v; want %v", code, methods, want)
		}
		if good := err == nil && r.Status == Good; good != (want[1] == http.MethodPost) {
			t.Errorf("%d: %+v, %v", code, r, err)
		}
		server.Close()
	}
}
